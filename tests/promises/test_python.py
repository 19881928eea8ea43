"""Samovar from Python, as its user has it: a script, a notebook, an editor."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from commands import examples
from live import ROOT
from nbclient import NotebookClient
from notebook import DATA, IMPORTS, LOSS
from nursery import Forked

import samovar

PAGE = (ROOT / "docs" / "python.md").read_text("utf-8")
LAYERS = ("__init__.py", "__main__.py", "py.typed", "aggregation", "protocols", "peers", "sims")


def script(folder: Path, name: str) -> tuple[int, str, str]:
    """How ``python NAME`` ended, in that folder."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = Forked([sys.executable, name], cwd=folder, env={**os.environ}, **pipes)
    out, err = process.communicate(timeout=200)
    return process.returncode, out, err


def test_the_script_of_the_page_trains_its_own_functions(tmp_path: Path) -> None:
    text, *_ = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "circle.py").write_text(text)
    code, out, err = script(tmp_path, "circle.py")
    assert code == 0, err
    last = out.strip().splitlines()[-1]
    found = re.fullmatch(r"accuracy (0\.\d+) after 40 rounds; runs/circle-001/report\.html", last)
    assert found, out
    assert float(found[1]) > 0.9
    assert json.loads((tmp_path / "runs/circle-001/result.json").read_text())["accuracy"] == pytest.approx(
        float(found[1]), abs=1e-4
    )


def test_the_python_lines_of_the_readme_train_and_load_a_model(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    (text,) = (
        block for block in re.findall(r"^```python\n(.*?)^```$", readme, re.M | re.S) if "samovar.train(" in block
    )
    examples(tmp_path, quick=True)
    (tmp_path / "use.py").write_text(f"{text}print(digits.evaluate(model), result.metrics)\n")
    code, out, err = script(tmp_path, "use.py")
    assert code == 0, err
    assert "report: runs/digits-001/report.html" in out
    found = re.fullmatch(r"(0\.\d+) \{'accuracy': (0\.\d+)\}", out.strip().splitlines()[-1])
    assert found, out
    assert found[1] == found[2]


def test_every_exception_of_the_page_is_exported_and_no_other_is(tmp_path: Path) -> None:
    told = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`[A-Z].*?`) \|", PAGE, re.MULTILINE))))
    exported = {name for name in samovar.__all__ if isinstance(one := getattr(samovar, name), type) and
                issubclass(one, BaseException)}  # fmt: skip
    assert told == exported


NET = """WIDTH = 2
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.line(x)

def model():
    return Net()
"""
CELLS = [
    IMPORTS + "import samovar",
    NET,
    DATA + LOSS,
    "result = samovar.train(peers=2, period=2, steps=8)\nresult",
    "result.plot('loss')",
    "simulated = samovar.simulate(peers=2, period=2, steps=8, quiet=True)\n"
    "print(simulated.exchanges, samovar.load(Net(), result).line.weight.shape)",
    "table = torch.ones(4, 2)\ndef data(part, parts):\n    return [table]\nsamovar.train(peers=2)",
]


@pytest.mark.soak
def test_a_notebook_trains_its_own_functions_and_shows_how_it_goes(tmp_path: Path) -> None:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    NotebookClient(book, timeout=200, resources={"metadata": {"path": tmp_path}}, allow_errors=True).execute()
    *_, training, plotted, printed, refused = (cell.outputs for cell in book.cells)
    assert [one.output_type for one in training if one.output_type != "stream"] == ["display_data", "execute_result"]
    shown, returned = (one.data for one in training if one.output_type != "stream")
    over = r"loss [\d.]+   4 rounds   2 peers on this machine   [\d.]+ s in all$"
    assert re.match(over, shown["text/plain"]), "progress is one output, updated in place; the result takes its place"
    assert returned["text/plain"].startswith("<samovar.Result: loss ")
    assert "2 peers on this machine" in returned["text/html"]
    assert "application/vnd.plotly.v1+json" in plotted[0].data
    assert printed[0].text == "4 torch.Size([1, 2])\n"
    assert refused[-1].ename == "TaskError"
    assert refused[-1].evalue.startswith(
        "table (a Tensor), used by data(), cannot be sent to the peers as source: make it"
    )
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["notebook-001", "notebook-002"]


def test_a_script_without_a_guard_is_refused_in_one_line_and_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "fit.py").write_text("import samovar\nsamovar.sweep(2)\n")
    code, _, err = script(tmp_path, "fit.py")
    assert code == 1
    told = "samovar: fit.py, line 2: each peer imports this file: put the call of samovar.sweep() under if __name__"
    assert err.startswith(told)
    assert err.count("\n") == 1


RIGHT = """
import samovar
from samovar import Result

result: Result = samovar.train("line.py", peers=3, period=16, run="runs/x", inner="kept", config=None)
seconds: float = result.records[0].compute_s
columns: dict[str, list[object]] = samovar.simulate(peers=3, step_time="1ms").columns()
run = samovar.join("tcp://x:1", invite="...", period=3, peers=2)
steps: list[int] = [record.step for record in run.history]
samovar.Settings(peers=3, period="auto")
held: bool = samovar.sweep(3, seed=1).held
"""
WRONG = {
    "samovar.train(perods=3)": 'No parameter named "perods"',
    "samovar.train(period=3.5)": 'cannot be assigned to parameter "period" of type "int | str"',
    'samovar.train(inner="keep")': "Literal['kept', 'averaged', 'reset']",
    'samovar.simulate(device="cpu")': 'No parameter named "device"',
    "samovar.join(steps=3)": 'No parameter named "steps"',
    "samovar.Settings(perods=3)": 'No parameter named "perods"',
    "samovar.trian()": '"trian" is not a known attribute of module "samovar"',
}


def test_an_editor_tells_right_calls_from_wrong_calls(tmp_path: Path) -> None:
    """By basedpyright, which editors ask, with the library seen as if it were installed."""
    (tmp_path / "library/samovar").mkdir(parents=True)
    for name in LAYERS:
        (tmp_path / "library/samovar" / name).symlink_to(ROOT / name)
    home = tmp_path / "user"
    home.mkdir()
    (home / "right.py").write_text(RIGHT)
    (home / "wrong.py").write_text("\n".join(["import samovar", *WRONG, ""]))
    config = {"extraPaths": ["../library"], "typeCheckingMode": "standard"}
    (home / "pyrightconfig.json").write_text(json.dumps(config))
    command = [str(Path(sys.executable).parent / "basedpyright"), "--outputjson", "--pythonpath", sys.executable]
    told = subprocess.run([*command, "-p", str(home)], capture_output=True, text=True, timeout=200)
    found = json.loads(told.stdout)["generalDiagnostics"]
    by_line = {one["range"]["start"]["line"]: one["message"] for one in found if one["file"].endswith("wrong.py")}
    assert [one["message"] for one in found if one["file"].endswith("right.py")] == []
    assert {*by_line} == {*range(1, len(WRONG) + 1)}
    for line, said in enumerate(WRONG.values(), 1):
        assert said in by_line[line]
