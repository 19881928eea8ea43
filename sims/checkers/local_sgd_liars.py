"""The promises that hold for honest peers although a member lies, as predicates over the event log of a simulation. A
predicate yields a line for each way in which its promise is broken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...protocols.local_sgd.rounds import Installed
from ..scenarios.scenario import Kind, Scenario
from ..world.event_log import Entry, Fell, peer_of
from .common import Check
from .local_sgd import one_generation_has_one_view
from .local_sgd_fetches import WHATEVER_A_DONOR_GIVES
from .membership_over_lives import two_believed_decrees_have_an_honest_adopter
from .membership_reminders import a_promise_is_passed_on, who_may_be_ahead_is_asked

_MEMBERS_MIN = 4
"""Among fewer members none can tell which of the others lies (Pease, Shostak and Lamport, 1980)."""


def a_liar_moves_no_honest_member_apart(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """All honest peers of a generation have the same members and continue from the same round, whatever one member
    tells some of them. Views of two or three members are not judged."""
    honest = [entry for entry in _of_honest_ones(entries) if not _is_small(entry.event)]
    yield from one_generation_has_one_view(scenario, honest)


def an_honest_member_asks_who_may_be_ahead(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """An honest member asks each member for its view that has told of a later decree, also where others lie: a liar
    that leads a change may have left it out."""
    yield from who_may_be_ahead_is_asked(scenario, _of_honest_ones(entries))


def an_honest_member_passes_a_proposal_on(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """An honest member that has followed a proposer, and hears no more of it, passes the proposal on, also where others
    lie: a liar may have proposed to it alone."""
    yield from a_promise_is_passed_on(scenario, _of_honest_ones(entries))


def _of_honest_ones(entries: Sequence[Entry]) -> list[Entry]:
    """The entries of all lives but those of peers that lie."""
    lies = (event for *_, event in entries if isinstance(event, Fell) and event.kind == Kind.HOSTILE)
    liars = {peer_of(life) for one in lies for life in one.who}
    return [entry for entry in entries if peer_of(entry.life) not in liars]


def _is_small(event: object) -> bool:
    return isinstance(event, Installed) and 1 < len(event.members) < _MEMBERS_MIN


WHATEVER_A_LIAR_SAYS: tuple[Check, ...] = (
    *WHATEVER_A_DONOR_GIVES,
    a_liar_moves_no_honest_member_apart,
    an_honest_member_asks_who_may_be_ahead,
    an_honest_member_passes_a_proposal_on,
    two_believed_decrees_have_an_honest_adopter,
)
"""The promises that are checked where peers average in rounds, and a member is hostile."""
