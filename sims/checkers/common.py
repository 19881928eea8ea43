"""The promises of every conversation, as predicates over the event log of a simulation. A predicate yields a line for
each way in which its promise is broken.

Two further promises are checked elsewhere, because one log does not show them: a run comes to its end
(`sweeps.verdict`), and equal seeds give equal runs (`sweeps.sweep`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...protocols.link.flow import INBOUND_BYTES_MAX
from ...protocols.members.states import TABLE, Moved
from ..scenarios.scenario import Scenario
from ..world.event_log import Complained, Entry, Fell, Gone, Held, Misdelivered, OutOfMemory, Refused, Resumed, peer_of
from ..world.hostile import GUEST, KEY

Check = Callable[[Scenario, Sequence[Entry]], Iterator[str]]
"""The predicate of a promise. It yields a line for each way in which the promise is broken. The function's name is the
promise, as a sentence."""


def each_message_is_handed_on_once_and_in_order(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """An endpoint delivers each message of a lane once, in the order in which the messages were sent."""
    for _, life, event in entries:
        if isinstance(event, Misdelivered):
            yield f"{life} got {event.what} {event.number} of {event.sender} where {event.due} was due"


def no_honest_peer_is_taken_for_another(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """No peer refuses the messages of an honest peer as misbehaviour."""
    for _, life, event in entries:
        if isinstance(event, Refused) and not event.who.startswith((KEY, GUEST)):
            yield f"{life} refused {event.who}: {event.why}"


def what_waits_to_be_used_is_bounded(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """The frames that have arrived at a peer and were not consumed yet have at most `INBOUND_BYTES_MAX` bytes."""
    for time_s, life, event in entries:
        if isinstance(event, Held) and event.inbound_bytes > INBOUND_BYTES_MAX:
            yield f"{life} held {event.inbound_bytes} bytes at {time_s:.3f} s"


def no_error_is_a_surprise(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A peer ends only with an error that tells the user what to mend, and no error occurs in a callback or a task
    whose result nobody awaits."""
    for _, life, event in entries:
        if isinstance(event, Gone) and not event.foreseen:
            yield f"{life} failed: {event.error}"
        elif isinstance(event, Complained):
            yield event.what


def a_peer_becomes_only_what_the_table_of_states_says(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A peer's membership changes only between states that `members.states.TABLE` connects."""
    for time_s, life, event in entries:
        if isinstance(event, Moved) and event.now not in TABLE[event.before]:
            yield f"{life} was {event.before} and became {event.now} at {time_s:.3f} s"


def peers_of_a_run_without_faults_finish(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """In a run without faults, each peer that was there from the start finishes the run."""
    late = _latecomers(scenario, entries)
    if scenario.buggify or any(isinstance(event, Fell | OutOfMemory) for *_, event in entries):
        return
    for _, life, event in entries:
        if isinstance(event, Gone) and not event.finished and peer_of(life) not in late:
            yield f"{life} gave up: {event.error or 'without a word'}"


def peers_end_together(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """In a run without faults, all peers end within one patience of the first. Conversations that end for all peers at
    once list this promise among their own.

    The promise is not made to a latecomer that no member has answered, because all had ended before its first message
    came. Nobody is left to tell it, and it tries its contact for some patiences, as one that is not there yet."""
    if scenario.buggify or any(isinstance(event, Fell | OutOfMemory) for *_, event in entries):
        return
    late, answered = _latecomers(scenario, entries), {life for _, life, event in entries if isinstance(event, Moved)}
    ends_s = {life: time_s for time_s, life, event in entries if isinstance(event, Gone)}
    first_s = min(ends_s.values(), default=0.0)
    for life, time_s in ends_s.items():
        left_behind = life in answered or peer_of(life) not in late
        if left_behind and time_s > first_s + scenario.settings.patience_s:
            yield f"{life} ended {time_s - first_s:.1f} s after the first"


def _latecomers(scenario: Scenario, entries: Sequence[Entry]) -> set[str]:
    """The numbers of the peers for which the run does not wait before it starts. A resumed run waits for as many peers
    as have founded it, whichever come first, so any of more peers may come late."""
    late = {str(index) for index, _ in scenario.arrivals}
    resumed = bool(entries) and isinstance(entries[0].event, Resumed)
    return {str(index) for index in range(scenario.peers)} if resumed and late else late


COMMON: tuple[Check, ...] = (
    each_message_is_handed_on_once_and_in_order,
    no_honest_peer_is_taken_for_another,
    what_waits_to_be_used_is_bounded,
    no_error_is_a_surprise,
    a_peer_becomes_only_what_the_table_of_states_says,
    peers_of_a_run_without_faults_finish,
)
WHATEVER_A_MEMBER_SAYS: tuple[Check, ...] = (
    no_error_is_a_surprise,
    what_waits_to_be_used_is_bounded,
    each_message_is_handed_on_once_and_in_order,
    a_peer_becomes_only_what_the_table_of_states_says,
)
"""The promises that hold even if a member is hostile."""
