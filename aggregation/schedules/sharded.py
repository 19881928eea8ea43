"""Sharded allreduce: every rank is the parameter server of one part: it adds that part up and sends the sum to all.

Source: Li et al., "Scaling distributed machine learning with the parameter server" (OSDI 2014), with the servers on the
workers' machines. Jiang et al., "A unified architecture for accelerating distributed DNN training in heterogeneous
GPU/CPU clusters" (OSDI 2020), derive the best sizes of the parts for unequal machines (`shares`).

    paper   here
    p       world
    n       bytes of the vector; each of the p parts has n/p, or its share of n
    alpha, beta, gamma   seconds a message, seconds a byte sent, seconds a byte added

Cost, each rank: 2(p-1) alpha + 2(p-1)/p n beta + (p-1)/p n gamma, in 2(p-1) messages of one part each, with p-1 parts
added. Where messages overlap on their way the first term is 2 alpha, however many ranks there are: as few bytes as the
ring, in two hops. Every two ranks must be able to reach each other. With unequal parts rank i sends n(1 + (p-2) w_i),
w_i its share: a rank that owns nothing, w_i = 0, sends no more than its own vector.

Failures: a late rank delays the owners, which can add all terms but its own and the later ones. A dead
rank fails the round, which the remaining ranks repeat.
"""

from dataclasses import dataclass
from typing import ClassVar

from .schedule import Step, adds, check_rank, copies, sends


@dataclass(frozen=True, slots=True)
class Sharded:
    """The sharded schedule. Rank r owns part r: it adds the terms of the ranks r-1, r-2, ... to its own, in this order.
    They arrive in this order, because each rank sends to the next rank first and to the previous one last."""

    name: ClassVar[str] = "sharded"

    def parts(self, world: int) -> int:
        return world

    def steps(self, rank: int, world: int) -> tuple[Step, ...]:
        check_rank(rank, world)
        if world == 1:
            return ()
        onward = [(rank + distance) % world for distance in range(1, world)]
        back = onward[::-1]
        collect = Step(
            tuple(transfer for peer in onward for transfer in sends(peer, [peer])),
            tuple(receipt for peer in back for receipt in adds(peer, [rank])),
        )
        spread = Step(
            tuple(transfer for peer in onward for transfer in sends(peer, [rank])),
            tuple(receipt for peer in back for receipt in copies(peer, [peer])),
        )
        return collect, spread
