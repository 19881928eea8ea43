"""Ring allreduce: every rank sends to its right neighbour only, first sums on their way, then results.

Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (JPDC 2009):
reduce-scatter, then all-gather, both on one ring.

    paper   here
    p       world
    n       bytes of the vector; each of the p parts has n/p
    alpha, beta, gamma   seconds a message, seconds a byte sent, seconds a byte added

Cost, each rank: 2(p-1)(alpha + n/p beta) + (p-1)/p n gamma. That is 2(p-1) messages of one part each and p-1 parts
added: as few bytes as any allreduce can do with, but a latency that grows with the world. Works in a world of any size.

Failures: the ring is as fast as its slowest link, and a late rank delays all the others. A dead rank
breaks the ring within a step: the round fails everywhere, and the remaining ranks repeat it.
"""

from dataclasses import dataclass
from typing import ClassVar

from .schedule import Op, Receipt, Step, Transfer, check_rank


@dataclass(frozen=True, slots=True)
class Ring:
    """The schedule around the ring. Rank r owns part r: it adds the last term to that part, and sends the sum
    onward."""

    name: ClassVar[str] = "ring"

    def parts(self, world: int) -> int:
        return world

    def steps(self, rank: int, world: int) -> tuple[Step, ...]:
        check_rank(rank, world)
        left, right = (rank - 1) % world, (rank + 1) % world
        # A part travels one rank to the right each step. Part r sets out at rank r+1, to arrive complete at rank r.
        reduce_scatter = [(rank - 1 - step, rank - 2 - step, Op.ADD) for step in range(world - 1)]
        all_gather = [(rank - step, rank - 1 - step, Op.COPY) for step in range(world - 1)]
        return tuple(
            Step((Transfer(right, sent % world),), (Receipt(left, received % world, op),))
            for sent, received, op in reduce_scatter + all_gather
        )
