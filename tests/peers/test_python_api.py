"""Runs from Python: a task in any form is trained as from a shell, and what comes back is what the run wrote."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from from_python import folder_of_runs, trained  # noqa: F401
from notebook import IMPORTS, TASK, Kernel

import samovar
from samovar.peers.records.columns import ROUNDS
from samovar.peers.records.result import Result as Written


def test_a_task_file_is_trained_and_its_result_is_result_json(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (here / "line.py").write_text(TASK)
    result = trained("line.py", run=here / "run", report=True)
    assert capfd.readouterr() == ("", "")
    assert (result.exchanges, len(result.peers), result.lost) == (4, 2, ())
    assert json.loads((here / "run/result.json").read_text()) == json.loads(result.to_json())
    assert samovar.Result.read(here / "run") == result
    assert result.folder == here / "run"
    assert result.report is not None
    assert Path(result.report).exists()
    assert (here / "run/command.txt").read_text() == (
        "samovar.train('line.py', peers=2, period=2, steps=8, report=True)\n"
    )


def test_a_module_a_namespace_and_a_notebook_are_trained_like_the_file(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "line_of_mine.py").write_text(TASK)
    monkeypatch.syspath_prepend(here)
    by_file = trained("line_of_mine.py").loss
    import line_of_mine  # type: ignore[import-not-found]

    assert trained(line_of_mine).loss == by_file
    kernel = Kernel(monkeypatch)
    kernel.run(TASK)
    result = trained(None)
    assert result.loss == by_file
    assert result.folder.name == "notebook-001"
    names = types.SimpleNamespace(model=kernel.main.model, data=kernel.main.data, loss=kernel.main.loss)
    assert trained(names).loss == by_file
    assert samovar.simulate(peers=2, period=2, steps=8, quiet=True).loss == pytest.approx(by_file)
    assert "samovar join" in (result.folder / "join.txt").read_text()
    assert "notebook-001/task.py" in (result.folder / "join.txt").read_text()


def test_a_notebooks_server_function_is_sent_again_when_its_run_is_resumed(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Kernel(monkeypatch).run(TASK + "def signed(values, gradient): return values - 0.01 * gradient.sign()\n")
    own = {"protocol": "parameter_server", "servers": 1, "server_update": "signed"}
    samovar.train(peers=1, steps=4, run="run", report=False, quiet=True, **own)
    assert samovar.train(resume="run", steps=8, quiet=True).peers[0].steps == 8


async def test_a_run_needs_no_thread_without_an_event_loop_and_disturbs_none(here: Path) -> None:
    (here / "line.py").write_text(TASK)
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            ticks.append(1.0)
            await asyncio.sleep(0)

    other = asyncio.create_task(tick())
    await asyncio.sleep(0)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert trained("line.py").exchanges == 4
    simulated = samovar.simulate("line.py", peers=2, period=2, steps=8, quiet=True)
    assert simulated.exchanges == 4
    assert torch.equal(torch.get_rng_state(), before)
    assert [one.name for one in threading.enumerate() if one.name.startswith("samovar")] == []
    await asyncio.sleep(0)
    other.cancel()
    assert len(ticks) == 2


def test_records_are_there_as_a_list_and_as_columns(here: Path) -> None:
    (here / "line.py").write_text(TASK + "def evaluate(model):\n    return 0.5\n")
    result = trained("line.py", evaluate_every=2)
    columns = result.columns()
    assert len({len(column) for column in columns.values()}) == 1
    assert [record.version for record in result.records] == columns["version"]
    assert {one.event for one in result.events} >= {"started"}
    assert set(ROUNDS) <= set(columns)
    assert {type(value) for name in ROUNDS for value in columns[name]} == {int}
    evaluated = [value for value in columns["accuracy"] if not math.isnan(value)]
    assert evaluated
    assert set(evaluated) == {0.5}
    told = repr(result)
    assert told.startswith("<samovar.Result: accuracy 50.00%, loss ")
    assert told.endswith(f"4 rounds, 2 peers on this machine, {told.split(', ')[-1]}")
    assert f"in {result.folder}>" in told
    assert "2 peers on this machine" in result._repr_html_()
    figure = result.plot()
    assert {axis for axis in figure.to_dict()["layout"] if axis.startswith("yaxis")} == {
        "yaxis", "yaxis2", "yaxis3", "yaxis4"
    }  # fmt: skip
    assert len(result.plot("loss").data) == 1
    with pytest.raises(ValueError, match="there is no curve 'los' of this run, only loss, accuracy, period, members"):
        result.plot("los")


def test_a_report_that_could_not_be_made_is_not_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "line.py").write_text(TASK)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    result = trained("line.py", report=True)
    assert result.report is None
    assert (result.folder / "result.json").read_text() == result.to_json() + "\n"
    with pytest.raises(ModuleNotFoundError, match=r"a plot needs plotly: pip install 'samovar\[report\]'"):
        result.plot()


def test_a_script_with_a_loop_of_its_own_is_trained_with_its_arguments(here: Path) -> None:
    loop = "import sys\nimport samovar\nrun = samovar.join()\nnet = nn.Linear(2, 1)\n"
    loop += "optimizer = run.wrap(torch.optim.SGD(net.parameters(), lr=0.1), net)\n"
    loop += "for _ in range(int(sys.argv[1])):\n    net(torch.ones(1, 2)).sum().backward()\n    optimizer.step()\n"
    (here / "loop.py").write_text(f"{IMPORTS}{loop}run.leave()\n")
    result = samovar.train("loop.py", arguments=["6"], peers=2, period=2, quiet=True, report=False)
    assert [peer.steps for peer in result.peers] == [6, 6]
    with pytest.raises(samovar.TaskError, match=r"^loop\.py is a training script: leave out steps: a script "):
        samovar.train("loop.py", steps=6)


def test_a_metric_that_is_called_like_a_field_has_a_column_of_its_own(run: Any) -> None:
    first = run.exchanges[0]
    other = dataclasses.replace(run, exchanges=(dataclasses.replace(first, metrics={"loss": 7.0}),))
    result = samovar.Result.of(Written(loss=0.0, wall_s=1.0, exchanges=1, run="nowhere"))
    vars(result)["_run"] = other
    assert result.columns()["metrics.loss"] == [7.0]
    assert result.columns()["loss"] == [first.loss]


def test_a_scenario_is_judged_and_its_file_speaks_for_itself(here: Path) -> None:
    (here / "two.toml").write_text(
        '[settings]\nsteps = 16\nperiod = "4"\n\n[[groups]]\npeers = 2\nlink = "10mbit,5ms"\n'
    )
    result = samovar.simulate(scenario="two.toml", quiet=True)
    assert (result.broken, len(result.peers)) == (None, 2)
    assert samovar.simulate(scenario="two.toml", quiet=True).digest == result.digest
    with pytest.raises(samovar.SettingsError, match="scenario says it in the file: leave out peers"):
        samovar.simulate(scenario="two.toml", peers=3)


def test_every_export_is_named_documented_and_told_by_dir() -> None:
    assert dir(samovar) == sorted(samovar.__all__)
    for name in samovar.__all__:
        exported = getattr(samovar, name)
        assert name == "__version__" or (exported.__doc__ and exported.__module__.startswith("samovar."))
