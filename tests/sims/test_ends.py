"""Whatever ends a peer, it saves first what it has committed, and a resumed run goes on with the round after that."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import pytest
import torch
from simulated import no_complaints  # noqa: F401
from tiers import one_in

from samovar.peers.records.records import EventRecord, ExchangeRecord, Record
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import Task
from samovar.peers.training.compute import Quit, ThreadCompute
from samovar.protocols.local_sgd.rounds import Committed
from samovar.protocols.members.errors import JoinRefused, MembershipError, NoQuorum
from samovar.protocols.transfer.snapshot_transfer import CatchUpFailed
from samovar.sims.scenarios.scenario import Fault, Kind, Scenario
from samovar.sims.scenarios.toy import toy_task
from samovar.sims.sweeps.promises import broken
from samovar.sims.world.event_log import Fell, Gone
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.simulated_peer import Life
from samovar.sims.world.world import World

PERIOD, STEPS, FAILS_AT = 8, 80, 45
SETTINGS = Settings(
    peers=4, period=str(PERIOD), steps=STEPS, patience_s=1.0, checkpoint_every_s=1e6, evaluate_every=3, device="cpu"
)


def fails(error: BaseException) -> Callable[[Any], NoReturn]:
    def fail(argument: Any) -> NoReturn:
        raise error

    return fail


def loss_of(number: int, instead: Callable[[Any], Any]) -> Task:
    """A loss that is another from its call of that number on, in each peer."""
    task, calls = toy_task(), Counter[int]()

    def loss(model, batch):
        calls[id(model)] += 1
        return instead(model) if calls[id(model)] >= number else task.loss(model, batch)

    return replace(task, loss=loss)


def data_of(number: int, instead: Callable[[Any], Any]) -> Task:
    """Batches that are others from the epoch of that number on."""
    task, epochs = toy_task(), Counter[int]()

    def data(part, parts):
        epochs[part] += 1
        yield from task.data(part, parts) if epochs[part] < number else instead(part)

    return replace(task, data=data)


def evaluated_by(second: Callable[[Any], Any]) -> Task:
    calls = iter([lambda model: 0.5] * 2)  # the first of them before anything is trained
    return replace(toy_task(), evaluate=lambda model: next(calls, second)(model))


class SGD(torch.optim.SGD):
    """One that is spoilt in its step of that number."""

    def __init__(self, parameters, number: int, spoil: Callable[[SGD], None]) -> None:
        super().__init__(parameters, lr=0.05, momentum=0.5)
        self._left, self._spoil = number, spoil

    def step(self, closure=None):
        super().step(closure)
        self._left -= 1
        if self._left == 0:
            self._spoil(self)


def optimizer_of(spoil: Callable[[SGD], None]) -> Task:
    return replace(toy_task(), optimizer=lambda parameters: SGD(parameters, FAILS_AT, spoil))


def out_of_numbers(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.data.fill_(math.nan)
            optimizer.state[parameter]["momentum_buffer"].fill_(math.nan)


def fault(kind: Kind, *who: int, for_s: float = 0.0) -> Fault:
    return Fault(kind=kind, who=who, at_step=FAILS_AT, for_s=for_s)


def failing_membership(error: Exception) -> Callable[[Life], None]:
    return lambda life: life.peer.membership._roster.fail(error)


@dataclass(frozen=True)
class End:
    """What befalls the peers: by their task, by the world, or, with `at_once`, in the middle of what they do."""

    task: Task | None = None
    faults: tuple[Fault, ...] = ()
    at_once: Callable[[Life], None] | None = None
    says: str = ""
    settings: Settings = SETTINGS


OVERLAPPED = replace(SETTINGS, overlap=True)
ENDS = {
    "two of four are killed": End(faults=(fault(Kind.CRASH, 0, 1),), says="peers are left"),
    "three of four are killed": End(faults=(fault(Kind.CRASH, 0, 1, 2),), says="peers are left"),
    "half of them cannot be reached": End(faults=(fault(Kind.CUT_OFF, 0, 1),), says="peers are left"),
    "nobody can reach anybody": End(
        faults=tuple(fault(Kind.CUT_OFF, who) for who in range(4)), says="peers are left|cannot come back"
    ),
    "a defect in the loss": End(loss_of(FAILS_AT, fails(KeyError("label"))), says="label"),
    "no memory": End(loss_of(FAILS_AT, fails(MemoryError("out of memory"))), says="out of memory"),
    "an error of the device": End(loss_of(FAILS_AT, fails(RuntimeError("CUDA error"))), says="CUDA error"),
    "a loss that is no scalar": End(loss_of(FAILS_AT, lambda model: torch.zeros(2)), says="scalar"),
    "a loss of nothing": End(loss_of(FAILS_AT, lambda model: None), says="scalar"),
    "a loss that is no number": End(
        loss_of(FAILS_AT, lambda model: math.nan * next(model.parameters()).sum()), says="the loss is not finite"
    ),
    "weights that are no numbers": End(optimizer_of(out_of_numbers), says="not finite"),
    "an optimizer that fails": End(optimizer_of(fails(ValueError("no step"))), says="no step"),
    "data that cannot be read": End(data_of(6, fails(OSError("stale file handle"))), says="stale file handle"),
    "data that is gone": End(data_of(6, lambda part: []), says="gives no batches"),
    "an evaluation that fails": End(
        evaluated_by(fails(ZeroDivisionError("by zero"))), says="in evaluate|peers are left"
    ),
    "an evaluation that gives no number": End(
        evaluated_by(lambda model: "good"), says="numbers by name, is due|peers are left"
    ),
    "the others went on without it": End(
        at_once=failing_membership(MembershipError("the others went on")), says="the others went on"
    ),
    "no quorum, as told": End(at_once=failing_membership(NoQuorum("too few")), says="too few"),
    "refused when it came back": End(at_once=failing_membership(JoinRefused("another model")), says="another model"),
    "a state that nobody gives": End(at_once=failing_membership(CatchUpFailed("no donor")), says="no donor"),
    "a defect of this library": End(at_once=failing_membership(LookupError("a defect")), says="a defect"),
    "a loss that fails amid an average": End(
        loss_of(FAILS_AT, fails(KeyError("label"))), says="label", settings=OVERLAPPED
    ),
    "no quorum amid the next steps": End(faults=(fault(Kind.CRASH, 0, 1),), says="peers are left", settings=OVERLAPPED),
}


def ended(end: End) -> World:
    scenario = replace(Scenario.plain(end.settings), faults=end.faults, buggify=False)
    world = World(end.task or toy_task(), scenario)

    async def main() -> None:
        if end.at_once is not None:
            asyncio.get_running_loop().call_later(0.15, lambda: [end.at_once(life) for life in world.lives])
        await world.run(within_s=300)

    with contextlib.suppress(Exception):  # where no fault was foreseen, what a peer ended with
        run_virtual(main())
    return world


@pytest.mark.parametrize("name", one_in(2, ENDS))
def test_a_peer_ended_by_any_error_saves_its_committed_state(name: str) -> None:
    end = ENDS[name]
    world = ended(end)
    survivors = [life for life in world.lives if life.error is not None]
    assert survivors
    for life in survivors:
        assert re.search(end.says, repr(life.error)), life.error
        committed, kept = life.peer.conversation.state, life.disk.kept
        assert committed.round > 2
        assert kept is not None
        assert kept.numbers["state"]["round"] == committed.round
        assert torch.equal(kept.tensors["state/vector"], committed.vector)
    last = max(life.peer.conversation.state.round for life in survivors)
    assert first_round_after_resuming(world, steps=PERIOD * (last + 1)) == last + 1


@pytest.mark.parametrize("own", [
    {"period": "8"}, {"protocol": "gossip", "period": "8"}, {"protocol": "parameter_server", "servers": 1},
], ids=str)  # fmt: skip
def test_an_exchange_whose_evaluation_fails_has_a_record(own: dict[str, Any]) -> None:
    settings = Settings(peers=1, steps=80, evaluate_every=3, device="cpu", **own)
    told, failing = list[Record](), evaluated_by(fails(ZeroDivisionError("by zero")))
    world = World(failing, Scenario.plain(settings), told.append)
    with contextlib.suppress(Exception):
        run_virtual(world.run(within_s=300))
    versions = [record.version for record in told if isinstance(record, ExchangeRecord) and record.peer == "0"]
    assert versions == [1, 2, 3, 4, 5, 6], "the second evaluation is that of the sixth"


def first_round_after_resuming(before: World, steps: int) -> int:
    """The peers begin anew with their disks, and a task that does not fail any more."""
    settings = replace(before.scenario.settings, steps=steps)
    world = World(toy_task(), replace(before.scenario, settings=settings, faults=()))
    world._disks = before._disks
    run_virtual(world.run(within_s=300))
    made = (entry.event for entry in world.log.entries if isinstance(entry.event, Committed))
    return min(event.round for event in made if event.attempt is not None)


@pytest.mark.parametrize("quits", [SystemExit(3), KeyboardInterrupt(), StopIteration()], ids=repr)
async def test_a_task_that_quits_is_an_error_of_the_task_like_any_other(quits: BaseException) -> None:
    """On the event loop it would end the process as it stands, or never be heard of."""
    compute = ThreadCompute()
    async with asyncio.timeout(60):
        with pytest.raises(Quit, match=type(quits).__name__):
            await compute.run(lambda: fails(quits)(None))
        assert await compute.run(lambda: 1) == 1
    compute.close()


def with_full_disks(*faults: Fault, every_s: float = 0.0) -> tuple[World, list[EventRecord]]:
    told, settings = list[Record](), replace(SETTINGS, checkpoint_every_s=every_s)
    world = World(toy_task(), replace(Scenario.plain(settings), faults=faults), told.append)
    run_virtual(world.run(within_s=300))
    assert broken(world.scenario, world.log.entries) is None
    return world, [record for record in told if isinstance(record, EventRecord) and record.peer == "1"]


def test_a_disk_that_is_full_for_a_while_ends_no_training_and_is_told() -> None:
    world, events = with_full_disks(fault(Kind.FULL_DISK, 0, 1, 2, 3, for_s=0.06))
    failed = [event for event in events if event.event == "checkpoint_failed"]
    assert failed
    assert all("no space left on device" in event.why for event in failed)
    assert events[-1].event == "checkpoint", "it was tried again"
    for life in world.lives:
        assert life.result is not None
        assert (life.result.finished, life.result.unsaved) == (True, "")
        assert life.disk.kept is not None
        assert life.disk.kept.numbers["state"]["round"] == STEPS // PERIOD


def test_an_end_whose_last_checkpoint_cannot_be_written_says_so() -> None:
    world, _ = with_full_disks(fault(Kind.FULL_DISK, 1))
    for life in world.lives:
        assert life.result is not None
        assert life.result.finished
        assert ("no space left" in life.result.unsaved) == (life.index == 1)


def test_an_end_by_an_error_is_told_by_that_error_though_the_disk_is_full() -> None:
    world = ended(replace(ENDS["no memory"], faults=(Fault(kind=Kind.FULL_DISK, who=(0, 1, 2, 3), at_s=0.1),)))
    assert [repr(life.error) for life in world.lives] == ["MemoryError('out of memory')"] * 4


def test_a_peer_ended_by_its_own_error_waits_for_no_running_average() -> None:
    # When round 4 is over everywhere, and before round 5 begins, during which the loss fails.
    cut_off = tuple(Fault(kind=Kind.CUT_OFF, who=(who,), at_s=0.42) for who in range(4))
    settings = replace(OVERLAPPED, step_time="10ms")
    world = ended(replace(ENDS["a loss that fails amid an average"], faults=cut_off, settings=settings))
    (fell_s, *_) = (entry.time_s for entry in world.log.entries if isinstance(entry.event, Fell))
    gone_s = [entry.time_s for entry in world.log.entries if isinstance(entry.event, Gone)]
    assert len(gone_s) == 4
    assert max(gone_s) - fell_s < SETTINGS.patience_s
