"""Double binary tree allreduce: each half of the vector is summed up a tree of its own, and comes down the same way.

Source: Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan" (Parallel
Computing 2009); the trees are those of NCCL (Jeaugey, "Massively scale your deep learning training with NCCL 2.4",
2019; ``trees.cc``). An inner node of one tree is a leaf of the other, so that all ports carry the same: in an
even world no rank is inner in both, in an odd world rank 0 alone is.

    paper   here
    p       world
    n       bytes of the vector; part 0 goes through the first tree, part 1 through the second, n/2 each
    k       pipeline blocks: the chunks that n is cut into on its way
    alpha, beta, gamma   seconds a message, seconds a byte sent, seconds a byte added

Cost: 2(log2 p + k)(alpha + n/k beta): with the best k, 2 log2 p alpha + 2 n beta + 4 sqrt(log2 p alpha n beta). That is
4(p-1) halves sent and 2(p-1) added by all together, and no rank sends or receives more than 4 of them: nearly the
ring's bytes at a latency of 2 log2 p messages.

Failures: a late rank delays the nodes above it, and then all ranks. A dead rank fails the round, which the
remaining ranks repeat.
"""

from dataclasses import dataclass
from typing import ClassVar

from .schedule import Op, Receipt, Step, Transfer, check_rank


@dataclass(frozen=True, slots=True)
class DoubleTree:
    """The schedule of two binary trees. In each step on the way up all nodes of one height send to their parents; on
    the way down the order is reversed."""

    name: ClassVar[str] = "double_tree"

    def parts(self, world: int) -> int:
        return 2

    def steps(self, rank: int, world: int) -> tuple[Step, ...]:
        check_rank(rank, world)
        levels = (world - 1).bit_length()
        send: list[list[Transfer]] = [[] for _ in range(2 * levels)]
        receive: list[list[Receipt]] = [[] for _ in range(2 * levels)]
        for tree in (0, 1):
            node = _node(rank, tree, world)
            if node:
                parent, step = _rank(_parent(node, world), tree, world), _height(node)
                send[step].append(Transfer(parent, tree))
                receive[-1 - step].append(Receipt(parent, tree, Op.COPY))
            for below in _children(node, world):
                child, step = _rank(below, tree, world), _height(below)
                receive[step].append(Receipt(child, tree, Op.ADD))
                send[-1 - step].append(Transfer(child, tree))
        return tuple(Step(tuple(sent), tuple(received)) for sent, received in zip(send, receive, strict=True))


def _node(rank: int, tree: int, world: int) -> int:
    """The node of a rank. The second tree is the first one mirrored, or in an odd world shifted by one."""
    if tree == 0:
        return rank
    return (rank - 1) % world if world % 2 else world - 1 - rank


def _rank(node: int, tree: int, world: int) -> int:
    if tree == 0:
        return node
    return (node + 1) % world if world % 2 else world - 1 - node


def _height(node: int) -> int:
    """The height of a node, which is that of its lowest bit. Not for node 0, the root, which is the highest."""
    return (node & -node).bit_length() - 1


def _parent(node: int, world: int) -> int:
    bit = node & -node
    above = node ^ bit | bit << 1
    return above if above < world else node ^ bit


def _children(node: int, world: int) -> list[int]:
    half = (node & -node if node else 1 << (world - 1).bit_length()) >> 1
    if not half:
        return []
    children = [node - half] if node else []
    while half and node + half >= world:
        half >>= 1
    return [*children, node + half] if half else children
