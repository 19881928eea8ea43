"""Evaluation: a kind of time of its own, tried before anything is trained, and without a trace on the training."""

from __future__ import annotations

import asyncio
import io
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from simulated import no_complaints, simulate  # noqa: F401
from synthetic import synthetic_records
from test_trainer import noisy_task
from tiers import one_in
from torch import nn

from samovar.peers.cli.final_table import final_table
from samovar.peers.cli.live_table import Board
from samovar.peers.cli.output import Output
from samovar.peers.errors import EvaluationFailed
from samovar.peers.launch.run_folder import conclude
from samovar.peers.records.metrics import Scale
from samovar.peers.records.record_file import RecordFile
from samovar.peers.records.records import EventRecord, ExchangeRecord, Record
from samovar.peers.records.run import RESULT_FILE, read_run
from samovar.peers.records.tally import Tally
from samovar.peers.report.write import page
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.evaluation import metrics_of
from samovar.peers.task.task import Task, TaskError, load_task
from samovar.peers.training.stop import Stop
from samovar.peers.training.task_replica import TaskReplica
from samovar.protocols.local_sgd.local_sgd import Contribution, LocalSGD, Outcome
from samovar.protocols.work import Evaluate, Update, Work
from samovar.sims.run import Play, play
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

EVALUATION_S = 5.0


def played(task: Task, **settings: Any) -> tuple[World, list[Record]]:
    records: list[Record] = []
    shape = {"device": "cpu", "link": "100mbit,5ms", "peers": 3, "period": "2", "steps": 12, "evaluate_every": 1}
    world = World(task, Scenario.plain(Settings(**{**shape, **settings})), records.append)
    run_virtual(world.run(), seed=0)
    return world, records


def in_train_mode(model: nn.Module) -> float:
    model.train()
    model(torch.randn(16, 4) * 100)
    return 0.5


def replaces_a_buffer(model: nn.Module) -> float:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean = torch.full((8,), 7.0)
            module.register_buffer("cache", torch.ones(2))
    return 0.5


def draws(model: nn.Module) -> float:
    return float(torch.rand(1))


# Without a trace


@pytest.mark.parametrize(
    ("overlap", "evaluate"), one_in(2, product([False, True], [in_train_mode, replaces_a_buffer, draws]))
)
def test_a_run_ends_with_the_same_bits_with_and_without_evaluations(
    evaluate: Callable[[nn.Module], float], overlap: bool
) -> None:
    without, with_one = (
        played(replace(noisy_task(), evaluate=judge), overlap=overlap)[0] for judge in (None, evaluate)
    )
    for one, other in zip(without.lives, with_one.lives, strict=True):
        ours, theirs = one.trainer.model.state_dict(), other.trainer.model.state_dict()
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours), one.name
        assert torch.equal(one.peer.conversation.state.vector, other.peer.conversation.state.vector)


def test_an_evaluation_leaves_each_module_in_the_mode_it_was_in_also_when_it_fails() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8).eval(), nn.Linear(8, 1))
    modes, statistics = [module.training for module in model.modules()], model[1].running_mean

    def fails(model: nn.Module) -> float:
        in_train_mode(model)
        raise RuntimeError("no test set")

    with pytest.raises(EvaluationFailed, match="no test set"):
        metrics_of(model, replace(noisy_task(), evaluate=fails))
    assert [module.training for module in model.modules()] == modes
    assert model[1].running_mean is statistics
    assert torch.equal(statistics, torch.zeros(8))


def test_buffers_that_modules_share_are_shared_while_evaluated() -> None:
    shared = torch.zeros(1)
    model = nn.ModuleList([nn.Module(), nn.Module()])
    for module in model:
        module.register_buffer("seen", shared)

    def evaluate(model: nn.Module) -> float:
        model[0].seen.add_(1)  # type: ignore[index, union-attr, operator]
        return float(model[1].seen)  # type: ignore[index, arg-type]

    assert metrics_of(model, replace(noisy_task(), evaluate=evaluate)) == {"accuracy": 1.0}
    assert shared == 0.0


# Before anything is trained


@pytest.mark.parametrize("found", [torch.zeros(3), {"loss": "low"}, None, "good"])
def test_an_evaluation_that_is_no_number_is_refused_before_anything_is_trained(found: object) -> None:
    task = replace(noisy_task(), evaluate=lambda model: found)  # type: ignore[arg-type, return-value]
    records: list[Record] = []
    world = World(task, Scenario.plain(Settings(device="cpu", peers=3, steps=12)), records.append)
    with pytest.raises(
        EvaluationFailed, match=r"noisy\.py: evaluate\(\) returned .*; a number, or a dict of numbers by name, is due"
    ):
        run_virtual(world.run(), seed=0)
    assert records == []
    assert [life.trainer.steps for life in world.lives] == [0, 0, 0]


# A kind of time


@pytest.fixture
def slow_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    do = TaskReplica.do

    async def slowly(replica: TaskReplica, work: Work, stop: Stop) -> Update | None:
        if isinstance(work.job, Evaluate):
            await asyncio.sleep(EVALUATION_S)
        return await do(replica, work, stop)

    monkeypatch.setattr(TaskReplica, "do", slowly)


@pytest.mark.usefixtures("slow_evaluation")
def test_a_peer_tells_which_evaluating_peer_it_waited_for_and_how_long() -> None:
    judged = replace(noisy_task(), evaluate=lambda model: 0.5)
    _, records = played(judged, peers=2, steps=16, evaluate_every=3)
    rounds = [record for record in records if isinstance(record, ExchangeRecord)]
    spent = {record.version: record.evaluate_s for record in rounds if record.peer == "0" and record.evaluate_s}
    assert spent == pytest.approx({3: EVALUATION_S, 6: EVALUATION_S, 8: EVALUATION_S})
    waited = {record.version: record for record in rounds if record.evaluation_wait_s}
    assert list(waited) == [4, 7], "in the round after; nobody waits for what comes after the last"
    for record in waited.values():
        assert (record.peer, record.waited_for) == ("1", "0")
        assert record.evaluation_wait_s == pytest.approx(EVALUATION_S)
        assert record.evaluation_wait_s <= record.wait_s
    assert all(record.compute_s < EVALUATION_S for record in rounds), "it is no computing of the one that does it"


@pytest.mark.usefixtures("slow_evaluation")
@pytest.mark.parametrize("schedule", ["ring", "halving_doubling", "double_tree"])
def test_a_peer_tells_of_an_evaluation_that_delays_it_through_other_peers(schedule: str) -> None:
    judged = replace(noisy_task(), evaluate=lambda model: 0.5)
    _, records = played(judged, peers=5, schedule=schedule, evaluate_every=3)
    rounds = [record for record in records if isinstance(record, ExchangeRecord) and record.version == 4]
    waited = {record.peer: (record.waited_for, record.evaluation_wait_s) for record in rounds if record.peer != "0"}
    assert waited == {peer: ("0", pytest.approx(EVALUATION_S, rel=0.02)) for peer in "1234"}
    others = [record for record in records if isinstance(record, ExchangeRecord) and record.version not in (4,)]
    assert {record.evaluation_wait_s for record in others} == {0.0}


@pytest.mark.usefixtures("slow_evaluation")
@pytest.mark.parametrize("slow", one_in(3, [1, 2, 3, 4]))
def test_a_wait_far_longer_than_the_evaluation_is_not_put_down_to_it(
    slow: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In round 4 one peer is slower than the one that evaluates."""
    average = LocalSGD.average

    async def late(sgd: LocalSGD, contribution: Contribution) -> Outcome:
        if sgd.membership.me.name == str(slow) and sgd.state.round == 3:
            await asyncio.sleep(4 * EVALUATION_S)
        return await average(sgd, contribution)

    monkeypatch.setattr(LocalSGD, "average", late)
    _, records = played(replace(noisy_task(), evaluate=lambda model: 0.5), peers=5, schedule="ring", evaluate_every=3)
    rounds = [record for record in records if isinstance(record, ExchangeRecord) and record.version == 4]
    assert {record.waited_for for record in rounds} <= {"", str(slow)}
    assert {record.evaluation_wait_s for record in rounds} == {0.0}


@pytest.mark.usefixtures("slow_evaluation")
def test_a_usual_evaluation_is_no_event() -> None:
    _, records = played(replace(noisy_task(), evaluate=lambda model: 0.5), peers=2)
    assert {record.event for record in records if isinstance(record, EventRecord)} <= {"started", "checkpoint"}


@pytest.mark.usefixtures("slow_evaluation")
def test_a_stall_by_a_long_evaluation_is_told_as_an_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.EVALUATION_S", 100.0)
    _, records = played(replace(noisy_task(), evaluate=lambda model: 0.5), peers=3, steps=4, evaluate_every=1)
    stalled = [record for record in records if isinstance(record, EventRecord) and record.event == "stalled"]
    assert {record.peer for record in stalled} == set("012")
    assert {(record.subject, record.work) for record in stalled} == {("0", "evaluation")}
    found = Board(steps=4)
    found.update(stalled[0])
    assert "waiting for 0, which evaluates" in found.headline(1)


# Of which round


def test_a_result_says_of_which_round_its_accuracy_is(tmp_path: Path) -> None:
    told = [record for record in synthetic_records()["alice"] if isinstance(record, ExchangeRecord)][:2]
    with RecordFile(tmp_path, "alice") as file:
        file.append(replace(told[0], metrics={"accuracy": 0.5}))
        file.append(replace(told[1], metrics={}))
    earlier, final = (
        conclude(tmp_path, Tally(), wall_s=1.0, measured=told) for told in ([], [("0", {"accuracy": 0.75})])
    )
    assert (earlier.metrics, earlier.metrics_at, earlier.exchanges) == ({"accuracy": 0.5}, 1, 2)
    assert (final.metrics, final.metrics_at) == ({"accuracy": 0.75}, 2)
    for result, said in ((earlier, "accuracy 50.00% after round 1 "), (final, "accuracy 75.00%  ")):
        console = Console(width=200)
        with console.capture() as shown:
            console.print(final_table(result))
        assert said in shown.get()
    (tmp_path / RESULT_FILE).write_text(earlier.to_json())
    assert "after round 1<" in page(read_run(tmp_path), "")


@pytest.mark.parametrize(
    ("declared", "returned", "shown"),
    [
        (None, 0.5, {"accuracy": (0.5, "50.00%")}),
        ({"perplexity": "lower"}, 12.25, {"perplexity": (12.25, "12.25")}),
        ({"took": "lower ms"}, torch.tensor(3.0), {"took": (3.0, "3.000 ms")}),
        ({"recall": "higher %"}, np.float32(0.25), {"recall": (0.25, "25.00%")}),
        (None, {"bleu": 31.5, "loss": 2}, {"bleu": (31.5, "31.50"), "loss": (2, "2")}),
        (
            {"perplexity": "lower", "accuracy": "higher %"},
            {"accuracy": 0.125, "perplexity": 8.0},
            {"perplexity": (8.0, "8.000"), "accuracy": (0.125, "12.50%")},
        ),
    ],
)
def test_a_metric_has_its_own_name_and_scale_everywhere(
    tmp_path: Path, declared: dict[str, str] | None, returned: object, shown: dict[str, tuple[float, str]]
) -> None:
    """In records, in the order in which the task declares them, in result.json, in the last line and in the report."""
    task = replace(noisy_task(), evaluate=lambda model: returned, metrics=declared)
    settings = Settings(device="cpu", peers=2, steps=8, period="4", evaluate_every=1)
    wished = Play(task=task, scenario=Scenario.plain(settings), folder=tmp_path)
    output = Output(steps=8, columns=wished.columns, as_json=False, quiet=True)
    result, _ = play(wished, output)
    output.end(result)
    run = read_run(tmp_path)
    evaluated = [record for record in run.exchanges if record.metrics]
    assert evaluated
    for told in (*evaluated, result, run.result):
        assert told is not None
        assert list(told.metrics.items()) == [(name, value) for name, (value, _) in shown.items()]
    page = (tmp_path / "report.html").read_text("utf-8")
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(final_table(result))
    last_line = console.export_text()
    for name, (_, text) in shown.items():
        label = "evaluated loss" if name == "loss" else name
        assert f"{label} {text}" in last_line
        assert f">{text}<" in page


@pytest.mark.parametrize(
    ("declared", "returned", "line"),
    [
        (
            {"perplexity": "lower", "bleu": "higher"},
            1.0,
            "returned one number, and the declared metrics are perplexity, bleu",
        ),
        ({"perplexity": "lower"}, {"accuracy": 1.0}, "returned accuracy; the declared metrics are perplexity"),
        (
            {"perplexity": "lower"},
            {"perplexity": 1.0, "more": 2.0},
            "returned perplexity, more; the declared metrics are perplexity",
        ),
        (None, {}, "returned nothing; a number, or a dict of numbers by name, is due"),
        (None, {3: 1.0}, "returned 3; a number, or a dict of numbers by name, is due"),
    ],
)
def test_metrics_other_than_the_declared_are_told(declared: dict[str, str] | None, returned: object, line: str) -> None:
    task = replace(noisy_task(), evaluate=lambda model: returned, metrics=declared)
    with pytest.raises(EvaluationFailed) as told:
        metrics_of(task.model(), task)
    assert f"noisy.py: evaluate() {line}" in str(told.value)


@pytest.mark.parametrize(
    "declared",
    [{}, [], {"a": "up"}, {"a": "best"}, {"a": "higher of 20"}, {"a": 1}, {"": "lower"}, {1: "lower"}],
)
def test_metrics_that_are_declared_in_another_form_are_told(tmp_path: Path, declared: object) -> None:
    file = tmp_path / "task.py"
    file.write_text(
        f"METRICS = {declared!r}\ndef model(): ...\ndef data(part, parts): ...\ndef loss(model, batch): ..."
    )
    with pytest.raises(
        TaskError,
        match=r"METRICS must be a dict of scales by name, .*, each lower or higher and perhaps a unit, one word, got",
    ):
        load_task(file)


def test_a_scale_tells_which_value_is_better() -> None:
    lower, higher, unknown = Scale("lower"), Scale("higher", "%"), Scale()
    assert lower.improves(1.0, 2.0)
    assert not lower.improves(2.0, 2.0)
    assert higher.improves(3.0, 2.0)
    assert not higher.improves(2.0, 2.0)
    for scale in (lower, higher):
        assert scale.improves(5.0, None)
        assert scale.improves(5.0, math.nan)
        assert not scale.improves(math.nan, None)
    assert not unknown.improves(3.0, None)
