"""The promises of every conversation, as predicates over the event log of a simulation. A predicate yields a line for
each way in which its promise is broken. A patience is the time of the setting `patience_s`, after which a silent peer
is lost.

Two further promises are checked elsewhere, because one log does not show them: a run comes to its end
(`sweeps.verdict`), and equal seeds give equal runs (`sweeps.sweep`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from ...protocols.link.flow import INBOUND_BYTES_MAX
from ...protocols.link.misbehaviour import FAULTS_MAX
from ...protocols.members.states import TABLE, Moved
from ...protocols.members.view import Bound
from ..scenarios.scenario import Kind, Scenario
from ..world.event_log import (
    Complained,
    Entry,
    Faulted,
    Fell,
    Gone,
    Held,
    Misdelivered,
    OutOfMemory,
    Refused,
    Resumed,
    Silent,
    Unpaid,
    peer_of,
)
from ..world.hostile import GUEST, KEY

Check = Callable[[Scenario, Sequence[Entry]], Iterator[str]]
"""The predicate of a promise. It yields a line for each way in which the promise is broken. The function's name is the
promise, as a sentence."""


def each_message_is_handed_on_once_and_in_order(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """An endpoint delivers each message of a lane, which is one of the ordered sequences of messages on a link, once,
    in the order in which they were sent, and only to the incarnation (a process of a peer) that it was sent to."""
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


def what_is_consumed_makes_room_for_as_much(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A message that was consumed gives its sender back as much credit, which is the bytes that it may still send, as
    the message has taken, so that a link never runs out of it."""
    for _, life, event in entries:
        if isinstance(event, Unpaid):
            yield f"{life} gave {event.sender} {event.credit} of {event.cost} bytes of credit back"


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


def an_acceptor_keeps_its_word(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """An acceptor never follows a lower ballot than one that it has promised to follow. A process that goes on as the
    acceptor of its former life begins with the highest ballots that this life has told others, as promised and as
    adopted under (Lamport, "Paxos made simple", 2001)."""
    told: dict[tuple[str, int, int], tuple[int, int]] = {}
    last: dict[tuple[str, int, int], str] = {}
    for _, life, event in entries:
        if isinstance(event, Bound):
            of = (peer_of(life), event.life, event.generation)
            promised, adopted = told.get(of, (0, 0))
            begins = last.get(of, life) != life
            if event.promised < promised or (begins and event.adopted < adopted):
                was = f"{promised} and {adopted} in generation {event.generation}"
                yield f"{life} goes on with the ballots {event.promised} and {event.adopted}, it was {was}"
            told[of], last[of] = (max(promised, event.promised), max(adopted, event.adopted)), life


def a_peer_that_breaks_rules_is_hardly_read(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A peer reads at most 16 messages of another that break a rule, and then one in each heartbeat interval, which is
    a quarter of the patience. Up to two more are tolerated."""
    interval_s = scenario.settings.patience_s / 4
    faults: dict[tuple[str, str], tuple[float, float]] = {}
    for time_s, life, event in entries:
        if isinstance(event, Faulted):
            count, at_s = faults.get((life, event.who), (0.0, time_s))
            count = max(0.0, count - (time_s - at_s) / interval_s) + 1
            faults[life, event.who] = count, time_s
            if count > FAULTS_MAX + 2:  # an interval at each end may be cut
                yield f"{life} goes on reading what {event.who} sends, though it breaks rules, at {time_s:.3f} s"


def silence_is_counted_only_by_a_peer_that_listens(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A peer gives up a link because of silence only after it has itself run for half a patience without hearing of the
    other: the time of a pause of its own process does not count. Not judged while the library does unlikely things on
    purpose (`Scenario.buggify`)."""
    pauses: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for time_s, life, event in entries:
        if isinstance(event, Fell) and event.kind is Kind.PAUSE:
            for one in event.who:
                pauses[one].append((time_s, math.inf if event.until_s is None else event.until_s))
        elif isinstance(event, Silent) and time_s >= scenario.buggify_until_s:
            paused = [(max(began, event.heard_s), min(ends, time_s)) for began, ends in pauses[life]]
            longest = max((ends - began for began, ends in paused), default=0.0)
            if time_s - event.heard_s - longest < scenario.settings.patience_s / 2:
                yield f"{life} gave up {event.who} at {time_s:.3f} s, heard at {event.heard_s:.3f} s"


def peers_of_a_run_without_faults_finish(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """In a run without faults and without `Scenario.buggify`, each peer that was there from the start finishes the run.
    In a resumed run with latecomers no peer is judged, because any may come late."""
    late = _latecomers(scenario, entries)
    if scenario.buggify or any(isinstance(event, Fell | OutOfMemory) for *_, event in entries):
        return
    for _, life, event in entries:
        if isinstance(event, Gone) and not event.finished and peer_of(life) not in late:
            yield f"{life} gave up: {event.error or 'without a word'}"


def peers_end_together(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """In a run without faults and without `Scenario.buggify`, all peers end within one patience of the first.
    Conversations that end for all peers at once list this promise among their own.

    The promise is not made to a latecomer that no member has answered, because all had ended before its first message
    came. Nobody is left to tell it, and it tries its contact for some patiences, as one that is not there yet.
    """
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
    what_is_consumed_makes_room_for_as_much,
    no_error_is_a_surprise,
    a_peer_becomes_only_what_the_table_of_states_says,
    an_acceptor_keeps_its_word,
    a_peer_that_breaks_rules_is_hardly_read,
    silence_is_counted_only_by_a_peer_that_listens,
    peers_of_a_run_without_faults_finish,
)
WHATEVER_A_MEMBER_SAYS: tuple[Check, ...] = (
    no_error_is_a_surprise,
    what_waits_to_be_used_is_bounded,
    what_is_consumed_makes_room_for_as_much,
    each_message_is_handed_on_once_and_in_order,
    a_peer_becomes_only_what_the_table_of_states_says,
    an_acceptor_keeps_its_word,
    a_peer_that_breaks_rules_is_hardly_read,
    silence_is_counted_only_by_a_peer_that_listens,
)
"""Those of the common promises that hold even if a member is hostile."""
