"""The groups of Moshpit averaging: rows of a grid, along another axis in each round.

Source: Ryabinin et al., "Moshpit SGD: communication-efficient decentralized training on heterogeneous unreliable
devices", NeurIPS 2021, arXiv 2103.03239, Algorithm 1. With side^d vertices, d rounds give the exact mean.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from .topology import Neighbours


@dataclass(frozen=True, slots=True)
class Grid:
    """The vertices stand in a grid of `axes` axes with equal sides, which the last vertices may leave incomplete. In
    round r two vertices are neighbours if they differ along the axis r mod `axes` only. Raises ValueError on other than
    1 to 16 axes."""

    axes: int = 2
    directed = False
    varies = True

    def __post_init__(self) -> None:
        if not 1 <= self.axes <= 16:
            raise ValueError("a grid has 1 to 16 axes")

    def side(self, count: int) -> int:
        """The number of vertices along each side of a grid for `count` vertices (at least 1): the least whole number
        with ``side ** axes >= count``."""
        return next(side for side in range(1, count + 1) if side**self.axes >= count)

    def neighbours(self, count: int, round: int) -> Neighbours:
        step = self.side(count) ** (round % self.axes)
        rows = defaultdict[int, list[int]](list)
        for vertex in range(count):
            rows[self._row(count, vertex, step)].append(vertex)
        members = [rows[self._row(count, vertex, step)] for vertex in range(count)]
        return tuple(tuple(one for one in row if one != vertex) for vertex, row in enumerate(members))

    def _row(self, count: int, vertex: int, step: int) -> int:
        """The vertex with which this one's row along the axis of that `step` begins."""
        return vertex - vertex // step % self.side(count) * step
