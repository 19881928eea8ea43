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

_MEMBERS_MIN = 4
"""Among fewer members none can tell which of the others lies (Pease, Shostak and Lamport, 1980)."""


def a_liar_moves_no_honest_member_apart(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """All honest peers of a generation have the same members and continue from the same round, whatever one member
    tells some of them. Views of two or three members are not judged."""
    lies = (event for *_, event in entries if isinstance(event, Fell) and event.kind == Kind.HOSTILE)
    liars = {peer_of(life) for one in lies for life in one.who}
    honest = [entry for entry in entries if peer_of(entry.life) not in liars and not _is_small(entry.event)]
    yield from one_generation_has_one_view(scenario, honest)


def _is_small(event: object) -> bool:
    return isinstance(event, Installed) and 1 < len(event.members) < _MEMBERS_MIN


WHATEVER_A_LIAR_SAYS: tuple[Check, ...] = (*WHATEVER_A_DONOR_GIVES, a_liar_moves_no_honest_member_apart)
"""The promises that are checked where peers average in rounds, and a member is hostile."""
