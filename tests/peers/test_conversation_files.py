"""``--protocol``: its settings, flags and refusals derive from the chosen conversation, also from a file of the user's
own or an installed package. Settings are parsed once."""

import json
import textwrap
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from test_settings import refused

from samovar.aggregation.periods.adacomm import AdaComm
from samovar.aggregation.periods.fixed import Fixed
from samovar.peers.cli.flags import SettingsCommand
from samovar.peers.cli.train import train
from samovar.peers.conversations.local_sgd_settings import LocalSGDSettings
from samovar.peers.conversations.registry import conversation
from samovar.peers.launch.ways_in import WaysIn
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings import validators
from samovar.peers.settings.fields import SettingsError
from samovar.sims.scenarios.file import read_scenario
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.scenarios.text import scenario_text

RING = """
from dataclasses import dataclass

from samovar.peers.conversations.registry import Registered
from samovar.peers.settings import validators as rules
from samovar.peers.settings.fields import OwnSettings, SettingsError, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class RingSettings(OwnSettings):
    own_share: float = setting(0.5, rules.share(), "Share of the peer's own model.", agreed=True, former="selfishness")
    greeting: str | None = setting(None, rules.file("a text"), "What it says first.")

    def check(self, common):
        if common.peers == 1 and self.own_share != 0.5:
            raise SettingsError("has no use with one peer", "own_share")


def build(setup):
    raise NotImplementedError


CONVERSATION = Registered(settings=RingSettings, build=build)
"""


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a conversation, in the working folder."""
    monkeypatch.chdir(tmp_path)
    path = Path("ring.py")
    path.write_text(RING)
    return path


@click.command(cls=SettingsCommand, verb="train", first=())
@click.option("--config", type=click.Path(path_type=Path))
@click.option("--resume", type=click.Path(path_type=Path))
def told(config: Path | None, resume: Path | None, **flags: object) -> None:
    click.echo(Settings.read(config, flags).to_json())


def run(*arguments: str, command: click.Command = told) -> str:
    return CliRunner().invoke(command, arguments, terminal_width=80).output.strip()


def test_the_help_of_train_lists_the_settings_of_a_conversation_in_a_file_and_no_others(ring: Path) -> None:
    said = run("--protocol", str(ring), "--help", command=train)
    own = said[said.index("Of ring.py:") :].splitlines()
    assert [" ".join(row.split()) for row in own[1:3]] == [
        "--own-share SHARE Share of the peer's own model. [default: 0.5]",
        "--greeting FILE What it says first.",
    ]
    assert "--period" not in said
    assert "--patience-s" in said
    assert "--period" in run("--help", command=train)


def test_the_settings_of_a_conversation_in_a_file_come_from_flags_and_toml_as_the_others_do(ring: Path) -> None:
    toml = Path("settings.toml")
    toml.write_text('protocol = "ring.py"\npeers = 3\nown-share = 0.25\n')
    settings = Settings.read(toml, {})
    assert (settings.peers, settings.own.values()) == (3, {"own_share": 0.25, "greeting": None})
    assert json.loads(run("--config", "settings.toml", "--own-share", "0.75"))["own_share"] == 0.75
    former = CliRunner().invoke(told, ["--protocol=ring.py", "--selfishness", "0.75"])
    assert json.loads(former.stdout)["own_share"] == 0.75
    assert former.stderr == "samovar: --selfishness is called --own-share now\n"
    assert refused(toml, own_share=7.0).startswith("--own-share must be a number from 0 up to")
    toml.write_text('protocol = "ring.py"\nown_share = 7.0\n')
    assert refused(toml).startswith("settings.toml, line 2: own_share must be a number from 0 up to")
    assert refused(None, protocol="ring.py", peers=1, own_share=0.1) == "--own-share has no use with one peer"


def test_the_flags_of_a_resumed_run_and_of_a_scenario_are_those_of_its_conversation(
    ring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("run").mkdir()
    Path("run/settings.json").write_text(Settings(protocol="ring.py").to_json())
    assert "--own-share" in run("--resume", "run", "--help")
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert "--own-share" in run("--resume", "../run", "--help"), "the file is found from any folder"
    monkeypatch.chdir("..")
    Path("scenario.toml").write_text('[settings]\nprotocol = "ring.py"\nown_share = 0.25\npeers = 2\n')
    scenario = read_scenario(Path("scenario.toml"), {"period": None}).scenario
    assert scenario.settings.own.values()["own_share"] == 0.25
    again = Path("again.toml")
    again.write_text(scenario_text(scenario))
    assert read_scenario(again).scenario == scenario
    assert "protocol" not in scenario_text(Scenario.plain(Settings(device="cpu"))), "a default is not written"


def test_a_setting_of_another_conversation_is_refused_and_its_own_is_named(ring: Path) -> None:
    foreign = "is a setting of --protocol allreduce, not of ring.py"
    both = "--protocol allreduce and gossip"
    shared = f"is a setting of {both}, not of ring.py"
    assert refused(None, protocol="ring.py", period="8") == f"period {shared}"
    Path("settings.toml").write_text('period-block-s = 3\nprotocol = "ring.py"\n')
    assert refused(Path("settings.toml")) == f"settings.toml, line 1: period_block_s {shared}"
    with pytest.raises(SettingsError, match=f"^mixing {foreign}$"):
        Settings(protocol="ring.py", mixing=0.5)
    told = " ".join(run("--protocol", "ring.py", "--no-overlap", command=train).split())
    assert f"--no-overlap {foreign}; see train --protocol allreduce --help" in told
    served = f"period is a setting of {both}, not of parameter_server; with --algorithm downpour:N a worker"
    assert refused(None, protocol="parameter_server", period="8").startswith(served)
    assert refused(None, protocol="ring.py", own_shar=0.1) == 'unknown key "own_shar"; did you mean "own_share"?'
    assert refused(None, own_share=0.1).startswith('unknown key "own_share"; did you mean')


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (None, "ring.py: cannot be read: no such file or directory"),
        ("\n\n1 / 0", "ring.py, line 3: cannot be imported: ZeroDivisionError: division by zero"),
        ("def", "ring.py: cannot be imported: SyntaxError: "),
        ("import gossipy", "ring.py, line 1: cannot be imported: ModuleNotFoundError: No module named 'gossipy'"),
        ("raise ValueError('a\\nb')", "ring.py, line 1: cannot be imported: ValueError: a b"),
        ("CONVERSATION = 3", "ring.py has no CONVERSATION = Registered(...), as in samovar.peers.conversations"),
        (RING.replace("settings=RingSettings", "settings=dict"), "ring.py: its settings are no dataclass derived from"),
        (RING.replace("own_share:", "seed:"), "ring.py: seed is a setting of every conversation"),
        (RING.replace("selfishness", "own"), "ring.py: own is a setting of every conversation"),
        (RING.replace("setting(0.5", "setting(7.0"), "ring.py: its settings have no valid defaults: own_share must be"),
        (RING.replace("    greeting", "    x: int = 1\n    greeting"), "ring.py: x is not declared by setting("),
    ],
)  # fmt: skip
def test_a_bad_file_of_a_conversation_is_told_in_one_line(ring: Path, source: str | None, why: str) -> None:
    ring.unlink() if source is None else ring.write_text(source)
    assert refused(None, protocol="ring.py").startswith(f"--protocol is refused: {why}")
    assert run("--protocol", "ring.py", "--help").startswith(f"Error: --protocol is refused: {why}")


@pytest.mark.parametrize("name", ["", "gossips", "ALLREDUCE", "allreduce.p", "#", "x" * 5000, "\n"])
def test_an_unknown_conversation_is_refused_with_the_known_ones(name: str) -> None:
    assert refused(None, protocol=name).startswith("--protocol is refused: there is none called '")
    assert "; known are allreduce, gossip, parameter_server, and a FILE.py" in refused(None, protocol=name)
    with pytest.raises(SettingsError, match=r"^protocol must be the name of a conversation, or FILE"):
        Settings(protocol=1)


# Each peer has a copy of its own.


def test_copies_of_a_conversation_are_the_same_by_hash_wherever_they_lie(ring: Path) -> None:
    of_run = Settings(protocol="ring.py", own_share=0.25).agreed_json()
    other = Path("elsewhere") / "ring.py"
    other.parent.mkdir()
    other.write_text(RING)
    joined = Settings(protocol=str(other), own_share=0.75, greeting="hello").with_agreed(of_run)
    assert joined.own.values() == {"own_share": 0.25, "greeting": "hello"}
    assert joined.protocol.file == str(other), "its own copy"
    assert joined.agreed_json() == of_run
    assert Settings.from_json(joined.to_json()) == joined


def test_the_line_by_which_others_join_names_the_file_of_which_they_need_a_copy(ring: Path) -> None:
    async def nobody(asked: dict[str, object]) -> dict[str, object]:
        return asked

    def line(protocol: str, *, in_python: bool) -> str:
        spoken = Settings(protocol=protocol).protocol
        ways_in = WaysIn(Path("task.py"), Path(), None, nobody, in_python=in_python, protocol=spoken.file)
        assert ways_in.met([{"address": "tcp://192.0.2.7:4000", "id": "a"}]) == ""
        return ways_in.lines[0]

    assert line("ring.py", in_python=False).endswith(" --insecure --peer-key a --protocol ring.py")
    assert line("ring.py", in_python=True).endswith(", insecure=True, protocol='ring.py')")
    assert "protocol" not in line("allreduce", in_python=False) + line("allreduce", in_python=True)


def test_another_conversation_than_the_runs_is_refused(ring: Path) -> None:
    of_run = Settings(protocol="ring.py").agreed_json()
    other = Path("elsewhere") / "ring.py"
    other.parent.mkdir()
    other.write_text(RING + "# in other words\n")
    with pytest.raises(
        SettingsError, match=r"^protocol 'ring.py' is another file than the run's: its SHA-256 is \w{12}"
    ):
        Settings(protocol=str(other)).with_agreed(of_run)
    with pytest.raises(SettingsError, match=r"^protocol must be the run's, 'allreduce', got 'ring.py'"):
        Settings(protocol=str(other)).with_agreed(Settings().agreed_json())


def test_a_stranger_has_no_file_imported_here(ring: Path) -> None:
    ring.write_text("raise SystemExit('imported')")
    for name in ("ring.py", "ring.py#", f"ring.py#{64 * 'a'}", str(ring.resolve())):
        with pytest.raises(SettingsError, match=r"^protocol must be the run's, .*: give your copy of that file with"):
            Settings().with_agreed({**Settings().agreed(), "protocol": name})
    for name in (None, 3, [], "gossips", "allreduce#", f"allreduce#{64 * 'a'}"):
        with pytest.raises(SettingsError, match=r"^protocol "):
            Settings().with_agreed({**Settings().agreed(), "protocol": name})


def test_a_file_that_has_changed_is_imported_anew_and_an_unchanged_one_is_not(ring: Path) -> None:
    first = Settings(protocol="ring.py")
    assert type(Settings(protocol="ring.py").own) is type(first.own)
    ring.write_text(RING.replace("setting(0.5", "setting(0.25"))
    assert Settings(protocol="ring.py").own.values()["own_share"] == 0.25
    assert Settings(protocol="ring.py").agreed() != first.agreed()
    assert first.changed(peers=2).own == first.own, "what was loaded is carried"


def test_a_conversation_of_an_installed_package_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some_rings.py").write_text(RING)
    told_of = tmp_path / "some_rings-1.0.dist-info"
    told_of.mkdir()
    (told_of / "METADATA").write_text("Metadata-Version: 2.1\nName: some_rings\nVersion: 1.0\n")
    (told_of / "entry_points.txt").write_text(
        textwrap.dedent("""
        [samovar.conversations]
        my-ring = some_rings:CONVERSATION
        bad_ring = some_rings:RING
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("my-ring", "my_ring"):
        settings = Settings(protocol=name, own_share=0.25)
        assert conversation(settings).settings is type(settings.own)
        assert settings.plain()["protocol"] == "my_ring"
    assert Settings().with_agreed(settings.agreed_json()).own == settings.own
    assert "--own-share" in run("--protocol", "my-ring", "--help")
    assert "some_rings:RING cannot be imported: AttributeError" in refused(None, protocol="bad-ring")
    assert "known are allreduce, gossip, parameter_server, my_ring, bad_ring, and a FILE.py" in refused(
        None, protocol="her_ring"
    )


# Parsed once.


def test_a_setting_is_parsed_once_and_carried_as_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = validators.parse_period
    monkeypatch.setattr(validators, "parse_period", lambda text: parsed.append(text) or parse(text))
    settings = Settings(period="8", site="a;b")
    parsed.clear()
    one = settings.of_peer(1).changed(peers=2, codec="int8").with_flags({"seed": 3})
    assert LocalSGDSettings.of(one).period.value is LocalSGDSettings.of(settings).period.value
    assert set(parsed) <= {"adaptive"}, "only the default is looked at besides"


def test_parsed_settings_carry_the_conversations_values_with_all_options() -> None:
    own = LocalSGDSettings.of(Settings(period_initial=4, period_block_s=1.5, codec="top-k:0.5", schedule="auto"))
    assert own.period.value == AdaComm(initial=4, block_s=1.5)
    assert own.codec.text == "top_k:0.5"
    assert own.codec.value is not None
    assert own.codec.value.name == "top_k"
    assert (own.schedule.value, LocalSGDSettings.of(Settings()).codec.value) == (None, None)
    gradients = LocalSGDSettings.of(Settings(average="gradients"))
    assert (gradients.period.text, gradients.period.value) == ("1", Fixed(1))


def test_another_conversations_settings_begin_from_their_defaults(ring: Path) -> None:
    settings = Settings(protocol="ring.py", own_share=0.25, peers=3)
    assert settings.changed(seed=1).own == settings.own
    back = settings.changed(protocol="allreduce", period="4")
    assert back == Settings(peers=3, period="4")
