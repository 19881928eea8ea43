"""Settings from a file and from flags: whatever is wrong with them is told in one line, with its place."""

import json
import re
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from test_settings import FIELDS, refused
from tiers import one_in

from samovar.aggregation.periods.fixed import Fixed
from samovar.peers.cli.flags import SettingsCommand, click_options
from samovar.peers.conversations.local_sgd_settings import LocalSGDSettings
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.link_text import parse_link
from samovar.sims.scenarios.file import read_scenario
from samovar.sims.scenarios.scenario import Scenario

FULL = """
peers = 3
protocol = "allreduce"
schedule = "ring"
codec = "int8"
outer = "nesterov:0.7:0.9"
fragments = 5
inner = "reset"
period = 8
period-initial = 4
period_block_s = 1
pace = "equal"
drift = "left"
steps = 100
seed = 7
device = "cpu,cuda:1"
threads = 1
memory_limit = "8GB"
patience_s = 0.5
compute_patience_s = 60
give_up_after_s = 600
norm_limit = 1000.0
samples = 1000000
epochs = 2.5
stop = "accuracy >= 0.97"
stop_patience = 7
arguments = ["--width", "64"]
quorum = 2
listen = "tcp://[::1]:4000"
advertise = "teapot.example"
insecure = false
key = "own.key"
authorized = "friends.pub"
invite_uses = 3
invite_for = "2h"
relay_limit = "10mbit"
budget = "200kbit"
budget_per_day = "500MB"
run = "runs/here"
evaluate_every = 5
checkpoint_every_s = 0
link = "10mbit, 40ms, 5ms"
site = "paris;rome"
step_time = "2.5ms"
report = false
"""


@pytest.fixture
def toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("settings.toml")


def test_a_file_can_give_every_setting(toml: Path) -> None:
    toml.write_text(FULL)
    settings = Settings.read(toml, {})
    assert all(
        settings.plain()[name] != field.default
        for name, field in FIELDS.items()
        # the last seven would not go with the others
        if name
        not in ("protocol", "insecure", "edge", "average", "overlap", "overlap_share", "pace", "drift", "site_period")
    )
    own = LocalSGDSettings.of(settings)
    assert (own.period.text, own.period.value, own.period_block_s, own.period_initial) == ("8", Fixed(8), 1.0, 4)
    assert type(own.period_block_s) is float


GROUPS = """
steps = 9
[[groups]]
peers = 2
link = "50mbit/10mbit,20ms"
[[groups]]
link = "5mbit, 80ms"
peers = 1
"""


def test_groups_in_a_file_are_peers_each_with_its_link(toml: Path) -> None:
    toml.write_text(GROUPS)
    settings = Settings.read(toml, {"seed": 3})
    assert (settings.peers, settings.steps, settings.seed) == (3, 9, 3)
    links = [settings.of_peer(index).link for index in range(3)]
    assert links == ["50mbit/10mbit,20ms", "50mbit/10mbit,20ms", "5mbit, 80ms"]
    groups = Scenario.plain(settings).groups
    assert [(group.peers, group.link) for group in groups] == [
        (2, parse_link(links[0])),
        (1, parse_link(links[2])),
    ]


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        ("", {"peers": 3}, "--peers: the groups in settings.toml say it: leave out one of the two"),
        ("", {"link": "1mbit,1ms"}, "--link: the groups in settings.toml say it: leave out one of the two"),
        ("peers = 9", {}, "settings.toml, line 1: peers: the groups in settings.toml say it: leave out one of the two"),
        ('link = "1mbit,1ms"', {}, "settings.toml, line 1: link: the groups in settings.toml say it: leave out"),
        ("quorum = 4", {}, "settings.toml, line 1: quorum must be at most the number of peers, 3, got 4"),
    ],
)
def test_settings_of_the_groups_are_refused_elsewhere(
    toml: Path, text: str, flags: dict[str, object], said: str
) -> None:
    toml.write_text(text + GROUPS)
    assert refused(toml, **flags).startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("groups = 3", "settings.toml, line 1: groups must be tables, each under [[groups]], got 3"),
        ("[groups]\npeers = 2", "settings.toml, line 1: groups must be tables, each under [[groups]], got a table"),
        ("[[groups]]\npeers = 2", "settings.toml, line 1: groups number 1: link is missing"),
        ('[[groups]]\nlink = "1mbit,1ms"', "settings.toml, line 1: groups number 1: peers is missing"),
        ('[[groups]]\npeers = 1\nlink = "10"', "settings.toml, line 3: link: '10' is no link: write BANDWIDTH,LATENCY"),
        ('[[groups]]\npeers = 1\nlink = "-1mbit,1ms"', "settings.toml, line 3: link: must not be negative, got"),
        (
            '[[groups]]\nlink = "1mbit,1ms"\npeers = [2]',
            "settings.toml, line 3: peers: must be a whole number from 1 to",
        ),
        (
            '[[groups]]\npeers = 1\nwhere = "x"',
            "settings.toml, line 3: unknown key 'where'; known are peers, link, site",
        ),
        (
            '[[groups]]\npeers = 1\nlink = "1mbit,1min"',
            "settings.toml, line 1: link must be BANDWIDTH,LATENCY or BANDWIDTH,LATENCY,JITTER, such as",
        ),
    ],
)
def test_a_fault_in_a_group_is_told_with_its_line(toml: Path, text: str, said: str) -> None:
    toml.write_text(text)
    assert refused(toml).startswith(said)


def test_flags_win_over_the_file_and_absent_flags_do_not(toml: Path) -> None:
    toml.write_text('seed = 1\nsteps = 50\nperiod = "adaptive"\n')
    assert Settings.read(toml, {"seed": 2, "steps": None, "peers": None}) == Settings(seed=2, steps=50)
    assert Settings.read(None, {}) == Settings()


@pytest.mark.parametrize(
    "text", ["\ufeffseed = 3\r\n\r\nsteps = 9\r\n", "\"seed\" = 3\n 'steps'=9", "seed=3 # x\nsteps = 0x9"]
)
def test_other_notations_of_a_settings_file_are_tolerated(toml: Path, text: str) -> None:
    toml.write_bytes(text.encode())
    assert Settings.read(toml, {}) == Settings(seed=3, steps=9)


FAULTS = [
        ("peers = 3\n\nperod = 8\n", 'settings.toml, line 3: unknown key "perod"; did you mean "period"?'),
        ("period-block = 8", 'settings.toml, line 1: unknown key "period-block"; did you mean "period_block_s"?'),
        ("xyz = 8", 'settings.toml, line 1: unknown key "xyz"; known are peers, protocol, '),
        ("\n[train]\npeers = 3", 'settings.toml, line 2: unknown key "train"; known are'),
        ("a.b.c = 3", 'settings.toml, line 1: unknown key "a"; '),
        ('"a\\nb" = 3', 'settings.toml: unknown key "a\\nb"; '),
        ("peers = 0", "line 1: peers must be a whole number from 1 to 10000, got 0"),
        ("\n\n peers = 2.0", "line 3: peers must be a whole number from 1 to 10000, got 2.0"),
        ("peers = true", "peers must be a whole number from 1 to 10000, got true"),
        ('peers = "4"', "peers must be a whole number from 1 to 10000, got '4'"),
        ("peers = [4]", "peers must be a whole number from 1 to 10000, got a list"),
        ("peers = 2024-01-01", "got a date"),
        ("[peers]", "peers must be a whole number from 1 to 10000, got a table"),
        ("peers.a.b = 1", "got a table"),
        ("steps = 0x" + "f" * 4900, "got a huge number"),
        ("steps = " + "9" * 4900, "not TOML: "),
        ("patience_s = -1", "patience_s must be a number of seconds, above 0 and at most 86400, got -1"),
        ("patience-s = nan", "settings.toml, line 1: patience_s must be a number of seconds, above 0 and at most"),
        ("insecure = 1", "insecure must be true or false, got 1"),
        ("seed = 1\nseed = 2", "settings.toml, line 2: not TOML: Cannot overwrite a value"),
        ("period-initial = 1\nperiod_initial = 1", "settings.toml, line 2: period_initial is given twice, with"),
        ("steps = 1\nseed = ", "settings.toml, line 2: not TOML: "),
        ("seed = 1\n\n{", "settings.toml, line 3: not TOML: "),
        ('\n\nrun = "a', "settings.toml, line 3: not TOML: "),
        ("a = " + "[" * 4900, "not TOML: "),
        ("a = " + "{a=" * 1600, "not TOML: "),
        ("quorum = 5", "settings.toml, line 1: quorum must be at most the number of peers, 4, got 5"),
        ('insecure = true\nkey = "a"', "settings.toml, line 2: key has no use in an insecure run"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), one_in(4, FAULTS))
def test_a_fault_in_a_file_is_told_with_its_line(toml: Path, text: str, said: str) -> None:
    toml.write_text(text)
    assert said in refused(toml)


def test_an_unreadable_settings_file_is_told(toml: Path, tmp_path: Path) -> None:
    assert refused(toml) == "settings.toml: cannot be read: no such file or directory"
    assert refused(tmp_path) == f"{tmp_path}: cannot be read: is a directory"
    assert "cannot be read: embedded null byte" in refused(Path("a\0b"))
    toml.write_bytes(b"seed = 1\nrun = '\xff'\n")
    assert refused(toml) == "settings.toml, line 2: not UTF-8 text"
    toml.write_bytes(b"\xff\xfes\0e\0e\0d\0")
    assert refused(toml) == "settings.toml, line 1: not UTF-8 text"
    with toml.open("wb") as file:
        file.truncate(100 << 20)
    assert refused(toml) == "settings.toml: larger than 1 MiB, which no settings file is"


@pytest.mark.parametrize(
    "text",
    one_in(
        2,
        [
            "a." * 500_000 + "b = 1",
            ("a" + ".a" * 2490 + " = 1\n") * 200,
            "\n".join(f"a{n} = 1" for n in range(90_000)),
            "a" * 1_000_000,
        ],
    ),
)
def test_a_hostile_file_takes_a_moment_only(toml: Path, text: str) -> None:
    toml.write_text(text)
    began = time.monotonic()
    assert refused(toml).startswith("settings.toml")
    assert time.monotonic() - began < 20


@click.command()
@click_options("seed", "device", "patience_s", "insecure", "report", "quorum")
def some(**flags: object) -> None:
    click.echo(json.dumps({name: value for name, value in flags.items() if value is not None}))


@click.command(cls=SettingsCommand, verb="train", first=())
@click_options("step_time", "edge")
def every(**flags: object) -> None:
    click.echo(Settings.read(None, flags).to_json())


def run(command: click.Command, *arguments: str) -> str:
    result = CliRunner().invoke(command, arguments, env={"COLUMNS": "200"})
    return result.output.strip()


def test_only_flags_that_are_given_are_passed_on() -> None:
    assert run(some) == "{}"
    given_flags = run(some, "--seed", "3", "--no-report", "--insecure", "--patience-s", "2", "--device", "cpu")
    wanted = {"seed": 3, "device": "cpu", "patience_s": 2.0, "insecure": True, "report": False}
    assert json.loads(given_flags) == wanted


def test_every_setting_can_be_a_flag(toml: Path) -> None:
    toml.write_text(FULL)
    wanted = Settings.read(toml, {})
    arguments = []
    for name, value in wanted.plain().items():
        if value is None or name == "arguments":  # these go after --
            continue
        flag = name.replace("_", "-")
        arguments += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    assert Settings.from_json(run(every, *arguments)).changed(arguments=wanted.arguments) == wanted


def test_help_tells_units_defaults_and_choices() -> None:
    told = " ".join(run(every, "--help").split())
    assert "--patience-s S A peer's silence until it is lost. [default: 5]" in told
    assert "--inner kept|averaged|reset" in told
    assert "is not one of 'auto', 'ring', 'halving_doubling'" in run(every, "--schedule", "x")
    assert "--[no-]report Write report.html at the end. [default: report]" in told
    assert all(re.search(rf"--(\[no-\])?{name.replace('_', '-')} ", told) for name in FIELDS if name != "arguments")
    assert "--peers" not in run(some, "--help")
    assert "Invalid value for '--seed': 'x' is not a valid integer." in run(some, "--seed", "x")


# A setting that was renamed, and names with hyphens


@click.command(cls=SettingsCommand, verb="train", first=())
def overlapped(**flags: object) -> None:
    settings = Settings.read(None, flags)
    click.echo(f"{LocalSGDSettings.of(settings).overlap_share}")


def test_a_former_flag_is_taken_and_told_in_one_line() -> None:
    said = CliRunner().invoke(overlapped, ["--overlap", "--period", "8", "--mixing", "0.5"])
    assert (said.stdout, said.stderr) == ("0.5\n", "samovar: --mixing is called --overlap-share now\n")
    present = CliRunner().invoke(overlapped, ["--overlap", "--period", "8", "--overlap-share", "0.5"])
    assert (present.stdout, present.stderr) == ("0.5\n", "")
    assert "mixing" not in run(every, "--help")


def test_a_former_key_of_a_file_is_taken_and_told_with_its_line(toml: Path) -> None:
    toml.write_text("overlap = true\nperiod = 8\nmixing = 0.5\n")
    told: list[str] = []
    assert Settings.read(toml, {}, told.append) == Settings(overlap=True, period="8", overlap_share=0.5)
    assert told == ["settings.toml, line 3: mixing is called overlap_share now"]
    told.clear()
    assert Settings.read(toml, {"overlap_share": 0.25}, told.append).plain()["overlap_share"] == 0.25, (
        "a flag wins as ever"
    )


def test_a_former_key_of_a_scenario_is_told_once(toml: Path) -> None:
    toml.write_text("[settings]\npeers = 2\noverlap = true\nperiod = 8\nmixing = 0.5\n")
    told: list[str] = []
    assert read_scenario(toml, {}, told.append).scenario.settings.plain()["overlap_share"] == 0.5
    assert told == ["settings.toml, line 5: mixing is called overlap_share now"]


def test_a_setting_is_not_given_by_both_its_names(toml: Path) -> None:
    both = {"overlap": True, "period": "8", "overlap_share": 0.5, "mixing": 0.5}
    assert refused(None, **both) == "--overlap-share is given twice, as --overlap-share and as --mixing"
    toml.write_text("mixing = 0.5\noverlap-share = 0.5\n")
    assert refused(toml) == "settings.toml, line 2: overlap_share is given twice, as mixing and as overlap_share"


def test_a_bad_setting_is_told_by_the_name_that_was_given(toml: Path) -> None:
    assert refused(None, overlap=True, period="8", mixing=2.0).startswith("--mixing must be a number from 0 up to")
    toml.write_text("mixing = 2.0")
    assert refused(toml).startswith("settings.toml, line 1: mixing must be a number from 0 up to")


NAMES = {
    "schedule": ("halving-doubling", "halving_doubling"),
    "codec": ("top-k:0.01:fp16", "top_k:0.01:fp16"),
    "outer": ("server-momentum:1:0.9", "server_momentum:1:0.9"),
    "period": ("post-local:16:100", "post_local:16:100"),
}


@pytest.mark.parametrize("name", NAMES)
def test_names_are_taken_with_hyphens_and_with_underscores_and_kept_in_one_form(toml: Path, name: str) -> None:
    for given in NAMES[name]:
        toml.write_text(f'{name} = "{given}"')
        from_flag = Settings.from_json(run(every, f"--{name}", given))
        assert from_flag.plain()[name] == NAMES[name][1]
        assert Settings.read(toml, {}) == from_flag


def test_hyphens_are_for_names_alone_and_an_unknown_name_is_told_as_it_was_given() -> None:
    assert "'1e-2' is no whole number" in refused(None, codec="power-sgd:1e-2")
    assert refused(None, codec="top-k:-1").startswith("--codec is refused: the codec 'top-k:-1' cannot be")
    assert "'halving-halving' is not one of" in run(every, "--schedule", "halving-halving")
