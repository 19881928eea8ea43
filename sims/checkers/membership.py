"""The promises of the membership by views, which are lists of members that all agree on, as predicates over the event
log of a simulation. A predicate yields a line for each way in which its promise is broken. A patience is the time of
the setting `patience_s`, after which a silent peer is lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ...protocols.members.admission import Asks, Overruled
from ...protocols.members.edges import Reaches, VouchedFor
from ...protocols.members.messages import Adopt, Adopted, Behind, Install, Learned, Promise, Propose, Suspicion
from ...protocols.members.occasion import Counted
from ...protocols.members.states import Moved, State
from ...protocols.members.view import Decided, Followed
from ..scenarios.scenario import Scenario
from ..world.event_log import Entry, Heard, Told
from ..world.hostile import GUEST, KEY
from .common import Check
from .membership_over_lives import WORDS
from .membership_reminders import REMINDERS

_NOBODY = Overruled(0, ())
_OF_VIEWS = (Propose, Promise, Adopt, Adopted, Behind, Suspicion, Learned)
_INSIDE = (State.MEMBER, State.CHANGING, State.LEADING, State.LEARNER)


def whoever_is_behind_is_told(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A peer whose message shows that it does not know the present view, although it is in it, is sent that view: at
    once, unless the receiver has sent it within a quarter of the patience. A peer that hears of a later view than its
    own asks the sender for that view."""
    interval_s = scenario.settings.patience_s / 4
    everybody: dict[int, tuple[str, ...]] = {}
    views: dict[str, int] = {}
    inside: dict[str, bool] = {}
    due: dict[tuple[str, str], tuple[float, bool, int]] = {}
    told_s: dict[tuple[str, str, bool], float] = {}
    for time_s, life, event in entries:
        told_to = event.to if isinstance(event, Told) and isinstance(event.what, Install | Behind) else ""
        for of in [of for of in due if of[0] == life and of[1] != told_to]:
            since_s, later, generation = due.pop(of)
            if told_s.get((*of, later), -1.0) < since_s - (0.0 if later else interval_s):
                what = f"is not asked for generation {generation}" if later else f"is not sent generation {views[life]}"
                yield f"{of[1]} {what} by {life} at {since_s:.3f} s"
        if isinstance(event, Decided):
            everybody[event.generation] = (*event.members, *event.learners)
        elif isinstance(event, Followed):
            views[life] = event.generation
            told_s = {of: at_s for of, at_s in told_s.items() if of[0] != life}
        elif isinstance(event, Moved):
            inside[life] = event.now in _INSIDE
        elif isinstance(event, Told) and told_to:
            due.pop((life, told_to), None)
            told_s[life, event.to, isinstance(event.what, Behind)] = time_s
        elif isinstance(event, Heard) and inside.get(life) and isinstance(event.what, _OF_VIEWS):
            told, now = event.what.generation, views.get(life, 0)
            if event.sender.startswith((KEY, GUEST)):
                continue
            if told > now > 0 or (told < now and event.sender in everybody.get(now, ())):
                due[life, event.sender] = time_s, told > now, told


def a_contact_hears_by_which_view_a_newcomer_was_removed(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A peer that a view has removed, and that then asks a member of that view to let it in, sends the member this view
    first: the member may not have heard of it, and would take the peer for a member."""
    overruled: dict[str, Overruled] = {}
    told: dict[str, tuple[float, str]] = {}
    for time_s, life, event in entries:
        if isinstance(event, Overruled):
            overruled[life] = event
        elif isinstance(event, Told) and isinstance(event.what, Install):
            told[life] = time_s, event.to
        elif isinstance(event, Asks) and event.contact in (by := overruled.get(life, _NOBODY)).everybody:
            if told.get(life) == (time_s, event.contact):
                continue
            yield f"{life} does not tell {event.contact} of generation {by.generation}, which removed it"


def the_time_of_gathering_keeps_nobody_out(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """Once the run has started, the seconds that a change of the view takes are counted, and newcomers wait after slow
    changes. Those of changes before the start are not counted."""
    started: dict[str, bool] = {}
    for time_s, life, event in entries:
        if isinstance(event, Decided):
            started[life] = event.started
        elif isinstance(event, Counted) and not started.get(life, True):
            yield f"{life} counts {event.seconds:.3f} s of a change before the start at {time_s:.3f} s"


def nobody_joins_anew_for_a_coordinator_that_has_ended(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A peer that joins anew because it has lost a coordinator that others still hear (`VouchedFor`) was told so by
    another member within the last half of a patience."""
    heard_s: dict[str, dict[str, float]] = defaultdict(dict)
    for time_s, life, event in entries:
        if isinstance(event, Heard) and isinstance(event.what, Reaches):
            heard_s[life][event.what.peer] = time_s
        elif isinstance(event, VouchedFor):
            since_s = heard_s[life].get(event.coordinator, -1.0)
            if since_s < time_s - 0.51 * scenario.settings.patience_s:
                yield f"{life} joins anew at {time_s:.3f} s, as {event.coordinator} was heard of at {since_s:.3f} s"


MEMBERSHIP: tuple[Check, ...] = (
    whoever_is_behind_is_told,
    a_contact_hears_by_which_view_a_newcomer_was_removed,
    the_time_of_gathering_keeps_nobody_out,
    nobody_joins_anew_for_a_coordinator_that_has_ended,
    *WORDS,
    *REMINDERS,
)
"""The promises that are checked in every simulation whose members agree on views. In others they hold trivially,
because there are no such events."""
