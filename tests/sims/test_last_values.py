"""The last model of a parameter server's run: all workers end with the same one, and its metrics are the last told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from simulated import simulate
from test_simulated_runs import TASKS
from tiers import soaked
from two_servers import TWO_SERVERS

from samovar.aggregation.consistency import parse_consistency
from samovar.aggregation.server.add import Add
from samovar.peers.records.records import EventRecord, ExchangeRecord, Record
from samovar.peers.records.tally import Tally
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.evaluation import metrics_of
from samovar.peers.task.task import Task, load_task
from samovar.protocols.clock import RunClock
from samovar.protocols.members.presence import Presence
from samovar.protocols.parameter_server.algorithms.registry import parse_algorithm
from samovar.protocols.parameter_server.client import Client
from samovar.protocols.parameter_server.options import Options
from samovar.protocols.parameter_server.reading import Values
from samovar.protocols.parameter_server.state import State
from samovar.protocols.parameter_server.worker import Worker
from samovar.protocols.stalls.works import FIRST_S
from samovar.protocols.work import Steps
from samovar.sims.checkers import parameter_server as promises
from samovar.sims.scenarios.scenario import Fault, Kind, Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.simulated_peer import Life
from samovar.sims.world.world import World

UNION = TASKS / "union.py"


def measured(task: Task) -> Task:
    """The task, with a metric that no two models share."""
    weights = lambda model: {"sum": sum(float(one.double().sum()) for one in model.parameters())}  # noqa: E731
    return replace(task, evaluate=weights, metrics={"sum": "lower"})


def run(task: Task, *faults: Fault, slow_s: float = 0.1, **settings: Any) -> tuple[World, list[Record], list[Life]]:
    """Three workers, the last of which is slow, and two servers; and the workers' lives that have finished."""
    records: list[Record] = []
    plain = Scenario.plain(Settings(**{**TWO_SERVERS, "steps": 24, "evaluate_every": 5, "patience_s": 0.5, **settings}))
    workers, servers = plain.groups
    groups = (*(replace(workers, peers=1, step_s=step_s) for step_s in (0.01, 0.013, slow_s)), servers)
    scenario = replace(plain, groups=groups, faults=faults)
    world = World(task, scenario, records.append)
    run_virtual(world.run(within_s=300), seed=0)
    for promise in promises.PARAMETER_SERVER:
        assert list(promise(scenario, world.log.entries)) == []
    lives = [one for one in world.lives if isinstance(one.peer.conversation, Worker)]
    return world, records, [one for one in lives if one.result is not None and one.result.finished]


@pytest.mark.parametrize(
    "own",
    [
        {"consistency": "bsp"},
        soaked({"consistency": "ssp:2"}),
        soaked({"consistency": "bounded:2"}),
        {"consistency": "async"},
        {"algorithm": "easgd:0.1:3"},
        soaked({"algorithm": "softsync:2"}),
    ],
    ids=lambda own: " ".join(own.values()),
)
def test_all_workers_end_with_the_model_whose_metrics_are_the_last_told(own: dict[str, str]) -> None:
    task = measured(load_task(UNION))
    _, records, lives = run(task, **own)
    assert len(lives) == 3
    models = [life.trainer.vector for life in lives]
    assert all(torch.equal(model, models[0]) for model in models)
    saved = metrics_of(lives[0].trainer.model, task)
    assert Tally(records).metrics == saved
    assert all(life.result is not None and life.result.metrics == saved for life in lives)


def test_a_worker_that_waits_for_the_last_pushes_names_the_slow_one_and_its_records_have_that_time() -> None:
    _, records, _ = run(measured(load_task(UNION)), consistency="async")
    told = [one for one in records if isinstance(one, ExchangeRecord) and one.peer == "0"]
    assert told[-1].waited_for == "2"
    saved = [one.why for one in records if isinstance(one, EventRecord) and one.event == "checkpoint"]
    assert saved
    assert all(text.startswith("exchange ") for text in saved), "as everywhere where exchanges are not rounds"
    assert told[-1].wait_s > 1.5
    seconds = sum(one.compute_s + one.wait_s + one.transfer_s for one in told)
    assert told[-1].time_s == pytest.approx(seconds, rel=0.05)


def test_a_slow_worker_is_not_reported_while_its_pushes_come() -> None:
    """The others wait for it at their end for longer than anybody waits for a first contribution without a report."""
    _, records, lives = run(load_task(UNION), consistency="async", slow_s=8.0)
    assert len(lives) == 3
    assert max(one.time_s for one in records) > 3 * FIRST_S
    assert not [one for one in records if isinstance(one, EventRecord) and one.event == "stalled"]


def test_the_last_values_are_read_again_where_a_server_is_lost_meanwhile() -> None:
    task = measured(load_task(UNION))
    _, records, lives = run(task, Fault(kind=Kind.CRASH, who=(4,), at_s=1.5), consistency="async")
    models = [life.trainer.vector for life in lives]
    assert len(models) == 3
    assert all(torch.equal(model, models[0]) for model in models)
    assert Tally(records).metrics == metrics_of(lives[0].trainer.model, task)


def test_a_resumed_server_does_not_tell_the_updates_before_as_those_since_its_last_record() -> None:
    outage = Fault(kind=Kind.OUTAGE, at_s=1.2, for_s=0.2)
    own = {"servers": 1, "ranges": 1, "evaluate_every": 2, "checkpoint_every_s": 0.0}
    _, records, lives = run(load_task(UNION), outage, **own)
    assert len(lives) == 3
    told = [one for one in records if isinstance(one, ExchangeRecord) and "updates" in one.details]
    assert told[-1].version >= 20
    assert {one.details["updates"] for one in told} <= {0, 1, 2, 3}


class _Pulls:
    """A client of servers that hold ones, and no other worker."""

    async def enlist(self, clock: int, *, resumed: bool) -> tuple[int, int]:
        return clock, clock

    async def pull(self, clock: int, wanted: object, *, exact: bool = False) -> Values:
        return Values(torch.ones(2), {}, (0,), (0,), 1, "")


class _There:
    """The presence of the only worker."""

    returns, me = 0, "peer"

    async def enter(self, contact: object) -> bool:
        return False

    async def view(self) -> Any:
        member = type("Member", (), {"id": "peer", "attributes": type("Worker", (), {"role": ""})})
        return type("View", (), {"members": (member,)})


def test_a_turn_that_was_stopped_amid_is_taken_anew_after_a_resume() -> None:
    """It begins from values that are pulled anew, so no step of it has been taken."""
    options = Options(
        algorithm=cast(Any, parse_algorithm("sync")),
        consistency=parse_consistency("bsp"),
        function=Add(),
        parameters=2,
        steps=10,
        evaluate_every=0,
    )

    async def main() -> None:
        worker = Worker(
            cast(Client, _Pulls()), cast(Presence, _There()), RunClock(1.0), options, State(4, 4, torch.zeros(2))
        )
        assert await worker.enter(None, 1) == "resumed"
        work = await worker.next()
        assert work is not None
        assert work.job == Steps(1, total=1, step=4)

    simulate(main())
