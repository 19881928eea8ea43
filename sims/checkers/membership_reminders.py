"""The promises of the membership by views on changes of the view that come to no end for a member, as predicates over
the event log of a simulation. A predicate yields a line for each way in which its promise is broken. A patience is the
time of the setting `patience_s`, after which a silent peer is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...protocols.members.echoes import Echo
from ...protocols.members.messages import Adopt, Adopted, Behind, Promise, Propose
from ...protocols.members.reminders import Reminds
from ...protocols.members.states import Moved, State
from ...protocols.members.view import Decided, Followed, HeardOf
from ...protocols.transport import PeerId
from ..scenarios.scenario import Scenario
from ..world.event_log import Entry, Gone, Heard, Told, id_of
from .common import Check
from .membership_over_lives import stood_still

_INSIDE = (State.MEMBER, State.CHANGING, State.LEADING)


@dataclass(slots=True)
class _Views:
    """The view of each life that is a member, and since when it waits for the end of something there. `generation`: by
    life, that of its view; `due`: by life, what it waits for, and since when."""

    generation: dict[str, int] = field(default_factory=dict)
    due: dict[str, dict[PeerId, float]] = field(default_factory=dict)
    inside: set[str] = field(default_factory=set)

    def saw(self, life: str, event: object) -> None:
        """Note an event: nothing is due in a view that a life has left."""
        if isinstance(event, Followed):
            self.generation[life] = event.generation
        elif isinstance(event, Moved):
            self.inside = self.inside | {life} if event.now in _INSIDE else self.inside - {life}
        if isinstance(event, Followed | HeardOf | Gone) or (isinstance(event, Moved) and event.now not in _INSIDE):
            self.due.pop(life, None)


def a_promise_is_passed_on(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A member that has answered a proposer, and has no next view a heartbeat interval later, passes the proposal on,
    and again a patience later: to the most senior member that it reaches, unless this is the proposer or itself. Not
    judged are processes that stood still."""
    views, still = _Views(), stood_still(entries)
    interval_s, told_s = scenario.settings.patience_s / 4, dict[tuple[str, PeerId], float]()
    reminds: dict[str, tuple[float, PeerId]] = {}
    for time_s, life, event in entries:
        for peer, since_s in list(views.due.get(life, {}).items()):
            if time_s > since_s + 1.1 * interval_s and not isinstance(event, Reminds):
                views.due[life].clear()
                yield f"{life} has answered {peer} and passes the proposal on to nobody from {since_s:.3f} s on"
        if life in reminds and time_s > reminds[life][0]:
            since_s, peer = reminds.pop(life)
            if told_s.get((life, peer)) != since_s:
                yield f"{life} does not pass a proposal on to {peer}, which it reaches, at {since_s:.3f} s"
        views.saw(life, event)
        if isinstance(event, Reminds):
            views.due[life] = {} if life in still else {event.proposer: time_s + scenario.settings.patience_s}
            if event.reached and event.reached[0] not in (id_of(life), event.proposer):
                reminds[life] = time_s, event.reached[0]
        elif isinstance(event, Told) and isinstance(event.what, Promise | Adopted):
            now = event.what.generation == views.generation.get(life) and life in views.inside
            if now and life not in still and not views.due.get(life):
                views.due[life] = {event.to: time_s}
        elif isinstance(event, Told) and isinstance(event.what, Propose):
            told_s[life, event.to] = time_s


def who_may_be_ahead_is_asked(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A member asks another for its view within a patience, if that has told that it has adopted a decree, and this
    member has not gone on by then. Not judged are processes that stood still."""
    views, still = _Views(), stood_still(entries)
    patience_s, members = scenario.settings.patience_s, dict[int, tuple[PeerId, ...]]()
    for time_s, life, event in entries:
        for peer, since_s in list(views.due.get(life, {}).items()):
            if time_s > since_s + 1.05 * patience_s:
                del views.due[life][peer]
                yield f"{life} does not ask {peer} for its view, of which it has heard at {since_s:.3f} s"
        views.saw(life, event)
        if isinstance(event, Decided):
            members[event.generation] = event.members
        elif isinstance(event, Told) and isinstance(event.what, Behind):
            views.due.get(life, {}).pop(event.to, None)
        elif isinstance(event, Heard) and isinstance(event.what, Echo):
            now = views.generation.get(life, 0)
            judged = life in views.inside and life not in still and event.what.generation == now
            if judged and event.sender in members.get(now, ()):
                views.due.setdefault(life, {}).setdefault(event.sender, time_s)


def nobody_proposes_in_a_view_that_is_over(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A member that leads a change of the view proposes nothing more, and asks nobody to adopt anything, once it has
    gone on to another view."""
    views = _Views()
    for time_s, life, event in entries:
        views.saw(life, event)
        if isinstance(event, Told) and isinstance(event.what, Propose | Adopt):
            now = views.generation.get(life, 0)
            if event.what.generation < now:
                yield f"{life} proposes in generation {event.what.generation} at {time_s:.3f} s, and is in {now}"


def the_coordinator_proposes_again_at_once(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """If another member denies the ballot of the most senior one, which leads, that proposes again within a heartbeat
    interval, however often that happens: others cannot hold up a change by proposals of their own. Not judged are
    processes that stood still."""
    views, still = _Views(), stood_still(entries)
    interval_s, senior = scenario.settings.patience_s / 4, dict[int, PeerId]()
    ballots: dict[str, int] = {}
    for time_s, life, event in entries:
        for peer, since_s in list(views.due.get(life, {}).items()):
            if time_s > since_s + 1.05 * interval_s:
                views.due[life].clear()
                yield f"{life}, whose ballot {peer} has denied at {since_s:.3f} s, does not propose again"
        views.saw(life, event)
        if isinstance(event, Decided):
            senior[event.generation] = event.senior
        elif isinstance(event, Moved) and event.now != State.LEADING:
            views.due.pop(life, None)
        elif isinstance(event, Told) and isinstance(event.what, Propose):
            if event.what.ballot != ballots.get(life):
                views.due.pop(life, None)
            ballots[life] = event.what.ballot
        elif isinstance(event, Heard) and isinstance(event.what, Promise | Adopted):
            now, leads = views.generation.get(life, 0), life in views.inside and life not in still
            denies = event.what.promised > event.what.ballot == ballots.get(life)
            if leads and denies and event.what.generation == now and senior.get(now) == id_of(life):
                views.due.setdefault(life, {}).setdefault(event.sender, time_s)


REMINDERS: tuple[Check, ...] = (
    a_promise_is_passed_on,
    who_may_be_ahead_is_asked,
    nobody_proposes_in_a_view_that_is_over,
    the_coordinator_proposes_again_at_once,
)
"""Promises that are checked in every simulation whose members agree on views."""
