"""Slim Fly: graphs of diameter 2 with few edges.

Source: Besta and Hoefler, "Slim Fly: a cost effective low-diameter network topology", SC 2014; the graphs of McKay,
Miller and Siran (1998). For a prime q = 4 w + d with d = 1 or -1, and a primitive root xi of q, there are 2 q^2
vertices (0, x, y) and (1, m, c) of degree (3 q - d) / 2:

    (0, x, y) - (0, x, y')  if y - y' is in X        (1, m, c) - (1, m, c')  if c - c' is in X'
    (0, x, y) - (1, m, c)   if y = m x + c  mod q

X, X' are the even and the odd powers of xi for d = 1; for d = -1 see `_differences`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .regular import Complete, Static
from .topology import Edge, Neighbours, of_edges


def is_prime(number: int) -> bool:
    return number > 1 and all(number % one for one in range(2, int(number**0.5) + 1))


def core(count: int) -> int | None:
    """The largest odd prime q whose Slim Fly, of 2 q^2 vertices, has at most `count` vertices. None below 18 vertices,
    which the smallest has."""
    found = [q for q in range(3, int((count / 2) ** 0.5) + 2) if is_prime(q) and 2 * q * q <= count]
    return max(found, default=None)


def _primitive_root(q: int) -> int:
    return next(one for one in range(2, q) if len({pow(one, power, q) for power in range(q - 1)}) == q - 1)


def _differences(q: int) -> tuple[set[int], set[int]]:
    """X and X' of the prime `q`."""
    xi, w = _primitive_root(q), (q + 1) // 4
    if q % 4 == 1:
        return {pow(xi, power, q) for power in range(0, q - 1, 2)}, {pow(xi, power, q) for power in range(1, q - 1, 2)}
    even, odd = range(0, 2 * w - 1, 2), range(2 * w - 1, 4 * w - 2, 2)
    first = {pow(xi, power, q) for power in (*even, *odd)}
    return first, {one * xi % q for one in first}


def _edges(q: int) -> Iterator[Edge]:
    """The edges among (0, x, y), numbered q x + y, and (1, m, c), numbered q^2 + q m + c."""
    first, second = _differences(q)
    for line in range(q):
        for one in range(q):
            for other in range(q):
                if (one - other) % q in first:
                    yield q * line + one, q * line + other
                if (one - other) % q in second:
                    yield q * (q + line) + one, q * (q + line) + other
                yield q * line + (other * line + one) % q, q * (q + other) + one


@dataclass(frozen=True, slots=True)
class SlimFly(Static):
    """The largest Slim Fly that has at most as many vertices as asked for; each further vertex is joined to two of its
    vertices. Below 18 vertices, where there is no Slim Fly, every vertex is joined to every other."""

    def neighbours(self, count: int, round: int) -> Neighbours:
        if (q := core(count)) is None:
            return Complete().neighbours(count, round)
        size = 2 * q * q
        further = range(size, count)
        hang = [(one % size, one) for one in further] + [((one + q * q) % size, one) for one in further]
        return of_edges(count, [*_edges(q), *hang])
