"""Arguments of a task after --, as scripts have them: part of the run's settings, and never taken from a stranger."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from pathlib import Path

import pytest
from live import ROOT, Live, samovar, verb

from samovar import join
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.fields import SettingsError
from samovar.peers.task.task import load_task
from samovar.sims.scenarios.file import read_scenario
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.scenarios.text import scenario_text

WIDE = ROOT / "tests/support/tasks/wide.py"
BESIDE = str(WIDE.parent)


def test_a_task_sees_its_arguments_where_a_script_does_and_the_command_keeps_its_own() -> None:
    before = list(sys.argv)
    for width in (2, 7):
        task = load_task(WIDE, f"--width {width}")
        assert sys.argv == before
        assert task.model.__globals__["options"].width == width


def test_a_simulated_task_has_its_arguments_while_its_functions_run(tmp_path: Path) -> None:
    told = {}
    for width in (3, 9):
        folder = tmp_path / f"wide {width}"
        usual = ("simulate", WIDE, "--steps", 20, "--peers", 2, "--run", folder, "--json")
        ended = verb(*usual, "--step-time", "measured", "--", "--width", width)
        assert ended.exit_code == 0, ended.output
        told[width] = json.loads(ended.stdout)["peers"][0]["bytes_sent"]
        kept = Settings.from_json((folder / "settings.json").read_text())
        assert kept.arguments == f"--width {width}"
        again = verb("simulate", "--scenario", folder / "scenario.toml", "--run", tmp_path / f"again {width}", "--json")
        assert json.loads(again.stdout)["peers"][0]["bytes_sent"] == told[width]
    assert told[9] > told[3]


@pytest.mark.parametrize("given", ["--name 'a b' -x", ["--name", "a b", "-x"], "--name   a\\ b -x"])
def test_arguments_are_one_text_in_settings_however_they_are_given(given: object) -> None:
    settings = Settings(arguments=given, device="cpu")
    assert settings.plain()["arguments"] == "--name 'a b' -x"
    assert Settings.from_json(settings.to_json()) == settings
    assert settings.agreed()["arguments"] == settings.arguments
    assert shlex.split(settings.arguments) == ["--name", "a b", "-x"]


def test_the_text_of_a_scenario_holds_the_arguments(tmp_path: Path) -> None:
    scenario, file = Scenario.plain(Settings(arguments="--name 'a b'", device="cpu")), tmp_path / "scenario.toml"
    file.write_text(scenario_text(scenario))
    assert read_scenario(file).scenario == scenario


@pytest.mark.parametrize("given", ["'", 3, ["a", 1], "x" * 5000, "a\0b"])
def test_arguments_that_are_no_command_line_are_refused(given: object) -> None:
    with pytest.raises(SettingsError, match=r"^arguments must be words as in a shell"):
        Settings(arguments=given)


@pytest.mark.parametrize(("own", "theirs"), [("", "--width 64"), ("--width 32", "--width 64"), ("--width 32", "")])
def test_a_newcomer_never_takes_arguments_of_the_run_and_one_line_tells_both(own: str, theirs: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Settings(arguments=own).with_agreed(Settings(arguments=theirs).agreed_json())
    assert str(refused.value) == f"arguments must be the run's, {theirs!r}, got {own!r}: give the same after --"
    assert Settings(arguments=own).with_agreed(Settings(arguments=own, seed=3).agreed_json()).seed == 3


@pytest.mark.parametrize("verb_", ["simulate", "train"])
@pytest.mark.parametrize("late", [False, True], ids=["while it is imported", "in a function"])
def test_an_error_of_usage_is_one_clear_line_before_anything_starts(tmp_path: Path, verb_: str, late: bool) -> None:
    source = "import sys\n" + WIDE.read_text().replace(
        "from union", f"sys.path.append({str(WIDE.parent)!r})\nfrom union"
    )
    source = (
        source.replace("options = parser.parse_args()", "options = parser.parse_known_args()[0]") if late else source
    )
    (tmp_path / "wide.py").write_text(source)
    ended = samovar(tmp_path, verb_, "wide.py", "--peers", 2, "--run", "run", "--quiet", "--", "--widht", 3)
    assert ended.code == 2
    assert "wide.py, line " in ended.complaint
    assert "unrecognized arguments: --widht 3" in ended.complaint
    assert not list((tmp_path / "run").glob("*.jsonl")) or not (tmp_path / "run/peer-0.jsonl").read_text()


def test_a_script_has_its_own_arguments_and_no_such_setting() -> None:
    with pytest.raises(SettingsError, match=r"^leave out arguments: a script has them in sys\.argv already$"):
        join(arguments="--width 3")


def test_the_join_line_and_a_resumed_run_carry_the_arguments_and_a_newcomer_gives_the_same(tmp_path: Path) -> None:
    usual = ("--peers", 1, "--steps", 10**9, "--period", 50, "--device", "cpu", "--listen", "tcp://127.0.0.1:0")
    run = Live(tmp_path, "train", WIDE, *usual, "--run", "run", "--", "--width", 3)
    line_of = run.folder / "join.txt"
    line = run.until(lambda: run.rounds() and line_of.exists() and line_of.read_text(), "a round").strip()
    assert line.endswith(" -- --width 3")
    here = ("--run", "there", "--device", "cpu", "--listen", "tcp://127.0.0.1:0")
    words = [str(word) for word in shlex.split(line)[1:] if word not in ("--", "--width", "3")]
    refused = Live(tmp_path, *words, *here, "--", "--width", 4, run="there").end()
    assert "arguments must be the run's, '--width 3', got '--width 4': give the same after --" in refused.complaint
    assert not (tmp_path / "there").exists()
    newcomer = Live(tmp_path, *words, *here, "--", "--width", 3, run="there")
    newcomer.until(newcomer.rounds, "a round of the newcomer")
    newcomer.signal(signal.SIGINT)
    newcomer.end()
    run.signal(signal.SIGINT)
    assert run.end().code == 130
    other = samovar(tmp_path, "train", WIDE, "--resume", "run", "--", "--width", 4)
    assert other.complaint.endswith("its task has the arguments '--width 3', and is resumed with them: leave out yours")
    step = max(row["step"] for row in run.records() if row["kind"] == "round")
    resumed = samovar(tmp_path, "train", WIDE, "--resume", "run", "--steps", step + 50, "--json")
    assert resumed.code == 0, resumed.err
