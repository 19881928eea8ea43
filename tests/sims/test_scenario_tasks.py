"""The task that a scenario trains: its own, that of the call, that of the running script, or the toy task."""

import importlib.util
import sys
from pathlib import Path

import pytest
from live import ROOT

import samovar

STEADY = ROOT / "tests/support/tasks/steady.py"
SCENARIO = '[settings]\nsteps = 8\nperiod = "4"\n\n[[groups]]\npeers = 2\nlink = "10mbit,5ms"\n'


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("two.toml").write_text(SCENARIO)
    return Path("two.toml")


def run_as_main(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `file` be the running script."""
    spec = importlib.util.spec_from_file_location("__main__", file)
    assert spec is not None
    assert spec.loader is not None
    main = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(main)
    monkeypatch.setitem(sys.modules, "__main__", main)


def test_a_scenario_that_names_no_task_trains_the_running_scripts(
    scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = samovar.simulate(STEADY, scenario=scenario, quiet=True)
    toy = samovar.simulate(scenario=scenario, quiet=True)
    run_as_main(STEADY, monkeypatch)
    found = samovar.simulate(scenario=scenario, quiet=True)
    assert found.digest == given.digest != toy.digest


def test_a_scenarios_own_task_comes_before_the_running_scripts(scenario: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario.write_text(f'task = "{STEADY}"\n{SCENARIO}')
    given = samovar.simulate(scenario=scenario, quiet=True)
    run_as_main(ROOT / "examples/digits.py", monkeypatch)
    assert samovar.simulate(scenario=scenario, quiet=True).digest == given.digest


def test_a_toy_task_is_not_trained_without_a_word(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samovar.simulate(scenario=scenario)
    assert "two.toml names no task: a toy task is trained" in capsys.readouterr().err


def test_the_call_that_a_report_gives_names_no_main_module(scenario: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_as_main(STEADY, monkeypatch)
    result = samovar.simulate(sys.modules["__main__"], scenario=scenario, quiet=True)
    assert (result.folder / "command.txt").read_text() == "samovar.simulate(scenario='two.toml')\n"
