"""The algorithms of the parameter server by name, and the syntax by which a user chooses one: ``sync``, ``backup:2``.
Adding one is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....aggregation.options import made_of, whole
from .algorithm import Algorithm
from .sync import Sync

ALGORITHMS: Mapping[str, tuple[Callable[..., Algorithm], int]] = {
    "sync": (Sync, 0),
    "backup": (lambda workers="1": Sync(whole(workers)), 1),
}
"""Name -> a function that makes the algorithm from its options, which are texts, and the most options it takes."""


def parse_algorithm(text: str) -> Algorithm:
    """The algorithm a user asks for: a name of `ALGORITHMS` with its options after colons. Raises ValueError, in one
    line, on anything else."""
    return made_of(text, ALGORITHMS, "algorithm")
