"""The promises of the membership by SWIM, as predicates over the event log of a simulation. A predicate yields a line
for each way in which its promise is broken. In a run whose members agree on views none is ever broken, because there
are no such events. A patience is the time of the setting `patience_s`, after which a silent peer is lost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...protocols.members.states import Moved, State
from ...protocols.swim.beliefs import TABLE, Begun, Belief, Believes
from ...protocols.swim.effects import Refuted, Renewed
from ..scenarios.scenario import Kind, Scenario
from ..world.event_log import Entry, Fell, Gone
from .common import Check

_SETTLE, _CLEARED, _BACK, _KNOWN = 2, 6, 16, 10
"""In patiences, each of four periods: the time after the last fault from which on a run is judged; the time within
which a live suspect is cleared; within which a live peer that was given up is a member again; and within which a dead
peer is given up by each of up to 16 peers."""
_GONE = (Belief.LOST, Belief.LEFT)
_THERE = (Belief.ALIVE, Belief.SUSPECT, Belief.DOUBTED)
_HARMLESS = (Kind.CRASH, Kind.FULL_DISK, Kind.SPOIL)
"""Faults without an end that do not disturb other peers."""


def a_peer_believes_only_what_the_table_of_beliefs_says(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A peer's belief about another changes only as `swim.beliefs.TABLE` allows. A peer that was lost or has left
    becomes alive again only by its own word, or with a higher incarnation than it had."""
    last: dict[tuple[str, str], Believes] = {}
    for time_s, life, event in entries:
        if not isinstance(event, Believes):
            continue
        before = last.get((life, event.peer))
        last[life, event.peer] = event
        belief = Belief.UNKNOWN if before is None else before.belief
        if event.belief not in TABLE[belief]:
            yield f"{life} took {event.peer} for {belief} and then for {event.belief} at {time_s:.3f} s"
        elif before is not None and belief in _GONE and not event.own and event.incarnation <= before.incarnation:
            yield f"{life} took {event.peer} for alive again in incarnation {event.incarnation} at {time_s:.3f} s"


def incarnations_only_grow(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A peer's incarnation only grows. So does the incarnation that others know of it, unless a word of that peer
    itself corrects it."""
    own: dict[str, int] = {}
    known: dict[tuple[str, str, int], int] = {}
    for time_s, life, event in entries:
        if isinstance(event, Refuted):
            if event.incarnation <= own.get(life, -1):
                yield f"{life} went from incarnation {own[life]} to {event.incarnation} at {time_s:.3f} s"
            own[life] = event.incarnation
        elif isinstance(event, Believes):
            of = (life, event.peer, event.life)
            if event.incarnation < known.get(of, 0) and not event.own:
                told = f"from incarnation {known[of]} to {event.incarnation}"
                yield f"{life} went {told} of {event.peer} at {time_s:.3f} s"
            known[of] = event.incarnation


def a_refutation_ends_the_suspicion(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A peer that learns of a higher incarnation of a member than that in which the member was accused suspects it no
    more."""
    held: dict[tuple[str, str], Believes] = {}
    for time_s, life, event in entries:
        if isinstance(event, Believes):
            held[life, event.peer] = event
        elif isinstance(event, Renewed) and (belief := held.get((life, event.peer))) is not None:
            accused = belief.belief in (Belief.SUSPECT, Belief.DOUBTED) and belief.life == event.life
            if accused and event.incarnation > belief.incarnation:
                yield f"{life} takes {event.peer} for {belief.belief} at {time_s:.3f} s, after its refutation"


def a_peer_that_answers_is_neither_suspected_nor_given_up_for_long(
    scenario: Scenario, entries: Sequence[Entry]
) -> Iterator[str]:
    """Once faults are over, a suspicion of a live peer ends within 6 patiences. Where each peer knows all others, a
    live peer that was given up becomes a member again within 16."""
    patience_s, runs = scenario.settings.patience_s, _Runs(entries)
    since_s, whole = _healed_s(scenario, entries), _knows_all(scenario)
    for held in _held(entries):
        wrong = held.belief in (Belief.SUSPECT, Belief.DOUBTED)
        if not wrong and not (whole and held.belief is Belief.LOST):
            continue
        until_s = min(held.until_s, runs.until_s(held.observer), runs.until_s(runs.process(held.peer, held.life)))
        if until_s - max(held.since_s, since_s) > (_CLEARED if wrong else _BACK) * patience_s:
            yield f"{held.observer} took {held.peer} for {held.belief} from {held.since_s:.1f} to {until_s:.1f} s"


def the_dead_are_known_to_all(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """Once faults are over, no peer holds a process for a member for more than 10 patiences after that process has
    ended."""
    patience_s, runs, since_s = scenario.settings.patience_s, _Runs(entries), _healed_s(scenario, entries)
    for held in _held(entries):
        if held.belief not in _THERE:
            continue
        ended_s = runs.until_s(runs.process(held.peer, held.life))
        until_s = min(held.until_s, runs.until_s(held.observer))
        if until_s - max(held.since_s, ended_s, since_s) > _KNOWN * patience_s:
            yield f"{held.observer} took {held.peer} for {held.belief} until {until_s:.1f} s, ended at {ended_s:.1f} s"


SWIM: tuple[Check, ...] = (
    a_peer_believes_only_what_the_table_of_beliefs_says,
    incarnations_only_grow,
    a_refutation_ends_the_suspicion,
    a_peer_that_answers_is_neither_suspected_nor_given_up_for_long,
    the_dead_are_known_to_all,
)


@dataclass(frozen=True, slots=True)
class _Held:
    """The process `observer` held this `belief` about the life `life` of `peer` from `since_s` to `until_s`."""

    observer: str
    peer: str
    life: int
    belief: Belief
    since_s: float
    until_s: float


def _held(entries: Sequence[Entry]) -> Iterator[_Held]:
    last: dict[tuple[str, str], tuple[float, Believes]] = {}
    for time_s, observer, event in entries:
        if isinstance(event, Believes):
            if (before := last.get((observer, event.peer))) is not None:
                yield _Held(observer, event.peer, before[1].life, before[1].belief, before[0], time_s)
            last[observer, event.peer] = time_s, event
    for (observer, peer), (since_s, event) in last.items():
        yield _Held(observer, peer, event.life, event.belief, since_s, math.inf)


class _Runs:
    """The processes of a run, and the time until which each takes part."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._named: dict[int, str] = {}
        self._ends: dict[str, float] = {}
        self._over_s = entries[-1].time_s if entries else 0.0
        for time_s, life, event in entries:
            if isinstance(event, Begun):
                self._named[event.life] = life
                self._ends.pop(life, None)  # it had left for a while
            elif isinstance(event, Gone) or (isinstance(event, Moved) and event.now is State.LEAVING):
                self._ends.setdefault(life, time_s)

    def process(self, peer: str, life: int) -> str:
        """The process that takes part with this life of `peer`; "": there is none."""
        return self._named.get(life, "")

    def until_s(self, process: str) -> float:
        """The time at which the process ended or announced that it leaves; the end of the log if it did neither. 0:
        there is no such process."""
        return self._ends.get(process, self._over_s) if process else 0.0


def _healed_s(scenario: Scenario, entries: Sequence[Entry]) -> float:
    """The time at which all faults have been over for `_SETTLE` patiences; infinite: some do not end."""
    over_s = scenario.buggify_until_s
    for time_s, _, event in entries:
        if isinstance(event, Fell):
            ends_s = time_s if event.kind in _HARMLESS else event.until_s
            over_s = math.inf if ends_s is None else max(over_s, ends_s)
    return over_s + _SETTLE * scenario.settings.patience_s


def _knows_all(scenario: Scenario) -> bool:
    settings = scenario.settings
    return settings.own.membership_kind().links(settings.peers) is None
