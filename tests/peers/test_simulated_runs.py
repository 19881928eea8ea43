"""Whole runs in simulation: the same Peer, Trainer and task file as on real machines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiers import soaked

from samovar.peers.records.records import EventRecord, ExchangeRecord, Record
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import TaskError, load_task
from samovar.peers.training.loop import Training
from samovar.sims.measure import measured_step_time
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import Simulated, World

TASKS = Path(__file__).parents[1] / "support" / "tasks"
DIGITS = Path(__file__).parents[2] / "examples" / "digits.py"


def simulate(task: Path, **settings: Any) -> tuple[Simulated, list[Record], World]:
    records: list[Record] = []
    scenario = Scenario.plain(Settings(**{"device": "cpu", "link": "100mbit,5ms", **settings}))
    world = World(load_task(task), scenario, records.append)
    return run_virtual(world.run(), seed=scenario.settings.seed), records, world


def single_process_on_the_union_batch(parts: int) -> torch.Tensor:
    task = load_task(TASKS / "union.py")
    from samovar.peers.training.trainer import Trainer

    start = Trainer(task, seed=0, data_shard=0, data_shards=parts, device=torch.device("cpu"))
    model, optimizer = start.model, start.optimizer
    batches = [list(task.data(part, parts)) for part in range(parts)]
    for step in range(50):
        inputs = torch.cat([batches[part][step][0] for part in range(parts)])
        targets = torch.cat([batches[part][step][1] for part in range(parts)])
        optimizer.zero_grad()
        task.loss(model, (inputs, targets)).backward()
        optimizer.step()
    return start.vector


@pytest.mark.parametrize("schedule", ["ring", "halving_doubling"])
def test_period_1_equals_single_process_sgd_on_the_union_batch(schedule: str) -> None:
    _, records, world = simulate(TASKS / "union.py", peers=4, period="1", steps=50, schedule=schedule)
    expected = single_process_on_the_union_batch(4)
    for peer in [life.peer for life in world.lives]:
        assert torch.allclose(peer.conversation.state.vector, expected, atol=1e-5, rtol=0)
    assert max(r.version for r in records if isinstance(r, ExchangeRecord)) == 50


@pytest.mark.parametrize("link", [soaked("64kbit,200ms"), "256kbit,100ms"])
def test_a_peer_on_a_slow_link_is_not_taken_for_lost(link: str) -> None:
    """A megabyte takes minutes there, the patience is 5 s, and heartbeats go behind what is under way."""
    ended, records, world = simulate(TASKS / "megabyte.py", peers=4, period="1", steps=2, link=link)
    assert all(life.result is not None and life.result.finished for life in world.lives)
    assert not [record for record in records if isinstance(record, EventRecord) and record.event == "lost"]
    rounds = [record for record in records if isinstance(record, ExchangeRecord)]
    assert all(record.members == 4 and record.transfer_s > 2 * record.wait_s for record in rounds)
    assert ended.virtual_s > 60


def test_a_longer_period_is_not_the_same_run() -> None:
    """The control of the test above: it can fail."""
    _, _, world = simulate(TASKS / "union.py", peers=4, period="10", steps=50)
    assert not torch.allclose(
        world.lives[0].peer.conversation.state.vector, single_process_on_the_union_batch(4), atol=1e-5, rtol=0
    )


def test_the_same_seed_gives_the_same_digest_and_another_seed_another() -> None:
    digests = [simulate(TASKS / "union.py", peers=3, period="5", steps=20, seed=seed)[0].digest for seed in (7, 7, 8)]
    assert digests[0] == digests[1] != digests[2]


def test_a_slower_link_takes_more_virtual_time_for_the_same_training() -> None:
    fast = simulate(TASKS / "union.py", peers=4, period="5", steps=20, link="1gbit,1ms")
    slow = simulate(TASKS / "union.py", peers=4, period="5", steps=20, link="1mbit,100ms")
    assert slow[0].virtual_s > 2 * fast[0].virtual_s
    assert torch.equal(fast[2].lives[0].peer.conversation.state.vector, slow[2].lives[0].peer.conversation.state.vector)


def test_evaluation_happens_once_a_round_and_at_the_end() -> None:
    simulated, records, _ = simulate(DIGITS, peers=3, period="20", steps=90, evaluate_every=2)
    evaluated = [r.version for r in records if isinstance(r, ExchangeRecord) and r.metrics]
    assert evaluated == [2, 4, 5]
    ((_, metrics),) = simulated.measured
    assert {*metrics} == {"accuracy"}


def test_a_loss_that_falls_below_zero_ends_no_run_and_is_told_once() -> None:
    """The default period goes by losses from 0 up."""
    task = load_task(TASKS / "union.py")
    falling = replace(task, loss=lambda model, batch: task.loss(model, batch) - 0.3)
    records: list[Record] = []
    world = World(falling, Scenario.plain(Settings(device="cpu", peers=3, period_initial=4, steps=48)), records.append)
    run_virtual(world.run())
    losses = [record.loss for record in records if isinstance(record, ExchangeRecord) and record.peer == "0"]
    assert losses[0] > 0 > losses[-1]
    assert len(losses) >= 12
    (told,) = (record for record in records if isinstance(record, EventRecord) and record.event == "period")
    assert "the loss is -" in told.why


def test_an_error_before_the_run_has_begun_ends_it(monkeypatch) -> None:
    """Its peers are not started anew for ever, as it would only come again."""

    async def fails(*_: object) -> None:
        raise TaskError("it cannot be trained")

    monkeypatch.setattr(Training, "run", fails)
    with pytest.raises(TaskError, match="it cannot be trained"):
        simulate(DIGITS, peers=3, steps=10)


def test_a_step_is_measured_with_the_threads_that_it_is_simulated_with() -> None:
    """With more it may even take longer, where others compute too."""
    torch.set_num_threads(2)
    measured_step_time(load_task(TASKS / "union.py"), Settings(device="cpu"))
    assert torch.get_num_threads() == 1
