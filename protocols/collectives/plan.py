"""The plan of one rank in an allreduce: the runs of elements that it sends and receives, and their dependencies.

A schedule consists of parts and steps. Here neighbouring parts that go the same way are one run, and a step is not a
barrier: a run waits only for earlier runs that touch the same elements, and only up to the elements that it needs, so a
chunk goes on as soon as it is complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from ...aggregation.schedules.schedule import Op, Step
from ...aggregation.vector import Part, parts

Value = Any
"""The type of a Schedule as the argument of a cached function. A schedule is hashable, which mypy cannot know of a
protocol."""


@dataclass(frozen=True, slots=True)
class Run:
    """A range of elements, from `start` up to but not including `stop`, that this rank sends to or receives from the
    rank `peer` in a step, and the receiver's operation on them.

    after: numbers of the runs of this rank that must have processed an element before this run may. fresh: no earlier
    run has written to these elements, so their value is the rank's own contribution. copied: sent from a copy, because
    they may be overwritten while they are on their way.
    """

    number: int
    step: int
    peer: int
    start: int
    stop: int
    op: Op
    after: tuple[int, ...] = ()
    fresh: bool = False
    copied: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """All runs of one rank. send, receive: the runs to and from each other rank, by that rank, in the order of the
    steps. starts, stops: the first element of each run and the one behind its last, by the run's number. preset: ranges
    that must be copied from the rank's own contribution in advance, because a run contains them beside elements that
    were written before."""

    send: dict[int, tuple[Run, ...]]
    receive: dict[int, tuple[Run, ...]]
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    preset: tuple[tuple[int, int], ...]


class _Piece(NamedTuple):
    """Elements that a step receives from one peer."""

    peer: int
    start: int
    stop: int
    op: Op


@lru_cache(maxsize=1024)
def plan_of(schedule: Value, rank: int, world: int, size: int, shares: tuple[float, ...] | None = None) -> Plan:
    """The plan of `rank` for a vector of `size` elements, cached. `shares`: relative sizes of the parts; None:
    equal."""
    bounds = parts(size, schedule.parts(world), shares)
    steps = _steps(schedule, rank, world)
    partners = dict.fromkeys(transfer.peer for step in steps for transfer in step.send)
    theirs = {peer: _pieces(_steps(schedule, peer, world), bounds) for peer in partners}
    runs: list[Run] = []
    written: list[Run] = []
    preset: list[tuple[int, int]] = []

    def add(step: int, piece: _Piece, *, read: Sequence[int] = (), copied: bool = False) -> Run:
        after, missed = _latest(written, piece.start, piece.stop)
        if after:
            preset.extend(missed)
        copied = copied and bool(after)  # no copy is needed of the rank's own contribution: it is never written to
        runs.append(Run(len(runs), step, *piece, (*after, *read), fresh=not after, copied=copied))
        return runs[-1]

    send: dict[int, list[Run]] = {}
    receive: dict[int, list[Run]] = {}
    for number, (step, pieces, copied) in enumerate(zip(steps, _pieces(steps, bounds), _copied(steps), strict=True)):
        for peer in dict.fromkeys(transfer.peer for transfer in step.send):
            for piece in theirs[peer][number]:
                if piece.peer == rank:
                    send.setdefault(peer, []).append(add(number, piece._replace(peer=peer), copied=copied))
        for piece in pieces:
            sent = [run for runs in send.values() for run in runs if run.copied]
            read = [run.number for run in sent if run.start < piece.stop and piece.start < run.stop]
            written.append(add(number, piece, read=read))
            receive.setdefault(piece.peer, []).append(written[-1])
    return Plan(
        {peer: tuple(theirs) for peer, theirs in send.items()},
        {peer: tuple(theirs) for peer, theirs in receive.items()},
        tuple(run.start for run in runs),
        tuple(run.stop for run in runs),
        tuple(preset),
    )


@lru_cache(maxsize=2048)
def _steps(schedule: Value, rank: int, world: int) -> tuple[Step, ...]:
    steps: tuple[Step, ...] = schedule.steps(rank, world)
    return steps


def _pieces(steps: Sequence[Step], bounds: Sequence[Part]) -> list[list[_Piece]]:
    """The pieces that each step receives. Sender and receiver both compute them, so they agree on every chunk."""
    received = []
    for step in steps:
        pieces: list[_Piece] = []
        for receipt in step.receive:
            start, stop = bounds[receipt.part]
            if pieces and (pieces[-1].peer, pieces[-1].stop, pieces[-1].op) == (receipt.peer, start, receipt.op):
                start = pieces.pop().start
            if start < stop:
                pieces.append(_Piece(receipt.peer, start, stop, receipt.op))
        received.append(pieces)
    return received


def _latest(runs: Sequence[Run], start: int, stop: int) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    """The runs that were the last to touch some element from `start` to `stop`, and the ranges that none touched."""
    left, found = [(start, stop)], []
    for run in reversed(runs):
        rest = [piece for low, high in left for piece in ((low, min(high, run.start)), (max(low, run.stop), high))]
        rest = [(low, high) for low, high in rest if low < high]
        if rest != left:
            found.append(run.number)
        left = rest
        if not left:
            break
    return tuple(found), left


def _copied(steps: Sequence[Step]) -> list[bool]:
    """Which steps must send from a copy, because a part that they send may be overwritten while it is on its way.

    No copy is needed if the part was sent to one peer only and is later replaced by a final value: that value includes
    the sent one, so it arrives only after the peer has received that. Any other write may happen at any time.
    """
    copied: list[bool] = []
    written: dict[int, tuple[Op, int]] = {}  # by part: how it is written next, and how often it is sent before
    for step in reversed(steps):
        now = {receipt.part for receipt in step.receive}
        written |= {receipt.part: (receipt.op, 0) for receipt in reversed(step.receive)}
        for part in (transfer.part for transfer in step.send if transfer.part in written):
            written[part] = (written[part][0], written[part][1] + 1)
        coming = [(transfer.part in now, *written.get(transfer.part, (Op.COPY, 0))) for transfer in step.send]
        copied.append(any(at_once or op is Op.ADD or sends > 1 for at_once, op, sends in coming))
    return copied[::-1]
