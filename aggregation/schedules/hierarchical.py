"""Hierarchical allreduce: the ranks of a group divide the sum among them, and only shards travel between the groups.

Source: Cho et al., "BlueConnect: decomposing all-reduce for deep learning on heterogeneous network hierarchy" (SysML
2019); Jia et al., "Highly scalable deep learning training system with mixed-precision" (arXiv 1807.11205). Inside each
group a ring reduce-scatter; then for each shard a ring allreduce of its holders, one of each group; inside each
group a ring all-gather.

    paper   here
    p       world
    q       size, the ranks of a group; group i has the ranks from i q on
    h       groups, the full ones; the vector has q shards, and each has h parts of n/(q h)
    r       p - q h ranks are folded into a member of the last group before and get its result afterwards
    n       bytes of the vector
    alpha, beta, gamma   seconds a message, seconds a byte sent, seconds a byte added; _l in a group, _g between groups

Cost, p = q h: 2(q-1)(alpha_l + n/q beta_l) + 2(h-1)(alpha_g + n/(q h) beta_g) + (p-1)/p n gamma: the ring's bytes in
2(q-1 + h-1) messages, of which 2(h-1) with 2(h-1)/h n/q bytes in all go from each rank to other groups. Otherwise
a folded rank sends n bytes in one message, and its host sends n bytes and adds n bytes more than that: together
2 alpha_l + 2n beta_l + n gamma on the critical path.

Failures: a late rank delays its group, and a late group the others. A dead rank fails the round, which the
remaining ranks repeat.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from .ring import Ring
from .schedule import Receipt, Step, Transfer, adds, check_rank, copies, sends


@dataclass(frozen=True, slots=True)
class Hierarchical:
    """The schedule with rings inside groups and rings between the groups.

    group: ranks of a group, 1 or more, else ValueError. None: the divisor of the world nearest to its square root; if
    there is none between half and twice the root, the whole number nearest to the root.
    """

    group: int | None = None
    name: ClassVar[str] = "hierarchical"

    def __post_init__(self) -> None:
        if self.group is not None and self.group < 1:
            raise ValueError(f"a group has at least one rank, got {self.group}")

    def parts(self, world: int) -> int:
        size, groups = self._shape(world)
        return size * groups

    def steps(self, rank: int, world: int) -> tuple[Step, ...]:
        check_rank(rank, world)
        size, groups = self._shape(world)
        active, everything = size * groups, range(size * groups)
        if rank >= active:
            host, between = rank - size, 2 * (size - 1) + 2 * (groups - 1)
            return Step(sends(host, everything)), *[Step()] * between, Step((), copies(host, everything))

        group, member = divmod(rank, size)
        local = [_inside(step, group * size, groups) for step in Ring().steps(member, size)]
        across = (_across(step, member, size, groups) for step in Ring().steps(group, groups))
        guest = rank + size
        hosts, folding = active <= guest < world, active < world
        fold = [Step((), adds(guest, everything)) if hosts else Step()] * folding
        unfold = [Step(sends(guest, everything)) if hosts else Step()] * folding
        return *fold, *local[: size - 1], *across, *local[size - 1 :], *unfold

    def _shape(self, world: int) -> tuple[int, int]:
        """The number of ranks in a group, and of full groups."""
        size = min(self.group or _nearest_to_root(world), world)
        return size, world // size


def _nearest_to_root(world: int) -> int:
    root = math.sqrt(world)
    near = range(math.ceil(root / 2), math.floor(2 * root) + 1)
    return min((size for size in near if world % size == 0), key=lambda size: abs(size - root), default=round(root))


def _inside(step: Step, first: int, groups: int) -> Step:
    """A step of a ring over the shards, for the group that begins with rank ``first``."""
    return Step(
        tuple(Transfer(first + sent.peer, part) for sent in step.send for part in _shard(sent.part, groups)),
        tuple(Receipt(first + got.peer, part, got.op) for got in step.receive for part in _shard(got.part, groups)),
    )


def _across(step: Step, member: int, size: int, groups: int) -> Step:
    """A step of a ring over the parts of one shard, for its holders: one member of each group."""
    shard = _shard(member, groups)
    return Step(
        tuple(Transfer(sent.peer * size + member, shard[sent.part]) for sent in step.send),
        tuple(Receipt(got.peer * size + member, shard[got.part], got.op) for got in step.receive),
    )


def _shard(shard: int, groups: int) -> range:
    return range(shard * groups, (shard + 1) * groups)
