"""The promises that hold while a member tells one lie again and again, and nothing else goes wrong (`Lie`), as
predicates over the event log of a simulation. A predicate yields a line for each way in which its promise is broken. A
patience is the time of the setting `patience_s`, after which a silent peer is lost.

Three weaknesses of docs/security.md are left out. The most senior member, which may lead every change, tells no lie by
which it would propose (`sims.world.repeated_lies`). Views of fewer than four members are not judged: of three, none can
know which of the two others lies. And a member that hears of nobody else goes on by a liar's word, so scenarios with
other faults are not judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from ...protocols.link.refusals import NotOpen
from ...protocols.local_sgd.rounds import Committed, Installed
from ...protocols.members.view import Followed
from ...protocols.wire.frames import Lane, Unopened
from ..scenarios.scenario import Kind, Scenario
from ..world.event_log import Entry, Fell, Gone, Heard, Told, id_of, peer_of
from .common import Check
from .membership_reminders import the_coordinator_proposes_again_at_once

_MEMBERS_MIN = 4
_APART_MAX = 3.0
"""The most patiences from one round to the next."""
_SHARE_MIN = 0.4
"""The least share of the rounds that are made, beside those in as much time before any lie."""
_CHANGES_MAX, _MORE = 3.0, 6
"""The most changes of the view in each patience, and how many more there may be."""


class _Lied(NamedTuple):
    """The time in which a member repeated a lie."""

    since_s: float
    until_s: float


def a_lie_stops_no_rounds_of_the_others(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """While a member lies, the honest ones commit a round every three patiences at least, and two fifths as many rounds
    as before."""
    honest, patience_s = _of_honest_ones(scenario, entries), scenario.settings.patience_s
    first_s = dict[int, float]()
    for time_s, _, event in honest:
        if isinstance(event, Committed) and event.attempt is not None:
            first_s.setdefault(event.round, time_s)
    rounds, times = sorted(first_s.values()), _lied(scenario, entries)
    before = [time_s for time_s in rounds if times and time_s < times[0].since_s]
    for since_s, until_s in times if len(before) > 1 else ():
        usual = (len(before) - 1) / (before[-1] - before[0]) * (until_s - since_s)
        made = [time_s for time_s in rounds if since_s <= time_s < until_s]
        longest_s = max(later - sooner for sooner, later in pairwise((since_s, *made, until_s)))
        if longest_s > _APART_MAX * patience_s:
            yield f"no round is committed for {longest_s:.3f} s while a member lies from {since_s:.3f} s on"
        if len(made) < _SHARE_MIN * usual:
            yield f"{len(made)} of {usual:.0f} rounds are made while a member lies from {since_s:.3f} s on"


def a_lie_leaves_no_honest_member_out(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """Each view to which an honest member goes on while a member lies, or later, has all honest members."""
    times, honest = _lied(scenario, entries), _of_honest_ones(scenario, entries)
    all_of_them = {id_of(life) for _, life, event in honest if isinstance(event, Installed)}
    for time_s, life, event in honest:
        if times and time_s >= times[0].since_s and isinstance(event, Installed):
            for peer in sorted(all_of_them.difference(event.members)):
                yield f"{life} goes on to generation {event.generation} without {peer} at {time_s:.3f} s"


def a_lie_changes_the_view_only_so_often(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """While a member lies, no honest one goes on to more than three new views in a patience, and six more."""
    patience_s, honest = scenario.settings.patience_s, _of_honest_ones(scenario, entries)
    for since_s, until_s in _lied(scenario, entries):
        views = Counter(
            life for time_s, life, event in honest if isinstance(event, Followed) and since_s <= time_s < until_s
        )
        most = _CHANGES_MAX * (until_s - since_s) / patience_s + _MORE
        for life, count in views.items():
            if count > most:
                yield f"{life} goes on to {count} views while a member lies from {since_s:.3f} s on"


def a_lie_makes_no_honest_member_give_up(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """Beside a member that lies all others finish the run."""
    for _, life, event in _of_honest_ones(scenario, entries) if _lied(scenario, entries) else ():
        if isinstance(event, Gone) and not event.finished:
            yield f"{life} gave up: {event.error or 'without a word'}"


def an_honest_coordinator_proposes_again_at_once(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """The coordinator proposes again at once if its ballot is denied, also where that is due to a liar's proposals."""
    if _lied(scenario, entries):
        yield from the_coordinator_proposes_again_at_once(scenario, _of_honest_ones(scenario, entries))


def a_peer_that_asks_in_vain_is_told_so(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A peer that gets a message of a conversation that it does not know tells the sender so at once, unless the
    message is a loose one, which may be lost anyway."""
    due: dict[str, tuple[float, str]] = {}
    for time_s, life, event in entries:
        if isinstance(event, Told) and isinstance(event.what, NotOpen) and due.get(life) == (time_s, event.to):
            del due[life]
        elif life in due:
            since_s, peer = due.pop(life)
            yield f"{life} does not tell {peer} that it takes no part in its conversation at {since_s:.3f} s"
        if isinstance(event, Heard) and isinstance(event.what, Unopened) and event.what.lane is not Lane.LOOSE:
            due[life] = time_s, event.sender


def _lied(scenario: Scenario, entries: Sequence[Entry]) -> list[_Lied]:
    """The times in which a member repeated a lie. None where other faults are possible, or members are few."""
    quiet = all(fault.lie is not None for fault in scenario.faults) and not (scenario.buggify or scenario.arrivals)
    if not quiet or scenario.peers < _MEMBERS_MIN:
        return []
    fell = ((time_s, event) for time_s, _, event in entries if isinstance(event, Fell) and event.kind == Kind.HOSTILE)
    return [_Lied(time_s, event.until_s) for time_s, event in fell if event.until_s is not None]


def _of_honest_ones(scenario: Scenario, entries: Sequence[Entry]) -> list[Entry]:
    """The entries of all lives but those of peers that lie at some time."""
    liars = {str(who) for fault in scenario.faults if fault.kind is Kind.HOSTILE for who in fault.who}
    return [entry for entry in entries if peer_of(entry.life) not in liars]


WHILE_A_MEMBER_LIES: tuple[Check, ...] = (
    a_lie_stops_no_rounds_of_the_others,
    a_lie_leaves_no_honest_member_out,
    a_lie_changes_the_view_only_so_often,
    a_lie_makes_no_honest_member_give_up,
    an_honest_coordinator_proposes_again_at_once,
    a_peer_that_asks_in_vain_is_told_so,
)
"""The promises that are checked where peers average in rounds, and a member is hostile."""
