"""Sharded allreduce for a world in which some pairs of ranks cannot reach each other: a third rank relays between them.

A pair is apart if its two ranks cannot reach each other; their relay is a rank that reaches both. Each of the two sends
its term of the other's part to the relay, which adds it to its own term before the owners collect the terms. After the
owners have sent their sums to all, the relay forwards to each of the two the other's sum.

    paper   here
    p       world
    n       bytes of the vector; each of the p parts has n/p, or its share of n
    alpha, beta   seconds a message, seconds a byte sent

Cost, for each pair that is apart: a relay sends two parts more and adds two more, the two ranks send one less each; and
all takes two hops more. The relays of several pairs are spread over the ranks that qualify.

Failures: as in the sharded allreduce; a late relay delays two more ranks.
"""

from dataclasses import dataclass

from .schedule import Receipt, Step, Transfer, adds, copies, sends
from .sharded import Sharded

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Relayed(Sharded):
    """The sharded schedule with relays. ``apart``: the pairs that cannot reach each other, each with its lower rank
    first. `steps` raises ValueError where no rank reaches both of a pair."""

    apart: tuple[Pair, ...] = ()

    def steps(self, rank: int, world: int) -> tuple[Step, ...]:
        collect, spread = Sharded.steps(self, rank, world)
        lend: list[Transfer] = []
        borrow: list[Receipt] = []
        forward: list[Transfer] = []
        accept: list[Receipt] = []
        for pair in self.apart:
            relay = self._relay(pair, world)
            for owner, other in (pair, pair[::-1]):
                if rank == other:
                    lend += sends(relay, [owner])
                    accept += copies(relay, [owner])
                elif rank == relay:
                    borrow += adds(other, [owner])
                    forward += sends(other, [owner])
        away = {peer for pair in self.apart if rank in pair for peer in pair}
        return (
            Step(tuple(lend), tuple(borrow)),
            _without(collect, away),
            _without(spread, away),
            Step(tuple(forward), tuple(accept)),
        )

    def _relay(self, pair: Pair, world: int) -> int:
        apart = {frozenset(each) for each in self.apart}
        able = [c for c in range(world) if c not in pair and not any({c, end} in apart for end in pair)]
        if not able:
            raise ValueError(f"ranks {pair[0]} and {pair[1]} are apart, and no other reaches both")
        return able[sum(pair) % len(able)]


def _without(step: Step, peers: set[int]) -> Step:
    return Step(
        tuple(sent for sent in step.send if sent.peer not in peers),
        tuple(got for got in step.receive if got.peer not in peers),
    )
