"""Naive allreduce: every rank sends its whole vector to rank 0, which adds them up and sends the sum back.

Source: the baseline of all other allreduces. Chu et al., "Map-reduce for machine learning on multicore" (NIPS 2006),
sum gradients in this way.

    paper   here
    p       world
    n       bytes of the vector, which is one part
    alpha, beta, gamma   seconds a message, seconds a byte sent, seconds a byte added

Cost: 2(p-1)(alpha + n beta) + (p-1) n gamma, all of it at rank 0, which receives p-1 messages of n bytes, adds as many,
and sends p-1. Where messages overlap on their way, alpha counts only twice. Every other rank sends n bytes and adds
nothing. Good for a very small vector, and where rank 0 has by far the best link.

Failures: rank 0 waits for the last rank, and all wait for rank 0. A dead rank fails the round, which the remaining
ranks repeat.
"""

from dataclasses import dataclass
from typing import ClassVar

from .schedule import Step, adds, check_rank, copies, sends


@dataclass(frozen=True, slots=True)
class Naive:
    """The schedule through rank 0, which adds the other ranks' vectors in the order of the ranks."""

    name: ClassVar[str] = "naive"

    def parts(self, world: int) -> int:
        return 1

    def steps(self, rank: int, world: int) -> tuple[Step, ...]:
        check_rank(rank, world)
        if world == 1:
            return ()
        if rank:
            return Step(sends(0, [0])), Step((), copies(0, [0]))
        gather = (receipt for peer in range(1, world) for receipt in adds(peer, [0]))
        spread = (transfer for peer in range(1, world) for transfer in sends(peer, [0]))
        return Step((), tuple(gather)), Step(tuple(spread))
