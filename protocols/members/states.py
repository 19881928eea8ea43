"""States: what one peer can be to a run, and what it can become next. The table is the whole of it.

    outside -> joining -> learner -> member <-> changing <-> leading      the usual way in, and each change of the view
       ^          |          |         |
       |          +----------+---------+--> expelled --+                  the others went on without it: it joins again
       +-----------------------------------------------+
                  |          |         |
                  |          +---------+--> leaving, finished, failed     the ends
                  +------------------------------------> failed           it is let in no more

A newcomer that finds all more senior members gone leads at once. A peer that begins to ask another goes back to
outside, from where the first one's introduction may still let it in.

Before the run has started a newcomer is a member at once, and whoever founds it is so from the beginning. What others
hold a member for, suspected or gone, is their view of it and no state of its own.
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
    MEMBER = "member"  # has a vote, and takes part in rounds
    CHANGING = "changing"  # has promised to follow another's ballot, or adopted its decree
    LEADING = "leading"  # proposes the next view
    LEAVING = "leaving"  # has told the others that it goes
    FINISHED = "finished"  # has committed the last round
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
    State.FAILED: frozenset({State.LEAVING}),
}
"""What each can become."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A peer was `before` and is `now`, for a simulation's checkers."""

    before: State
    now: State


class States:
    """Which of them one peer is in, told as it changes."""

    def __init__(self, roster: Roster, change: Change, admission: Admission) -> None:
        self._roster, self._change, self._admission = roster, change, admission
        self._known = State.OUTSIDE
        roster.on_change.append(self._note)

    @property
    def now(self) -> State:
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
