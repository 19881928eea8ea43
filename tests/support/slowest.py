"""What the gate costs: at the end of a whole run the files that took longest, and all files beside the budget.

The sum is of wall time, which a busy machine makes longer, so nothing fails by it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Protocol

BUDGET_S = 960.0
"""Seconds of the three workers of `make test` on two idle cores, which make 320 s: start and lint fit into the rest."""
FILES_MIN = 100
"""Of fewer files nothing is told: not the whole was run."""
SHOWN = 10


class Timed(Protocol):
    """A phase of a test, as pytest reports it."""

    nodeid: str
    duration: float


def by_file(phases: Iterable[Timed]) -> dict[str, float]:
    """The seconds of each test file, the longest first."""
    seconds = defaultdict[str, float](float)
    for phase in phases:
        seconds[phase.nodeid.split("::")[0]] += phase.duration
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def lines(phases: Iterable[Timed]) -> Iterator[str]:
    seconds = by_file(phases)
    if len(seconds) < FILES_MIN:
        return
    for file, of_file in [*seconds.items()][:SHOWN]:
        yield f"{of_file:6.1f} s  {file}"
    total = sum(seconds.values())
    yield f"{total:6.1f} s  all {len(seconds)} files, of {BUDGET_S:g} s"
    if total > BUDGET_S:
        yield "over the budget, if the machine was idle: make cases fewer or cheaper, or `soaked` (CONTRIBUTING.md)"
