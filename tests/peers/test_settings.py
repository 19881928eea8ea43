"""Settings are checked and handed on in one place; whatever is wrong with them is told in one line."""

import dataclasses
import json
import math
import typing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samovar.peers.conversations.local_sgd_settings import LocalSGDSettings
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.common import CommonSettings
from samovar.peers.settings.fields import SettingsError, Spoken
from samovar.peers.settings.link_text import parse_link
from samovar.peers.settings.names import fields_of
from samovar.peers.settings.validators import Parsed
from samovar.sims.cli import simulate
from samovar.sims.scenarios.scenario import USUAL_LINK, Scenario

FIELDS = fields_of(Settings().protocol)


def refused(toml: Path | None, **flags: object) -> str:
    with pytest.raises(SettingsError) as error:
        Settings.read(toml, flags)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 450
    return str(error.value)


def test_every_setting_has_a_type_a_default_and_a_line_of_help() -> None:
    hints = typing.get_type_hints(CommonSettings) | typing.get_type_hints(LocalSGDSettings)
    for name, field in FIELDS.items():
        kind = field.metadata["rule"].kind
        hint = typing.get_args(hints[name])[0] if field.default is None else hints[name]
        if issubclass(typing.get_origin(hint) or type(None), Parsed) or hint is Spoken:
            assert kind is str, f"{name} is given as text, and parsed once"
        else:
            assert hints[name] == (kind | None if field.default is None else kind), name
        ends = (".", "key", "half", "endless", "machine's", "NNN", "2000", "port")
        assert field.metadata["help"].rstrip("]").endswith(ends), name
        assert "\n" not in field.metadata["help"]
    assert Settings() == Settings(**{name: field.default for name, field in FIELDS.items()})


def test_peers_take_several_links_in_turn_and_are_not_shaped_without_a_link() -> None:
    settings = Settings(link="1mbit,1ms; 2mbit,2ms")
    assert [settings.of_peer(index).link for index in range(4)] == ["1mbit,1ms", "2mbit,2ms"] * 2
    assert Settings().of_peer(1) == Settings()
    usual = Scenario.plain(Settings()).groups[0].link
    assert usual == parse_link(USUAL_LINK)
    assert f"({USUAL_LINK})" in str(simulate.help)


INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("peers", [0, -1, 10**7, 4.0, "4", True, [4]]),
        ("schedule", ["", "rings", "auto ", None, 1]),
        ("period", [
            0, -1, 10**9, "0", "-1", "1e9", "1000000000", "abc", "", "8.0", 8.0, True, "٣", "adaptiv", "9" * 5000,
        ]),
        ("period_initial", [0, 257, -1, "16"]),
        ("period_block_s", [0, -2.0, NAN, INF, "2", True, 1e7]),
        ("steps", [0, -1, 10**13, 2.5]),
        ("seed", [-1, 2**63, 0.0]),
        ("device", ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "cpu,", ",cpu", "cpu, cpu", "cuda:1000", 0, "cpu\n"]),
        ("threads", [-1, 1025, 1.0]),
        ("patience_s", [0, -5, NAN, -INF, INF, 86_401, "5"]),
        ("compute_patience_s", [0, -5, NAN, INF, "60"]),
        ("quorum", [0, -1, 5, "2"]),
        ("listen", [
            "", "*:0", "tcp://*", "tcp://*:", "tcp://*:65536", "tcp://*:-1", "tcp://:1", "udp://*:1", "tcp://a b:1",
            "tcp://::1:5", "tcp://*.x:1", "tcp://[::1:5", "tcp://fe80::1%eth0", "tcp://a\n:1", "tcp://*:1\n", 4000,
            "tcp://" + "a" * 300 + ":1", "tcp://a/b:1",
        ]),
        ("advertise", ["", "*", "0.0.0.0", "[::]", "tcp://a", "a:4000", "::1", "a b", "a\n", "[::1", 7, "a" * 300]),
        ("insecure", [0, 1, "true", None]),
        ("key", ["", "a\0b", 1, "a" * 5000, b"key"]),
        ("run", ["", "\0", 7]),
        ("evaluate_every", [0, -1]),
        ("checkpoint_every_s", [-1, -0.1, NAN, INF, 1e10]),
        ("link", [
            "", "fast", "10mbit", "0mbit,1ms", "10mb,1ms", "10mbit,1ms,1ms,1ms", "-1mbit,1ms", "1mbit,1", "1mbit;1ms",
            "1mbit,1ms;", "1mbit,1ms;;1mbit,1ms", "1mbit,1ms;2mbit", "10",
        ]),
        ("step_time", ["", "1", "0ms", "0.0s", "-1ms", "1 ms", "1min", "1e9s", 1]),
        ("report", ["no", 0]),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_with_its_setting_and_the_allowed_values(name: str, values: list[object]) -> None:
    for value in values:
        with pytest.raises(SettingsError, match=f"^{name} must be ") as error:
            Settings(**{name: value})
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 300
        if value is not None:
            flag = "--" + name.replace("_", "-")
            assert refused(None, **{name: value}) == f"{flag}{str(error.value).removeprefix(name)}"


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("period", ["1", "1000000", "adaptive"]),
        ("device", ["cuda", "cuda:0,cpu", "auto,auto"]),
        ("listen", ["tcp://*:0", "tcp://0.0.0.0:1", "tcp://a-b.c_d:65535", "tcp://[fe80::1%eth0]:1", "tcp://127.0.0.1:*"]),
        ("advertise", ["192.0.2.7", "a", "[::1]", "[fe80::1%eth0]"]),
        ("link", ["100mbit,5ms", "1gbit,0ms", "0.5kbit,1s,20us", " 1MBit , 1MS ", "10bit,0s", "1mbit,1ms; 2mbit,1ms"]),
        ("step_time", ["1ms", "0.5s", "500us", "measured"]),
        ("run", [".", "/a b/ü"]),
    ],
)  # fmt: skip
def test_an_allowed_value_is_kept_unchanged(name: str, values: list[object]) -> None:
    for value in values:
        assert Settings(**{name: value}).plain()[name] == value


def test_a_misspelt_name_of_an_algorithm_is_told_the_one_that_was_meant() -> None:
    with pytest.raises(SettingsError, match=r"got 'pushsum'; did you mean push_sum\?$"):
        Settings(protocol="gossip", algorithm="pushsum")  # type: ignore[call-arg]
    with pytest.raises(SettingsError, match=r"got 'AUC ≠ 0.9'$"):
        Settings(stop="AUC ≠ 0.9")


@pytest.mark.parametrize(
    ("wished", "said"),
    [
        ({"algorithm": "epidemic:9"}, "epidemic:9 asks for 9 neighbours of a peer, which mixes with all 2 others"),
        ({"topology": "regular"}, "regular asks for 4 neighbours of a peer, which mixes with all 2 others"),
        ({"topology": "regular:3", "peers": 2}, "regular:3 asks for 3 neighbours of a peer, which mixes with the only"),
        ({"algorithm": "choco:0.5", "topology": "small_world:4:0.1"}, "small_world:4:0.1 asks for 4 neighbours"),
        ({"algorithm": "epidemic:2"}, ""),
        ({"algorithm": "epidemic:9", "peers": 1}, ""),
        ({"topology": "regular:4", "peers": 5}, ""),
        ({"topology": "ring"}, ""),
        ({}, ""),
    ],
)
def test_more_neighbours_than_there_are_peers_are_told_in_one_line(wished: dict[str, object], said: str) -> None:
    made = Settings(**{"protocol": "gossip", "peers": 3, **wished})
    told = made.own.idle_here(made)
    assert told.startswith(said)
    assert bool(told) == bool(said)


def test_a_link_that_is_let_through_can_be_simulated() -> None:
    for link in ("100mbit,5ms", "0.5kbit,1s,20us", " 1MBit , 1MS ", "10bit,0s", "1tbit,1us"):
        assert parse_link(Settings(link=link).link).bandwidth_Bps > 0


def test_a_number_in_another_form_makes_the_same_settings() -> None:
    assert Settings(period=" 008 ", patience_s=3) == Settings(period="8", patience_s=3.0)
    assert repr(Settings(checkpoint_every_s=-0.0)) == repr(Settings(checkpoint_every_s=0))


def test_an_insecure_run_refuses_keys_and_an_unknown_flag_is_told() -> None:
    assert (
        refused(None, insecure=True, authorized="a")
        == "--authorized has no use in an insecure run: leave out one of the two"
    )
    assert refused(None, perid="8") == 'unknown key "perid"; did you mean "period"?'


settings = st.builds(
    Settings,
    peers=st.integers(1, 1024),
    period=st.just("adaptive") | st.integers(1, 10**6).map(str),
    period_block_s=st.floats(0, 1e6, exclude_min=True),
    seed=st.integers(0, 2**63 - 1),
    run=st.none() | st.text(min_size=1).filter(lambda text: "\0" not in text),
    report=st.booleans(),
    patience_s=st.floats(1e-300, 86_400),
)


@given(settings)
def test_settings_survive_json_unchanged(made: Settings) -> None:
    assert Settings.from_json(made.to_json()) == made
    assert "\n" not in made.to_json()
    other = Settings(run="here", quorum=1)
    for agreed in (made.agreed(), made.agreed_json()):
        taken = other.with_agreed(agreed)
        assert taken.agreed() == made.agreed()
        assert dataclasses.replace(taken, **other.agreed()) == other


def test_the_agreed_settings_are_those_that_all_peers_must_share() -> None:
    common = ["peers", "protocol", "steps", "arguments", "seed", "compute_patience_s", "evaluate_every"]
    own = [field.name for field in dataclasses.fields(LocalSGDSettings)]  # another value of any makes another algorithm
    assert list(Settings().agreed()) == [*common, *own]


jsons = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*FIELDS, "x"]), inner, max_size=6),
)


@given(jsons | st.dictionaries(st.sampled_from([*FIELDS]), jsons).map(lambda some: {**Settings().plain(), **some}))
def test_settings_of_a_stranger_are_taken_or_refused_in_one_line(value: object) -> None:
    only = {name: value[name] for name in Settings().agreed() if name in value} if isinstance(value, dict) else value
    for take, given_value in ((Settings().with_agreed, only), (Settings.from_json, value)):
        try:
            assert isinstance(take(json.dumps(given_value)), Settings)
        except SettingsError as error:
            assert "\n" not in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", "[" * 100_000, '{"peers": ' + "9" * 5000 + "}", "\ud800"]
)
def test_text_that_is_no_settings_is_refused(text: str) -> None:
    for take in (Settings.from_json, Settings().with_agreed):
        with pytest.raises(SettingsError, match=r"^these settings "):
            take(text)


def test_settings_of_another_version_are_refused() -> None:
    row = Settings().plain()
    with pytest.raises(SettingsError, match="have 'perod', unknown here: is it the same version of Samovar"):
        Settings.from_json(json.dumps({**row, "perod": 1}))
    del row["seed"]
    with pytest.raises(SettingsError, match="lack seed: is it the same version"):
        Settings.from_json(json.dumps(row))
    with pytest.raises(SettingsError, match=r"^quorum must be at most the number of peers, 2, got 3"):
        Settings(quorum=3).with_agreed(Settings(peers=2).agreed())


def test_settings_written_before_a_setting_was_renamed_are_taken_and_told() -> None:
    made, told = Settings(overlap=True, period="8", overlap_share=0.5), list[str]()
    row = made.plain()
    row["mixing"] = row.pop("overlap_share")
    assert Settings.from_json(json.dumps(row), told.append) == made
    assert told == ["mixing is called overlap_share now"]
    agreed = made.agreed()
    agreed["mixing"] = agreed.pop("overlap_share")
    assert Settings().with_agreed(agreed) == made
    with pytest.raises(SettingsError, match="have 'mixing', unknown here"):
        Settings.from_json(json.dumps({**row, "overlap_share": 0.5}))
