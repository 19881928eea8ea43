"""Errors of a call from Python: one line in the words of Python, and nothing is left behind."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from from_python import folder_of_runs, trained  # noqa: F401
from live import python
from notebook import TASK
from tiers import soaked

import samovar


@pytest.mark.parametrize("given", [{"period": -1}, {"protocol": "gossip", "codec": "int8"}, {"perods": 3}])
def test_a_simulation_is_refused_in_words_for_python_too(given: dict[str, Any]) -> None:
    with pytest.raises(samovar.SettingsError) as error:
        samovar.simulate("line.py", quiet=True, **given)
    assert not re.search(r"--\w|unknown key", str(error.value))


@pytest.mark.parametrize("call", [samovar.train, samovar.simulate])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--width 64", r"such as \['--width', '64'\], got '--width 64'"),
        (64, "such as .*, got 64"),
        (b"-w", "got a bytes"),
    ],
)
def test_arguments_that_are_no_list_of_words_are_refused_before_anything_starts(
    here: Path, call: Callable[..., samovar.Result], given: object, said: str
) -> None:
    """A text is a sequence too: the task would find each letter of it as a word."""
    (here / "line.py").write_text(TASK)
    with pytest.raises(samovar.SettingsError, match=f"^arguments must be a list of the words, .*{said}$"):
        call("line.py", arguments=given, quiet=True)
    assert not (here / "runs").exists()


def test_within_a_peer_nothing_is_started(here: Path) -> None:
    """A script that would train itself would do so without end."""
    (here / "loop.py").write_text("import samovar\nsamovar.train('loop.py')\nrun = samovar.join()\n")
    with pytest.raises(samovar.RunFailed, match=r"samovar\.train\(\) is called in a script that is itself a peer"):
        samovar.train("loop.py", peers=2, quiet=True)


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"perods": 3}, samovar.SettingsError, 'no such argument "perods"; did you mean "period"?'),
        ({"steps": 0}, samovar.SettingsError, "steps must be a whole number from 1 to"),
        (
            {"overlap": True},
            samovar.SettingsError,
            "must be a number of local steps with overlap, got adaptive; as in period=16",
        ),
        ({"config": "nowhere.toml"}, samovar.SettingsError, "nowhere.toml"),
        ({"average": "gradients"}, samovar.TaskError, "line.py: a task's peers average its model"),
        ({"device": "cuda:99"}, samovar.TaskError, "device cuda:99: this machine has no such device"),
        ({"resume": "nowhere"}, samovar.CheckpointError, "nowhere: nothing to resume, there is no such folder"),
        ({"resume": "taken", "run": "other"}, samovar.CheckpointError, "as it was set: leave out run"),
        ({"run": "taken"}, ValueError, "choose another run, or go on with resume taken"),
        ({"task": "nowhere.py"}, samovar.TaskError, "nowhere.py: no such file"),
        ({"task": "broken.py"}, samovar.TaskError, "broken.py, line 1: not Python"),
    ],
)
def test_bad_input_is_told_in_one_line_that_names_arguments_and_leaves_nothing(
    here: Path, given: dict[str, Any], kind: type[Exception], said: str
) -> None:
    (here / "line.py").write_text(TASK)
    (here / "broken.py").write_text("def model(:\n")
    (here / "taken").mkdir()
    (here / "taken/peer-0.jsonl").write_text("{}\n")
    before = sorted(here.iterdir())
    with pytest.raises(kind, match=re.escape(said)) as error:
        samovar.train(**{"task": "line.py", "quiet": True, **given})
    assert "--" not in str(error.value).replace("--width", "")
    assert "\n" not in str(error.value)
    assert sorted(here.iterdir()) == before


def test_a_script_without_functions_is_told_to_name_its_task(here: Path) -> None:
    (here / "alone.py").write_text("import samovar\nif __name__ == '__main__':\n    samovar.train(steps=4)\n")
    ended = python("alone.py")
    said = " ".join(ended.stderr.split())
    assert (ended.returncode, "it has no model(), data(" in said, "samovar.train('task.py')" in said) == (1, True, True)


def test_a_result_that_a_script_cannot_read_is_told_without_a_traceback(here: Path) -> None:
    (here / "back.py").write_text("import samovar\nsamovar.Result.read('nowhere')\n")
    ended = python("back.py")
    assert ended.stderr == "samovar: back.py, line 2: nowhere: there is no such run folder\n"


@pytest.mark.parametrize(
    ("lines", "kind", "settings", "said"),
    [
        (
            "METRICS = dict(loss='higher of 20'[:12])",
            samovar.TaskError,
            {},
            r"METRICS must be a dict of scales by name",
        ),
        soaked("import no_such_module", samovar.TaskError, {}, "cannot be imported"),  # a TaskError as the one above
        (
            "def evaluate(model):\n    return {'bleu': 1.0}\n",
            samovar.SettingsError,
            {"stop_patience": 3},
            r"stop_patience needs the metric '.*'; evaluate\(\) returns bleu",
        ),
    ],
)
def test_a_task_that_only_its_peers_find_wrong_is_refused_before_anything_starts(
    here: Path, lines: str, kind: type[Exception], settings: dict[str, Any], said: str
) -> None:
    (here / "line.py").write_text(f"{TASK}\n{lines}\n")
    with pytest.raises(kind, match=rf"^peer \d: .*{said}") as told:
        trained("line.py", **settings)
    assert "--" not in str(told.value)
    assert not [*(here / "runs").iterdir()], "it leaves nothing"
    with pytest.raises(kind):
        trained("line.py", run="kept", **settings)
    assert (here / "kept/failure.txt").read_text().startswith("peer ")


def test_a_failed_peer_is_told_in_one_line_with_its_place(here: Path) -> None:
    (here / "line.py").write_text(TASK.replace("return model(batch)", "return 1 / 0 * model(batch)"))
    with pytest.raises(
        samovar.RunFailed, match=r"peer \d: line\.py, line 8: ZeroDivisionError: division by zero"
    ) as error:
        trained("line.py")
    assert "\n" not in str(error.value)


def test_a_run_that_cannot_be_read_is_told_by_the_exception_of_the_page(here: Path) -> None:
    (here / "begun").mkdir()
    (here / "begun/peer-0.jsonl").write_text("")
    (here / "damaged").mkdir()
    (here / "damaged/result.json").write_text("{")
    for folder, said in (
        ("nowhere", "nowhere: there is no such run folder"),
        ("begun", "begun: this run has no result: it goes on, or was killed"),
        ("damaged", "damaged/result.json: "),
    ):
        with pytest.raises(samovar.CheckpointError, match=f"^{said}"):
            samovar.Result.read(folder)
    (here / "line.py").write_text(TASK)
    result = trained("line.py", run="run")
    (here / "run").rename(here / "elsewhere")
    with pytest.raises(samovar.CheckpointError, match="run: there is no such run folder"):
        result.columns()


def test_a_bad_sweep_is_refused_before_it_starts_and_a_good_one_tells_its_findings() -> None:
    for given, said in (
        ({"count": 0}, "count must be a whole number from 1 to 1000000, got 0"),
        ({"count": "two"}, "count must be .*, got 'two'"),
        ({"count": 1, "seed": -1}, "seed must be"),
    ):
        with pytest.raises(samovar.SettingsError, match=said):
            samovar.sweep(**given)  # type: ignore[arg-type]
    outcome = samovar.Sweep(first_seed=3, seeds=2, seconds=1.0, failures=(), never_met=(), reached={})
    assert outcome.held
    assert repr(outcome) == "<samovar.Sweep: 2 seeds, every promise held; 1.00 s>"
