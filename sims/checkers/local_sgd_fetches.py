"""The promises of peers that fetch a state from another peer, the donor, in parts, as predicates over the event log of
a simulation. A predicate yields a line for each way in which its promise is broken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b

from ...protocols.local_sgd.rounds import Committed, Fetches, FetchFailed, Installed
from ...protocols.members.states import Moved, State
from ...protocols.transfer.snapshot_transfer import HASH_BYTES, Fetched, Served
from ..scenarios.scenario import Scenario
from ..world.event_log import Entry
from .common import Check

_GIVEN_UP = (State.EXPELLED, State.FAILED)
_INSIDE = (State.MEMBER, State.CHANGING, State.LEADING, State.LEARNER)


def a_part_that_is_kept_is_the_one_that_was_announced(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A peer that fetches a state keeps only parts with the hash that the donor has announced for them, so that a part
    of one donor may be put together with those of another."""
    for _, life, event in entries:
        if isinstance(event, Fetched) and blake2b(event.data, digest_size=HASH_BYTES).digest() != event.digest:
            yield f"{life} keeps another part {event.part} of version {event.version} than was announced"


def a_donor_gives_the_parts_that_it_has_announced(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """An honest donor that is asked for a part of a version gives the part of that version, also while others fetch
    other versions from it."""
    for _, life, event in entries:
        if isinstance(event, Served) and event.given != event.asked:
            yield f"{life} gives version {event.given} where version {event.asked} is asked for"


def a_given_up_peer_fetches_nothing(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """Until it is admitted again, a peer that was given up begins to fetch nothing: nobody would wait for it."""
    now: dict[str, State] = {}
    for _, life, event in entries:
        if isinstance(event, Moved):
            now[life] = event.now
        elif isinstance(event, Fetches) and now.get(life) in _GIVEN_UP:
            yield f"{life} begins to fetch round {event.number}, though it is {now[life]}"


def no_earlier_state_is_taken_than_is_wanted(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A peer that fetches the agreed state, or one that is newer than its own, takes no state of an earlier round than
    it wants, even if its donor has only such a one, e.g. because the donor has begun anew."""
    for life, wanted, taken in _fetched(entries):
        if taken.round < wanted.least:
            yield f"{life} takes round {taken.round}, where round {wanted.least} or a later one is wanted"


def a_member_that_is_behind_takes_the_state_of_all(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A member that is behind takes the state from which all members go on, and no later one: what others have done
    since is not agreed upon where this member counts."""
    for life, wanted, taken in _fetched(entries):
        if wanted.lags and taken.round != wanted.number:
            yield f"{life} takes round {taken.round}, where all go on from round {wanted.number}"


def _fetched(entries: Sequence[Entry]) -> Iterator[tuple[str, Fetches, Committed]]:
    """Each state that a peer has taken from a donor: the peer's life, its last wish before, and the state."""
    wanted: dict[str, Fetches] = {}
    for _, life, event in entries:
        if isinstance(event, Fetches):
            wanted[life] = event
        elif isinstance(event, Moved) and event.now not in _INSIDE:
            wanted.pop(life, None)
        elif isinstance(event, Committed):
            of = wanted.pop(life, None)
            if of is not None and event.attempt is None:
                yield life, of, event


def a_new_view_ends_no_fetch_of_the_same_state(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A member that is behind begins to fetch a state once, however often the view changes meanwhile, and again only
    after it has failed, or was given up."""
    begun: dict[str, Fetches] = {}
    for _, life, event in entries:
        if isinstance(event, Fetches) and event.lags:
            if begun.get(life) == event:
                yield f"{life} begins to fetch round {event.number} once more, though nothing has failed"
            begun[life] = event
        elif isinstance(event, Fetches | FetchFailed | Committed) or (
            isinstance(event, Moved) and event.now in _GIVEN_UP
        ):
            begun.pop(life, None)


def a_view_goes_on_from_what_one_of_its_members_holds(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """Some member of each view holds the state from which all of its members go on, so that the others can fetch it.
    Not judged where the setting `quorum` is given: fewer than half may then go on."""
    for _, life, event in entries if scenario.settings.quorum is None else ():
        if isinstance(event, Installed) and not event.donors:
            yield f"{life} goes on to generation {event.generation} from round {event.round}, which no member holds"


WHATEVER_A_DONOR_GIVES: tuple[Check, ...] = (a_part_that_is_kept_is_the_one_that_was_announced,)
"""The promises that hold even if a donor is hostile."""
FETCHES: tuple[Check, ...] = (
    *WHATEVER_A_DONOR_GIVES,
    a_donor_gives_the_parts_that_it_has_announced,
    a_given_up_peer_fetches_nothing,
    no_earlier_state_is_taken_than_is_wanted,
    a_member_that_is_behind_takes_the_state_of_all,
    a_new_view_ends_no_fetch_of_the_same_state,
    a_view_goes_on_from_what_one_of_its_members_holds,
)
"""The promises that are checked where peers average in rounds, and fetch the agreed state."""
