"""The promises of the membership by views on members that have lost the coordinator or were restarted, as predicates
over the event log of a simulation. A predicate yields a line for each way in which its promise is broken. A life is one
process of a peer, and a patience the time of the setting `patience_s`, after which a silent peer is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...protocols.members.edges import LostCoordinator
from ...protocols.members.messages import Promise
from ...protocols.members.states import Moved, State
from ...protocols.members.view import Answered, Believed, Bound, Decided, Followed, HeardOf
from ..scenarios.scenario import Kind, Scenario
from ..world.event_log import Entry, Fell, Gone, Heard
from .common import Check

_STANDS_STILL = (Kind.PAUSE, Kind.SLOW, Kind.HANG, Kind.FULL_DISK)
_GOES_ON = (State.MEMBER, State.CHANGING, State.LEADING, State.LEARNER)


def an_answer_shows_that_its_sender_is_there(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """When a member promises the proposer of its next view to follow a ballot, whichever ballot that is, the proposer
    takes the member to be there. Else two proposers whose members answer late would lead against each other for
    ever."""
    views: dict[str, int] = {}
    members: dict[int, tuple[str, ...]] = {}
    due: dict[str, str] = {}
    for time_s, life, event in entries:
        if (peer := due.pop(life, "")) and event != Answered(peer):
            yield f"{life} does not take {peer} to be there, which has answered before {time_s:.3f} s"
        if isinstance(event, Decided):
            members[event.generation] = event.members
        elif isinstance(event, Followed):
            views[life] = event.generation
        elif isinstance(event, Moved) and event.now not in _GOES_ON:
            views.pop(life, None)
        elif isinstance(event, Heard) and isinstance(event.what, Promise):
            now, denies = views.get(life), event.what.promised > event.what.ballot
            if event.what.generation == now and event.sender in members.get(now, ()) and not denies:
                due[life] = event.sender


def a_lost_coordinator_is_accused_again(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A member that has lost the coordinator, or its successor, and has neither a new view nor left within a patience,
    accuses it again: the words of others on it may be outdated. Not judged are processes that stood still."""
    until_s = 1.1 * scenario.settings.patience_s
    lost_s: dict[tuple[str, str], float] = {}
    still = stood_still(entries)
    for time_s, life, event in entries:
        for of in [of for of, since_s in lost_s.items() if of[0] == life and time_s > since_s + until_s]:
            yield f"{life} has lost {of[1]} at {lost_s.pop(of):.3f} s and does not accuse it again"
        if isinstance(event, LostCoordinator) and life not in still:
            lost_s.setdefault((life, event.coordinator), time_s)
            if event.again:
                lost_s[life, event.coordinator] = float("inf")
        elif isinstance(event, Followed | Gone) or (isinstance(event, Moved) and event.now not in _GOES_ON):
            lost_s = {of: since_s for of, since_s in lost_s.items() if of[0] != life}


def a_former_acceptor_goes_with_its_life(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A process that votes on behalf of a former life, and hears of a later view in which that life is a member, votes
    there within a patience, if it is not let in itself: the members of that view may count on it. Not judged are
    processes that stood still."""
    bound: dict[str, Bound] = {}
    due: dict[str, tuple[float, int]] = {}
    still = stood_still(entries)
    for time_s, life, event in entries:
        if life in due and time_s > due[life][0] + scenario.settings.patience_s:
            yield f"{life} does not vote in generation {due.pop(life)[1]}, in which its former life is a member"
        if isinstance(event, Bound):
            bound[life] = event
            if life in due and event.generation >= due[life][1]:
                del due[life]
        elif isinstance(event, HeardOf) and life in bound and life not in still:
            if event.life == bound[life].life and event.generation > bound[life].generation:
                due.setdefault(life, (time_s, event.generation))
        elif isinstance(event, Followed | Gone):
            due.pop(life, None)


def two_believed_decrees_have_an_honest_adopter(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A member goes on to a view only when so many of the n members that it reaches have adopted its decree, itself
    counted among them, that any two sets of so many share more than (n - 1) // 3: so they share an honest member, which
    has adopted one decree under a ballot (Bracha, "Asynchronous Byzantine agreement protocols", 1987)."""
    for time_s, life, event in entries:
        if isinstance(event, Believed) and 2 * event.agree - event.reached <= (event.reached - 1) // 3:
            yield f"{life} goes on at {time_s:.3f} s as {event.agree} of {event.reached} have adopted a decree"


def stood_still(entries: Sequence[Entry]) -> set[str]:
    """The lives whose process was paused, slowed down or hung, or had a full disk, at some time."""
    strokes = (event for *_, event in entries if isinstance(event, Fell) and event.kind in _STANDS_STILL)
    return {life for stroke in strokes for life in stroke.who}


WORDS: tuple[Check, ...] = (
    an_answer_shows_that_its_sender_is_there,
    a_lost_coordinator_is_accused_again,
    a_former_acceptor_goes_with_its_life,
    two_believed_decrees_have_an_honest_adopter,
)
"""More promises that are checked in every simulation whose members agree on views."""
