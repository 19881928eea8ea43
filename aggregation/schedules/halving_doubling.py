"""Halving-doubling allreduce: partners swap halves, quarters, eighths of the vector, and back the same way.

Source: Rabenseifner, "Optimization of collective reduction operations" (ICCS 2004): reduce-scatter by recursive vector
halving and distance doubling, then all-gather by vector doubling and distance halving. Sometimes called butterfly.

    paper   here
    p       world
    q       2 ** levels, the largest power of two <= p: that many ranks are active, and that many parts there are
    r       p - q ranks are folded into a neighbour before and get its result afterwards
    n       bytes of the vector; each of the q parts has n/q
    alpha, beta, gamma   seconds a message, seconds a byte sent, seconds a byte added

Cost, p = q: 2 log2 q alpha + 2 (q-1)/q n beta + (q-1)/q n gamma: the bytes of the ring in far fewer messages, which is
what a small model on a slow link needs. Otherwise a folded rank sends n bytes in one message, and its neighbour sends n
bytes and adds n bytes more than that: together 2 alpha + 2n beta + n gamma on the critical path.

Failures: a late rank delays its partner at each level, and so all ranks by the last level. A dead rank
fails the round, which the remaining ranks repeat.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from .schedule import Step, adds, check_rank, copies, sends


@dataclass(frozen=True, slots=True)
class HalvingDoubling:
    """The schedule of recursive halving and doubling. Ranks next to each other, which often share a host, exchange the
    largest parts."""

    name: ClassVar[str] = "halving_doubling"

    def parts(self, world: int) -> int:
        return 1 << _levels(world)

    def steps(self, rank: int, world: int) -> tuple[Step, ...]:
        check_rank(rank, world)
        levels, everything = _levels(world), range(self.parts(world))
        folded = world - self.parts(world)
        paired = rank < 2 * folded
        neighbour = rank ^ 1
        if paired and rank % 2:
            return Step(sends(neighbour, everything)), *[Step()] * (2 * levels), Step((), copies(neighbour, everything))

        active = rank // 2 if paired else rank - folded
        swaps = [
            (2 * partner if partner < folded else partner + folded, kept, given)
            for partner, kept, given in _swaps(active, levels)
        ]
        halving = (Step(sends(peer, given), adds(peer, kept)) for peer, kept, given in swaps)
        doubling = (Step(sends(peer, kept), copies(peer, given)) for peer, kept, given in reversed(swaps))
        fold = [Step((), adds(neighbour, everything)) if paired else Step()] * (folded > 0)
        unfold = [Step(sends(neighbour, everything)) if paired else Step()] * (folded > 0)
        return *fold, *halving, *doubling, *unfold


def _levels(world: int) -> int:
    return world.bit_length() - 1


def _swaps(active: int, levels: int) -> Iterator[tuple[int, range, range]]:
    """For one active rank at each level: its partner, the parts it keeps, and the parts it gives away."""
    low, high = 0, 1 << levels
    for level in range(levels):
        middle = (low + high) // 2
        lower, upper = range(low, middle), range(middle, high)
        kept, given = (upper, lower) if active >> level & 1 else (lower, upper)
        yield active ^ 1 << level, kept, given
        low, high = kept.start, kept.stop
