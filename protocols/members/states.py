"""States of one peer in a run, and the transitions between them. `TABLE` lists every transition.

    outside -> joining -> learner -> member <-> changing <-> leading      the usual way in, and each change of the view
       ^          |          |         |
       |          +----------+---------+--> expelled --+                  the others went on without it: it joins again
       +-----------------------------------------------+
                  |          |         |
                  |          +---------+--> leaving, finished, failed     the ends
       ^          +------------------------------------> failed           it is let in no more
       +---------------------------------------------------+              but by another contact, perhaps

A newcomer that finds all more senior members gone leads a change at once. A peer that begins to ask another contact is
outside again; it may still be let in from there, through its first contact.

Before the run has started, a newcomer becomes a member at once; the founder is a member from the beginning. "Suspected"
and "gone" are no states of a peer, but what another peer believes about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..testpoints import witness
from .admission import Admission
from .errors import Expelled
from .roster import Roster
from .view_change import Change


class State(StrEnum):
    OUTSIDE = "outside"  # in no view
    JOINING = "joining"  # has asked to be let in
    LEARNER = "learner"  # in the view, without a vote; it fetches the state
    MEMBER = "member"  # has a vote and a rank
    CHANGING = "changing"  # has promised to follow another's ballot, or adopted its decree
    LEADING = "leading"  # proposes the next view
    LEAVING = "leaving"  # has told the others that it goes
    FINISHED = "finished"  # is done, and stays until the others are
    EXPELLED = "expelled"  # the others went on without it
    FAILED = "failed"  # cannot go on


_ENDS = (State.LEAVING, State.FINISHED, State.EXPELLED, State.FAILED)

TABLE: dict[State, frozenset[State]] = {
    State.OUTSIDE: frozenset({State.JOINING, State.LEARNER, State.MEMBER}),
    State.JOINING: frozenset({State.OUTSIDE, State.LEARNER, State.MEMBER, State.LEADING, State.EXPELLED, State.FAILED}),
    State.LEARNER: frozenset({State.MEMBER, State.LEADING, State.OUTSIDE, State.LEAVING, State.EXPELLED, State.FAILED}),
    State.MEMBER: frozenset({State.CHANGING, State.LEADING, State.OUTSIDE, *_ENDS}),
    State.CHANGING: frozenset({State.MEMBER, State.LEADING, State.OUTSIDE, *_ENDS}),
    State.LEADING: frozenset({State.MEMBER, State.CHANGING, State.OUTSIDE, *_ENDS}),
    State.LEAVING: frozenset({State.OUTSIDE, State.EXPELLED, State.FAILED}),
    State.FINISHED: frozenset({State.LEAVING, State.EXPELLED, State.FAILED}),
    State.EXPELLED: frozenset({State.OUTSIDE, State.LEAVING}),
    State.FAILED: frozenset({State.OUTSIDE, State.LEAVING}),
}
"""The states that may follow each state."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Event for a simulation's checkers: a peer's state has changed from `before` to `now`."""

    before: State
    now: State


class States:
    """The present state of one peer (`now`). Each transition is reported to a simulation's checkers."""

    def __init__(self, roster: Roster, change: Change, admission: Admission) -> None:
        self._roster, self._change, self._admission = roster, change, admission
        self._known = State.OUTSIDE
        roster.on_change.append(self._note)

    @property
    def now(self) -> State:
        """This peer's present state."""
        roster = self._roster
        if roster.failed is not None:
            return State.EXPELLED if isinstance(roster.failed, Expelled) else State.FAILED
        if roster.id in roster.leaving:
            return State.LEAVING
        if roster.id in roster.finished:
            return State.FINISHED
        if roster.id not in roster.view.ids:
            asks = self._admission.asks and not roster.view.generation
            return State.LEARNER if roster.learns else State.JOINING if asks else State.OUTSIDE
        return State.LEADING if self._change.leads else State.CHANGING if self._change.promised else State.MEMBER

    def _note(self) -> None:
        before, self._known = self._known, self.now
        if before is not self._known:
            witness(Moved(before, self._known))
