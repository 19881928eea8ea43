"""Proves that a schedule is an allreduce for a world size, by running it on symbols, and counts its cost."""

from collections import Counter
from dataclasses import dataclass

from .schedule import Op, Schedule, Step, check_rank


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a schedule. ``steps``: their number; then, for each rank, the messages that it sends, the parts that
    it sends, and the parts that it adds."""

    steps: int
    messages: tuple[int, ...]
    parts_sent: tuple[int, ...]
    parts_added: tuple[int, ...]


class ScheduleError(ValueError):
    """Raised for a schedule that is not an allreduce. ``rank``, ``step`` and ``part`` tell where the fault is; None
    where one does not apply."""

    def __init__(self, problem: str, world: int, rank: int | None, step: int | None, part: int | None) -> None:
        named = {"world": world, "rank": rank, "step": step, "part": part}
        where = ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)
        super().__init__(f"{problem} ({where})")
        self.world, self.rank, self.step, self.part = world, rank, step, part


def prove(schedule: Schedule, world: int) -> Cost:
    """Run the schedule on symbols and return its cost. Raises ScheduleError unless it is an allreduce: every send meets
    exactly one receipt in the same step, and the reverse; no rank's contribution enters a part twice; no copy
    overwrites a contribution that the copied part lacks; at the end every rank holds every part as the sum of all
    ranks' contributions, added in the same order, so that the results are equal to the last bit."""
    check_rank(0, world)
    plans = [schedule.steps(rank, world) for rank in range(world)]
    state = _State(world, schedule.parts(world))
    length = max(map(len, plans))
    for index in range(length):
        steps = [plan[index] if index < len(plan) else Step() for plan in plans]
        _match(steps, index, world, schedule.parts(world))
        state.apply(steps, index)
    state.finish()
    return Cost(
        steps=length,
        messages=tuple(sum(len({send.peer for send in step.send}) for step in plan) for plan in plans),
        parts_sent=tuple(sum(len(step.send) for step in plan) for plan in plans),
        parts_added=tuple(sum(receipt.op is Op.ADD for step in plan for receipt in step.receive) for plan in plans),
    )


def _match(steps: list[Step], index: int, world: int, parts: int) -> None:
    """Pair the sends of one step with its receipts; a triple is (from, to, part)."""
    sends = Counter((rank, send.peer, send.part) for rank, step in enumerate(steps) for send in step.send)
    receipts = Counter((got.peer, rank, got.part) for rank, step in enumerate(steps) for got in step.receive)
    for source, target, part in sends | receipts:
        sent, received = sends[source, target, part], receipts[source, target, part]
        rank, peer = (source, target) if sent else (target, source)
        if not 0 <= peer < world or peer == rank:
            raise ScheduleError(f"rank {peer} cannot be a partner here", world, rank, index, part)
        if not 0 <= part < parts:
            raise ScheduleError(f"there are only {parts} parts", world, rank, index, part)
        if sent > received:
            raise ScheduleError(f"the send to rank {target} has no receiver", world, source, index, part)
        if received > sent:
            raise ScheduleError(f"the receipt from rank {source} has no sender", world, target, index, part)
        if sent > 1:
            raise ScheduleError(f"the send to rank {target} is there {sent} times", world, source, index, part)


class _State:
    """The contributions in each part at each rank, and the order in which they were added.

    ``held[rank][part]`` is (contributors as a bit mask, number of the sum's expression). Expressions are numbered by
    their two terms regardless of order: floating-point addition is commutative, only not associative.
    """

    def __init__(self, world: int, parts: int) -> None:
        self.world = world
        self.held = [[(1 << rank, rank)] * parts for rank in range(world)]
        self.sums: dict[tuple[int, int], int] = {}

    def apply(self, steps: list[Step], index: int) -> None:
        arrivals = [
            (rank, receipt, *self.held[receipt.peer][receipt.part])
            for rank, step in enumerate(steps)
            for receipt in step.receive
        ]
        for rank, receipt, members, order in arrivals:
            own, own_order = self.held[rank][receipt.part]
            if receipt.op is Op.COPY:
                if own & ~members:
                    lost = _ranks(own & ~members)
                    problem = f"a copy from rank {receipt.peer} loses the contributions of ranks {lost}"
                    raise ScheduleError(problem, self.world, rank, index, receipt.part)
                self.held[rank][receipt.part] = members, order
                continue
            if own & members:
                problem = f"the contributions of ranks {_ranks(own & members)} are reduced twice"
                raise ScheduleError(problem, self.world, rank, index, receipt.part)
            terms = (min(order, own_order), max(order, own_order))
            total = self.sums.setdefault(terms, self.world + len(self.sums))
            self.held[rank][receipt.part] = own | members, total

    def finish(self) -> None:
        everybody = (1 << self.world) - 1
        for rank, held in enumerate(self.held):
            for part, (members, order) in enumerate(held):
                if members != everybody:
                    problem = f"the contributions of ranks {_ranks(everybody & ~members)} are missing at the end"
                    raise ScheduleError(problem, self.world, rank, None, part)
                if order != self.held[0][part][1]:
                    problem = "the sum is added up in another order than on rank 0"
                    raise ScheduleError(problem, self.world, rank, None, part)


def _ranks(mask: int) -> str:
    return ", ".join(str(rank) for rank in range(mask.bit_length()) if mask >> rank & 1)
