"""What a notebook or a class defines reaches the peers as source, whole or not at all."""

from __future__ import annotations

import re
import runpy
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from notebook import DATA, IMPORTS, LOSS, MODEL, TASK, Kernel

from samovar.peers.api.task_file import task_file
from samovar.peers.task.task import TaskError


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def collected(task: Any = None, asked: Sequence[str] = ()) -> str:
    with task_file(task, "samovar.train", lambda: asked) as file:
        assert file.text is not None
        return file.text


def names_of(text: str, folder: Path) -> dict[str, Any]:
    """The global names of a file with this text, imported in nobody's company."""
    (folder / "task.py").write_text(text)
    return runpy.run_path(str(folder / "task.py"))


def test_all_that_a_notebooks_functions_use_is_sent_and_nothing_else(kernel: Kernel, tmp_path: Path) -> None:
    kernel.run(IMPORTS + "from functools import cache\nfrom torch.utils.data import DataLoader as Loader\nimport math")
    kernel.run(
        "unused = object()\nSIZES = (4, 2)\nRATES = {'slow': 0.1, 'never': float('inf')}\nKIND = torch.float32\n"
    )
    kernel.run("@cache\ndef table(count):\n    return torch.ones(count, *SIZES[1:], dtype=KIND)\n")
    kernel.run("class Base(nn.Module):\n    pass\nclass Net(Base):\n    def __init__(self, width: 'Any'):\n"
               "        super().__init__()\n        self.line = nn.Linear(SIZES[1], width)\n\n"
               "    def forward(self, x):\n        return self.line(x)\n")  # fmt: skip
    kernel.run("def model(width=int(math.sqrt(1))): return Net(width)\nsquare = lambda x: x * x\n")
    kernel.run("def data(part: int, parts: int):\n    return Loader(table(SIZES[0]), batch_size=2)\n")
    kernel.run("def loss(model, batch):\n    return square(model(batch)).mean() * (RATES['never'] > 1)\n")
    text = collected()
    assert "unused" not in text
    sent = names_of(text, tmp_path)
    model = sent["model"]()
    assert [parameter.shape for parameter in model.parameters()] == [(1, 2), (1,)]
    (batch, _) = sent["data"](0, 1)
    assert batch.shape == (2, 2)
    assert sent["loss"](model, batch).shape == ()
    assert sent["RATES"] == {"slow": 0.1, "never": float("inf")}


def test_a_definition_that_the_settings_ask_for_is_sent_too(kernel: Kernel, tmp_path: Path) -> None:
    kernel.run(TASK + "RATE = 0.5\ndef signed(values, gradient): return values - RATE * gradient.sign()\n")
    assert "signed" not in collected()
    sent = names_of(collected(asked=("signed", "absent")), tmp_path)
    assert sent["signed"](1.0, sent["torch"].ones(1)).tolist() == [0.5]


def test_a_definition_that_was_run_again_is_sent_as_it_is_now(kernel: Kernel, tmp_path: Path) -> None:
    kernel.run(TASK + "def width():\n    return 2\n")
    kernel.run("def width():\n    return 3\n\ndef model():\n    return nn.Linear(width(), 1)\n")
    assert names_of(collected(), tmp_path)["model"]().in_features == 3


CLASS = IMPORTS + (
    "class Line:\n"
    "    width = 2\n"
    "    @staticmethod\n"
    "    def model():\n        return nn.Linear(2, 1)\n"
    "    {decorator}def data({first}part, parts):\n        return [torch.ones(4, 2)]\n"
    "    @staticmethod\n"
    "    def loss(model, batch):\n        return model(batch).mean()\n"
)


@pytest.mark.parametrize(
    ("decorator", "first"), [("@staticmethod\n    ", ""), ("", "self, "), ("@classmethod\n    ", "cls, ")]
)
def test_a_class_is_a_task_by_its_functions_however_they_are_bound(
    kernel: Kernel, tmp_path: Path, decorator: str, first: str
) -> None:
    kernel.run(CLASS.format(decorator=decorator, first=first))
    sent = names_of(collected(kernel.main.Line), tmp_path)
    assert sent["loss"](sent["model"](), sent["data"](0, 2)[0]).shape == ()
    assert sent["width"] == 2


def test_a_namespace_is_a_task_by_any_functions(kernel: Kernel, tmp_path: Path) -> None:
    kernel.run(TASK + "def other():\n    return nn.Linear(2, 3)\n")
    main = kernel.main
    sent = names_of(collected(types.SimpleNamespace(model=main.other, data=main.data, loss=main.loss)), tmp_path)
    assert sent["model"]().out_features == 3


def test_a_class_of_a_module_is_imported_from_there(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lines_of_mine.py").write_text(CLASS.format(decorator="@staticmethod\n    ", first=""))
    monkeypatch.syspath_prepend(tmp_path)
    kernel.run("from lines_of_mine import Line")
    text = collected(kernel.main.Line)
    assert "from lines_of_mine import Line" in text
    assert f"sys.path.append({str(tmp_path)!r})" in text  # peers start elsewhere


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("table = torch.ones(3)\ndef data(part, parts):\n    return [table]\n",
         "table (a Tensor), used by data(), cannot be sent to the peers as source: make it inside data()"),
        ("net = nn.Linear(2, 1)\ndef model():\n    return net\n", "net (a Linear), used by model(), cannot be sent"),
        ("def made():\n    scale = 3\n    def loss(model, batch):\n        return model(batch).mean() * scale\n"
         "    return loss\nloss = made()\n", "loss() is defined inside a function"),
        ("text = 'x' * 200_000\ndef model():\n    return text\n", "text, used by model(), is too long"),
        ("model = 3\n", "the task's collected source: model is not a function"),
        ("def data(part):\n    return []\n", "data() must take (part, parts), got data(part)"),
        ("loss = eval('lambda model, batch: 3')\n", "<lambda>() has no source that could be sent to the peers"),
        ("optimizer = torch.optim.SGD(model().parameters())\n",
         "a task may have optimizer, which is a SGD here: give one of the two another name"),
        ("del loss\n", "a task needs model(), data(), loss(); nothing here is called loss"),
    ],
)  # fmt: skip
def test_source_that_cannot_be_sent_is_named_in_one_line_before_anything_starts(
    kernel: Kernel, cell: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kernel.run(TASK)
    kernel.run(cell)
    with pytest.raises(TaskError, match=re.escape(said)) as error:
        collected()
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("task", [3, object(), [MODEL, DATA, LOSS]])
def test_an_object_that_is_no_task_is_refused(task: Any) -> None:
    with pytest.raises(
        TaskError, match=r"a task is a path, a module, or a class with model\(\), data\(\), loss\(\), got"
    ):
        collected(task)


def test_a_script_that_would_start_itself_again_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the file itself before anything starts, and by a peer that imports such a file."""
    script, said = (
        tmp_path / "fit.py",
        "line 10: each peer imports this file: put the call of samovar.train() under if __",
    )
    script.write_text("import samovar\n" + TASK + "samovar.train(peers=2, steps=2)\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TaskError, match=re.escape(f"fit.py, {said}")):
        runpy.run_path("fit.py", run_name="__main__")
    with pytest.raises(TaskError, match=re.escape(said)):
        runpy.run_path("fit.py", run_name="samovar_task_fit")
    assert [file.name for file in tmp_path.iterdir()] == ["fit.py"]
