"""Runs from Python: a task in any form is trained as from a shell, and what comes back is what the run wrote."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import re
import shutil
import signal
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from live import STEADY, python
from notebook import DATA, IMPORTS, LOSS, TASK, Kernel
from nursery import execute
from torch import nn

import samovar
from samovar.peers.checkpoints import checkpoint
from samovar.peers.cli.output import Output
from samovar.peers.launch import spawn
from samovar.peers.records.columns import ROUNDS
from samovar.peers.records.elsewhere import Elsewhere
from samovar.peers.records.result import Lost
from samovar.peers.records.result import Result as Written
from samovar.peers.records.run import RESULT_FILE, read_run
from samovar.peers.task.tensors import tensors_of


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs are made in a folder of the test's, by processes from the nursery."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(spawn, "_execute", execute)
    return tmp_path


def trained(task: Any, **settings: Any) -> samovar.Result:
    return samovar.train(task, **{"peers": 2, "period": 2, "steps": 8, "quiet": True, "report": False, **settings})


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


@pytest.mark.parametrize("given", [{"period": -1}, {"protocol": "gossip", "codec": "int8"}, {"perods": 3}])
def test_a_simulation_is_refused_in_words_for_python_too(given: dict[str, Any]) -> None:
    with pytest.raises(samovar.SettingsError) as error:
        samovar.simulate("line.py", quiet=True, **given)
    assert not re.search(r"--\w|unknown key", str(error.value))


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


def test_a_metric_that_is_called_like_a_field_has_a_column_of_its_own(run: Any) -> None:
    first = run.exchanges[0]
    other = dataclasses.replace(run, exchanges=(dataclasses.replace(first, metrics={"loss": 7.0}),))
    result = samovar.Result.of(Written(loss=0.0, wall_s=1.0, exchanges=1, run="nowhere"))
    vars(result)["_run"] = other
    assert result.columns()["metrics.loss"] == [7.0]
    assert result.columns()["loss"] == [first.loss]


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
        ("import no_such_module", samovar.TaskError, {}, "cannot be imported"),
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


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C, once, when the second round is over."""
    put, due = Output.put, ["once"]

    def noted(self: Any, record: Any) -> None:
        put(self, record)
        if getattr(record, "version", 0) >= 2 and due:
            due.clear()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    monkeypatch.setattr(Output, "put", noted)


def test_ctrl_c_stops_the_peers_in_good_order_and_the_run_can_be_resumed(here: Path, interrupted: None) -> None:
    with pytest.raises(samovar.Stopped) as stopped:
        trained(STEADY, steps=100_000, run="run")
    assert stopped.value.code == 130
    assert "go on with: samovar.train(" in str(stopped.value)
    assert "resume='run')" in str(stopped.value)
    result = stopped.value.result
    assert result.exchanges >= 2
    assert result.lost == ()
    taken = int(checkpoint.numbers_of(here / "run/checkpoint/peer-0.safetensors")["steps"])
    resumed = samovar.train(STEADY, resume=result, steps=taken + 4, quiet=True)
    assert resumed.exchanges > result.exchanges
    told = [event.event for event in resumed.events if event.event in ("stopped", "resumed")]
    assert told == ["stopped"] * 2 + ["resumed"] * 2
    begun, *gone_on = (here / "run/command.txt").read_text().splitlines()
    assert "steps=100000" in begun
    assert gone_on == [f"samovar.train({str(STEADY)!r}, resume='run', steps={taken + 4})"]
    assert read_run(here / "run").resumed_by == tuple(gone_on)


async def in_a_notebook() -> None:
    samovar.simulate(STEADY, peers=2, steps=100_000, quiet=True)


def test_a_simulation_that_is_interrupted_says_so_beside_a_loop_too(here: Path, interrupted: None) -> None:
    loop = asyncio.new_event_loop()
    with pytest.raises(samovar.Stopped, match=r"as far as it came: samovar report runs/steady-001"):
        loop.run_until_complete(in_a_notebook())
    loop.close()


def test_a_simulation_that_is_interrupted_says_so(here: Path, interrupted: None) -> None:
    with pytest.raises(samovar.Stopped, match=r"as far as it came: samovar report runs/steady-001"):
        in_a_notebook().send(None)


def test_a_sweep_that_is_interrupted_says_so(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupts(*given: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("samovar.sims.api.swept", interrupts)
    with pytest.raises(samovar.Stopped) as stopped:
        samovar.sweep(2)
    assert (stopped.value.code, str(stopped.value)) == (130, "stopped")
    assert capsys.readouterr().err == "samovar: stopped\n"


class Tied(nn.Module):
    def __init__(self, *, tied: bool = True, width: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, width)
        self.norm = nn.BatchNorm1d(width)
        self.out = nn.Linear(width, 5, bias=False)
        self.frozen = nn.Parameter(torch.arange(3.0), requires_grad=False)
        if tied:
            self.out.weight = self.embed.weight


def saved(folder: Path, *models: nn.Module, **numbers: object) -> Path:
    """A run folder with the checkpoints of peers that have these models, of which the last came farthest. `numbers`:
    what else the checkpoints tell."""
    for index, model in enumerate(models):
        tensors = {f"model/{name}": tensor for name, tensor in tensors_of(model).items()}
        path = folder / f"checkpoint/peer-{index}.safetensors"
        checkpoint.save(path, checkpoint.Snapshot({**tensors, "losses": torch.zeros(2)}, {"steps": index, **numbers}))
    return folder


def test_the_tied_and_frozen_weights_of_a_run_are_loaded_too(here: Path) -> None:
    (here / "line.py").write_text(
        IMPORTS + DATA + LOSS + "def model():\n"
        "    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))\n"
        "    net[2].weight = net[0].weight\n    net[0].bias.requires_grad_(False)\n    return net\n"
    )  # fmt: skip
    result, loaded = trained("line.py"), []
    for peer in (None, 0, "1"):
        net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
        net[2].weight = net[0].weight
        assert samovar.load(net, result if peer is None else result.run, peer) is net
        loaded.append(net.state_dict())
    averaged = [name for name, tensor in loaded[0].items() if tensor.is_floating_point()]
    assert len(averaged) == 8
    for name in averaged:
        assert torch.equal(loaded[0][name], loaded[1][name])
        assert torch.equal(loaded[1][name], loaded[2][name])


def test_the_best_model_is_loaded_where_the_run_has_one(here: Path) -> None:
    last, best, mine = Tied(), Tied(), Tied()
    saved(here / "run", last)
    with pytest.raises(samovar.CheckpointError, match=r"^run: no best model is here: its task names no metric"):
        samovar.load(mine, "run", best=True)
    saved(here / "other", best)
    (here / "other/checkpoint/peer-0.safetensors").rename(here / "run/checkpoint/best.safetensors")
    assert torch.equal(samovar.load(mine, "run", best=True).embed.weight, best.embed.weight)
    assert torch.equal(samovar.load(mine, "run").embed.weight, last.embed.weight)
    for other in ({"peer": 0}, {"mean": True}):
        with pytest.raises(ValueError, match="leave out peer and mean"):
            samovar.load(mine, "run", best=True, **other)


def test_the_peer_that_came_farthest_is_loaded_unless_another_is_named(here: Path) -> None:
    first, last, mine = Tied(), Tied(), Tied()
    saved(here / "run", first, last)
    assert torch.equal(samovar.load(mine, "run").embed.weight, last.embed.weight)
    assert mine.out.weight is mine.embed.weight
    assert torch.equal(samovar.load(mine, "run", 0).embed.weight, first.embed.weight)


def test_the_mean_of_all_peers_models_is_loaded_where_each_has_its_own(here: Path) -> None:
    models, mine = [Tied(), Tied(), Tied()], Tied()
    models[2].norm.num_batches_tracked += 7
    saved(here / "run", *models)
    samovar.load(mine, "run", mean=True)
    assert torch.allclose(mine.embed.weight, torch.stack([one.embed.weight for one in models]).mean(0))
    assert mine.out.weight is mine.embed.weight
    assert int(mine.norm.num_batches_tracked) == 7, "a count is no mean"
    saved(here / "odd", Tied(), Tied(width=6))
    with pytest.raises(samovar.CheckpointError, match=r"its model is another than that of .*peer-1"):
        samovar.load(Tied(width=6), "odd", mean=True)


@pytest.mark.parametrize("by", ["folder", "result"])
def test_the_mean_of_all_peers_models_is_without_those_of_lost_peers_that_are_not_back(here: Path, by: str) -> None:
    models, mine = [Tied(), Tied(), Tied()], Tied()
    saved(here / "run", *models, own_model=True)
    lost = [Lost(peer="2", when=1.0, why="killed"), Lost(peer="1", when=1.0, why="killed", back=True)]

    def mean_of(*lost: Lost) -> torch.Tensor:
        result = samovar.Result(loss=1.0, wall_s=1.0, exchanges=3, run="run", lost=lost)
        (here / "run" / RESULT_FILE).write_text(result.to_json(), "utf-8")
        return samovar.load(mine, result if by == "result" else "run", mean=True).embed.weight.detach().clone()

    weights = [one.embed.weight.detach() for one in models]
    assert torch.allclose(mean_of(*lost), (weights[0] + weights[1]) / 2)
    samovar.load(mine, "run", 2, mean=True)
    assert torch.allclose(mine.embed.weight, (weights[0] + weights[1]) / 2), "its counters alone are those of peer 2"
    everybody = [Lost(peer=str(peer), when=1.0, why="killed") for peer in range(3)]
    assert torch.allclose(mean_of(*everybody), sum(weights) / 3)


def test_a_mean_without_models_that_are_on_other_machines_says_so_until_they_are_copied(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models, mine = [Tied(), Tied()], Tied()
    saved(here / "one", models[0], own_model=True)
    seen = Elsewhere(peer="1", exchanges=3, joined_s=0.0)
    ends: list[dict[str, Any]] = [{}, {"peer": "2"}, {"peer": "3", "role": "server"}, {"peer": "4", "gone": "left"}]
    others = [dataclasses.replace(seen, **end) for end in ends]
    result = samovar.Result(loss=1.0, wall_s=1.0, exchanges=3, run="one", elsewhere=tuple(others))
    samovar.load(mine, result, mean=True)
    told = "samovar: one: a mean without the models of 1, 2: copy their checkpoints from there to one/checkpoint\n"
    assert capsys.readouterr().err == told
    copied = saved(here / "two", *models, own_model=True) / "checkpoint/peer-1.safetensors"
    for name in "12":
        shutil.copy(copied, here / f"one/checkpoint/peer-{name}.safetensors")
    samovar.load(mine, result, mean=True)
    assert capsys.readouterr().err == ""
    weights = [one.embed.weight.detach() for one in models]
    assert torch.allclose(mine.embed.weight, (weights[0] + 2 * weights[1]) / 3)


def test_a_run_to_load_is_a_folder_or_a_result(here: Path) -> None:
    with pytest.raises(TypeError, match=r"^load\(\) takes a run folder or the result of a run, got 3$"):
        samovar.load(Tied(), 3)  # type: ignore[arg-type]


def test_of_peers_with_models_of_their_own_one_model_must_be_chosen(here: Path) -> None:
    models, mine = [Tied(), Tied()], Tied()
    saved(here / "run", *models, own_model=True)
    choices = "load the mean of all with mean=True, or that of one with peer=, of 0, 1"
    with pytest.raises(samovar.CheckpointError, match=f"^run: each peer of this run has a model of its own: {choices}"):
        samovar.load(mine, "run")
    with pytest.raises(samovar.CheckpointError, match="run: peer 2 left no weights here, but these did: 0, 1"):
        samovar.load(mine, "run", 2)
    assert torch.equal(samovar.load(mine, "run", 0).embed.weight, models[0].embed.weight)
    mean = torch.stack([one.embed.weight for one in models]).mean(0)
    assert torch.allclose(samovar.load(mine, "run", mean=True).embed.weight, mean)
    alone = saved(here / "alone", models[1], own_model=True)
    assert torch.equal(samovar.load(mine, alone).embed.weight, models[1].embed.weight), "as in a newcomer's folder"


def test_after_a_parameter_server_the_models_are_those_of_the_workers_alone(here: Path) -> None:
    (here / "line.py").write_text(TASK)
    result = trained("line.py", protocol="parameter_server", servers=1, period=None)
    assert (result.folder / "checkpoint/peer-2.safetensors").exists(), "that of the server"
    one, mean = (samovar.load(nn.Linear(2, 1), result, mean=mean).weight for mean in (False, True))
    assert torch.allclose(one, mean)
    which = "0, 1; without peer= the one that took the most steps is loaded"
    with pytest.raises(samovar.CheckpointError, match=rf"peer 2 left no weights here, but these did: {which}$"):
        samovar.load(nn.Linear(2, 1), result, 2)


def test_the_checkpoints_of_a_gossip_tell_that_each_model_is_a_peers_own(here: Path) -> None:
    (here / "line.py").write_text(TASK)
    for protocol, own in (("gossip", True), ("allreduce", False)):
        result = trained("line.py", protocol=protocol)
        assert checkpoint.load(result.folder / "checkpoint/peer-1.safetensors").numbers["own_model"] is own


def test_a_function_that_makes_the_model_is_not_taken_for_one(here: Path) -> None:
    with pytest.raises(TypeError, match=r"takes an nn\.Module, got <class .*Tied'>: call it"):
        samovar.load(Tied, saved(here / "run", Tied()))  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("model", "folder", "peer", "said"),
    [
        (
            Tied(tied=False),
            "run",
            None,
            "this is not the run's model: the run has no 'out.weight' (if it is tied",
        ),
        (Tied(width=6), "run", None, "the run's 'embed.weight' has the shape (5, 4), and this one (5, 6)"),
        (Tied().double(), "run", None, "is torch.float32, and this one torch.float64"),
        (nn.Embedding(5, 4), "run", None, "the run has no 'weight'"),
        (nn.Module(), "run", None, "this one has no '"),
        (Tied(), "nowhere", None, "nowhere: there is no such run folder"),
        (Tied(), "empty", None, "empty: no peer left its weights here; scripts and simulations leave none"),
        (
            Tied(),
            "served",
            None,
            "served: the checkpoints here are of servers, which hold parts of the model: give the",
        ),
        (Tied(), "run", 7, "peer 7 left no weights here, but these did: 0"),
        (Tied(), "damaged", None, "cannot load checkpoint damaged/checkpoint/peer-0.safetensors"),
    ],
)
def test_a_model_that_does_not_fit_is_left_as_it_was_and_the_difference_named(
    here: Path, model: nn.Module, folder: str, peer: int | None, said: str
) -> None:
    saved(here / "run", Tied())
    (here / "empty").mkdir()
    checkpoint.save(
        here / "served/checkpoint/peer-2.safetensors", checkpoint.Snapshot({"0": torch.zeros(4)}, {"version": 3})
    )
    file = saved(here / "damaged", Tied()) / "checkpoint/peer-0.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(samovar.CheckpointError, match=re.escape(said)) as error:
        samovar.load(model, folder, peer)
    assert "\n" not in str(error.value)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


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


def test_a_scenario_is_judged_and_its_file_speaks_for_itself(here: Path) -> None:
    (here / "two.toml").write_text(
        '[settings]\nsteps = 16\nperiod = "4"\n\n[[groups]]\npeers = 2\nlink = "10mbit,5ms"\n'
    )
    result = samovar.simulate(scenario="two.toml", quiet=True)
    assert (result.broken, len(result.peers)) == (None, 2)
    assert samovar.simulate(scenario="two.toml", quiet=True).digest == result.digest
    with pytest.raises(samovar.SettingsError, match="scenario says it in the file: leave out peers"):
        samovar.simulate(scenario="two.toml", peers=3)


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


def test_every_export_is_named_documented_and_told_by_dir() -> None:
    assert dir(samovar) == sorted(samovar.__all__)
    for name in samovar.__all__:
        exported = getattr(samovar, name)
        assert name == "__version__" or (exported.__doc__ and exported.__module__.startswith("samovar."))
