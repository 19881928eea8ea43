"""Definitions that settings ask a task file for: peers must have the same, with all that they use of their file."""

from pathlib import Path

import pytest
import torch
from live import verb

from samovar.aggregation.vector import Layout
from samovar.peers.task.definitions import check_defined, misspelt
from samovar.peers.task.facts import Facts
from samovar.peers.task.task import NAMES, TaskError, load_task

ASKED = {"signed": "--server-update signed is none of add"}
TASK = """
import torch
from torch import nn

RATE, OTHER = 0.01, 1


def model():
    return nn.Linear(2, 1)


def data(part, parts):
    return [(torch.ones(4, 2), torch.ones(4, 1))] * 8


def loss(model, batch):
    return nn.functional.mse_loss(model(batch[0]), batch[1])


def rate():
    return RATE


def signed(values, gradient):
    return values - rate() * gradient.sign()
"""


def task(folder: Path, was: str = "", now: str = "") -> Path:
    assert was in TASK
    file = folder / "task.py"
    file.write_text(TASK.replace(was, now) if was else TASK)
    return file


def agreement(file: Path) -> str:
    layout = Layout.of({"weight": torch.zeros(2)})
    facts = Facts(layout=layout, vector=torch.zeros(2)).on(load_task(file, "", ASKED).defined)
    assert facts.agreement is not None
    return facts.agreement.digest


@pytest.mark.parametrize(
    ("was", "now", "same"),
    [
        ("", "", True),
        ("[(torch.ones(4, 2), torch.ones(4, 1))] * 8", "[]", True),
        ("gradient.sign()", "gradient", False),
        ("return RATE", "return 2 * RATE", False),
        ("RATE, OTHER = 0.01, 1", "RATE, OTHER = 0.02, 1", False),
        ("def signed", "@torch.no_grad()\ndef signed", False),
    ],
)
def test_peers_agree_on_a_definition_and_on_all_that_it_uses(tmp_path: Path, was: str, now: str, same: bool) -> None:
    first = agreement(task(tmp_path))
    assert (agreement(task(tmp_path, was, now)) == first) is same


def test_a_name_that_the_file_lacks_is_told_before_and_after_its_import(tmp_path: Path) -> None:
    file = task(tmp_path, "def signed", "def unsigned")
    for look in (lambda: check_defined(file, ASKED), lambda: load_task(file, "", ASKED)):
        with pytest.raises(TaskError, match=r"task\.py: .* is none of add, and this file defines no"):
            look()
    file.write_text(file.read_text() + "\nfrom other import *\n")
    check_defined(file, ASKED)


def test_a_server_function_of_the_task_trains_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = ("--peers", 2, "--steps", 8, "--protocol", "parameter-server", "--no-report", "--json")
    ended = verb("simulate", task(tmp_path), *own, "--server-update", "signed")
    assert ended.exit_code == 0, ended.stderr
    ended = verb("train", task(tmp_path), *own, "--server-update", "unsigned")
    assert ended.exit_code == 2
    assert "--server-update unsigned is none of add, sgd" in ended.stderr
    assert not (tmp_path / "runs/task-002").exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("def evalute(model): pass", {"evalute": "evaluate"}),
        ("def sample(batch): pass", {"sample": "samples"}),
        ("def evalute(model): pass\ndef evaluate(model): return evalute(model)", {}),
        ("def evalute(model): pass\nprint(evalute)", {}),
        ("@torch.no_grad()\ndef evalute(model): pass", {}),
        ("def helper(): pass", {}),
    ],
)
def test_a_misspelt_optional_function_is_found(tmp_path: Path, more: str, told: dict[str, str]) -> None:
    (tmp_path / "task.py").write_text(TASK + more)
    assert misspelt(tmp_path / "task.py", NAMES) == told
