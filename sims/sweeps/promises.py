"""The promises that are checked for a scenario: the common ones, and those of its conversation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ..checkers.common import COMMON, WHATEVER_A_MEMBER_SAYS, Check
from ..conversations.simulation import simulation_of
from ..scenarios.scenario import Scenario
from ..world.event_log import Entry, Resumed


def promises(scenario: Scenario) -> dict[str, Check]:
    """Name, as a sentence -> `Check`, for each promise that must hold in this scenario. With a hostile member only some
    must."""
    own, checks = simulation_of(scenario.settings).checkers, COMMON
    if scenario.has_hostile_member:
        own, checks = simulation_of(scenario.settings).whatever_a_member_says, WHATEVER_A_MEMBER_SAYS
    return {check.__name__.replace("_", " "): check for check in (*own, *checks)}


def violations(check: Check, scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A line for each way in which the promise `check` is broken. When the run was resumed from checkpoints, the events
    before and after that are checked separately."""
    ends = [place for place, entry in enumerate(entries) if isinstance(entry.event, Resumed)]
    for start, end in pairwise((0, *ends, len(entries))):
        yield from check(scenario, entries[start:end])


def broken(scenario: Scenario, entries: Sequence[Entry]) -> str | None:
    """The first broken promise and the way in which it is broken, as one line; None when all hold."""
    for name, check in promises(scenario).items():
        for how in violations(check, scenario, entries):
            return f"{name}: {how}"
    return None
