"""The promises that must hold in every simulation: pure predicates over the event log. Each yields how it is broken."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch

from ...protocols.link.table import INBOUND_BYTES_MAX
from ...protocols.local_sgd.rounds import Committed, Computed, Contributed, Installed
from ...protocols.members.states import TABLE, Moved, State
from ...protocols.transfer.chunks import Key
from ...protocols.transfer.snapshot_transfer import Fetched
from ..scenarios.scenario import Scenario
from ..world.event_log import Began, Complained, Entry, Gone, Held, Misdelivered, Refused, Resumed
from ..world.hostile import GUEST, KEY
from .endings import peer_of, unfinished
from .means import is_mean, wrong_site_means

_FETCHED_MAX = 2
_WITHOUT_VOTES = (State.OUTSIDE, State.JOINING, State.LEARNER)
_WITH_VOTES = (State.MEMBER, State.CHANGING, State.LEADING)
Promise = Callable[[Scenario, Sequence[Entry]], Iterator[str]]
PROMISES: dict[str, Promise] = {}
_WHATEVER_A_MEMBER_SAYS = (
    "no error is a surprise",
    "what waits to be used is bounded",
    "each message is handed on once and in order",
    "a peer becomes only what the table of states says",
)
"""The promises that hold even with a hostile member."""


def promise(check: Promise) -> Promise:
    """Register a predicate, which yields a line for each way in which its promise is broken."""

    def of_each_run(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
        for run in _runs(entries):
            yield from check(scenario, run)

    PROMISES[check.__name__.replace("_", " ")] = of_each_run
    return check


def _runs(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """The runs of a simulation: a run restarted from checkpoints is checked on its own."""
    ends = [place for place, entry in enumerate(entries) if isinstance(entry.event, Resumed)]
    if not ends:
        yield entries
        return
    yield from (entries[start:end] for start, end in pairwise((0, *ends, len(entries))))


def broken(scenario: Scenario, entries: Sequence[Entry]) -> str | None:
    """The first broken promise, and how; None when all hold. With a hostile member only some promises are checked."""
    for name, check in PROMISES.items():
        if scenario.has_hostile_member and name not in _WHATEVER_A_MEMBER_SAYS:
            continue
        for how in check(scenario, entries):
            return f"{name}: {how}"
    return None


@promise
def all_who_commit_a_round_commit_the_same_bits(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    first: dict[int, tuple[str, bytes]] = {}
    begun = False
    for _, life, event in entries:
        begun = begun or (isinstance(event, Committed) and event.key is not None)
        if isinstance(event, Committed) and begun:  # earlier, a checkpoint's state may be fetched and lost again
            bits = event.vector.numpy().tobytes()
            who, theirs = first.setdefault(event.round, (life, bits))
            if theirs != bits:
                yield f"round {event.round} ends differently for {who} and {life}"


@promise
def every_contribution_counts_once(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A result is the weighted mean of its members' contributions to that attempt, each counted once. Without
    contributions the model stays unchanged."""
    brought: dict[Key, dict[str, Contributed]] = defaultdict(dict)
    models: dict[int, torch.Tensor] = {}
    for _, life, event in entries:
        if isinstance(event, Committed):
            models[event.round] = event.vector
        if isinstance(event, Contributed):
            brought[event.key][peer_of(life)] = event
        elif isinstance(event, Committed) and event.key is not None:
            there = [each for each in brought[event.key].values() if each.weight > 0]
            if not there:
                if event.weight or not torch.equal(event.vector, models.get(event.round - 1, event.vector)):
                    yield f"round {event.round} at {life} is the mean of what nobody brought"
                continue
            weight = sum(each.weight for each in there)
            if not math.isclose(event.weight, weight, rel_tol=1e-5):  # parts of samples, in the model's dtype
                yield f"round {event.round} at {life} has weight {event.weight:g}, its members brought {weight:g}"
                continue
            settings = scenario.settings
            if settings.codec != "none" or settings.outer != "plain" or settings.fragments > 1:
                continue  # a codec leaves parts out, and the model need not be the mean
            if not is_mean(event.vector, there):
                yield f"round {event.round} at {life} is not the mean of what was brought"


@promise
def a_site_takes_the_mean_of_what_each_brought_once(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """The mean of a site that a peer adopts is the weighted mean of the contributions to that attempt, with equal bits
    on all peers that adopt it. Of two attempts at one turn of one round whose means are adopted, no peer is in both."""
    yield from wrong_site_means(entries)


@promise
def nothing_of_an_old_generation_is_applied(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A peer commits only results of its present generation, or the result that the change to it handed on. Generations
    and rounds never decrease, except that a run which died before its first round may be founded anew, with generations
    from 1 on."""
    views: dict[str, Installed] = {}
    rounds: dict[str, int] = {}
    foundings, founded = 0, dict[str, int]()
    for _, life, event in entries:
        if isinstance(event, Installed):
            foundings += event.generation == 1 and not any(rounds.values())
            before = views.get(life)
            if before is not None and event.generation <= before.generation and founded[life] == foundings:
                yield f"{life} went from generation {before.generation} to {event.generation}"
            views[life], founded[life] = event, foundings
        elif isinstance(event, Committed):
            if event.round < rounds.get(life, 0) + (event.key is not None):
                yield f"{life} committed round {event.round} after round {rounds[life]}"
            rounds[life] = event.round
            view = views.get(life)
            if event.key is None or view is None or event.key[0] == view.generation:
                continue
            if event.round != view.round or f"peer-{peer_of(life)}" not in view.donors:
                yield f"{life} committed round {event.round} of generation {event.key[0]} in {view.generation}"


@promise
def one_generation_has_one_view(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """All peers in a generation have the same members and continue from the same round. A run that died before its
    first round may be founded anew, with generations from 1 on, while views of the former run are still recorded. Until
    a round is committed there are two runs then, at most one of which can commit."""
    if scenario.settings.quorum is not None:
        return  # with half or less both halves of a split may go on
    views: dict[int, tuple[str, Installed]] = {}
    foundings, begun = 0, False
    for _, life, event in entries:
        begun = begun or isinstance(event, Committed)
        if isinstance(event, Installed):
            if event.generation == 1 and len(event.members) == 1:
                views.clear()
                foundings += 1
            if foundings > 1 and not begun:
                continue
            first, view = views.setdefault(event.generation, (life, event))
            if (view.members, view.round) != (event.members, event.round):
                yield f"generation {event.generation}: {_view(view)} for {first}, {_view(event)} for {life}"


def _view(view: Installed) -> str:
    return f"{','.join(peer.removeprefix('peer-') for peer in view.members)} from round {view.round}"


@promise
def each_message_is_handed_on_once_and_in_order(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    for _, life, event in entries:
        if isinstance(event, Misdelivered):
            yield f"{life} got {event.what} {event.number} of {event.sender} where {event.due} was due"


@promise
def a_part_that_has_come_is_not_fetched_again(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A peer that fetches a state keeps the parts that it has, whatever happens; but a part may arrive just when it is
    no longer awaited."""
    came: Counter[tuple[str, int, int]] = Counter()
    for _, life, event in entries:
        if isinstance(event, Fetched):
            came[life, event.version, event.part] += 1
            if came[life, event.version, event.part] > _FETCHED_MAX:
                yield f"{life} got part {event.part} of version {event.version} {_FETCHED_MAX + 1} times"


@promise
def what_is_committed_more_than_half_have(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """More than half of an attempt's members have its result when it is committed. Exceptions: a result that a change
    of the view, agreed on by more than half, hands on; and a peer that is alone."""
    if scenario.settings.quorum is not None:
        return
    members: dict[Key, int] = {}
    generation: dict[str, int] = {}
    have: dict[Key, set[str]] = defaultdict(set)
    for _, life, event in entries:
        if isinstance(event, Contributed):
            members[event.key] = len(event.members)
        elif isinstance(event, Computed):
            have[event.key].add(peer_of(life))
        elif isinstance(event, Installed):
            generation[life] = event.generation
        elif isinstance(event, Committed) and event.key is not None:
            handed_on, have_it = event.key[0] != generation.get(life), len(have[event.key])
            alone = members.get(event.key) == 1
            if not (handed_on or alone) and 2 * have_it <= members.get(event.key, 0):
                yield f"{life} committed round {event.round} when {have_it} of {members[event.key]} had it"


@promise
def no_honest_peer_is_taken_for_another(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    for _, life, event in entries:
        if isinstance(event, Refused) and not event.who.startswith((KEY, GUEST)):
            yield f"{life} refused {event.who}: {event.why}"


@promise
def what_waits_to_be_used_is_bounded(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    for time_s, life, event in entries:
        if isinstance(event, Held) and event.inbound_bytes > INBOUND_BYTES_MAX:
            yield f"{life} held {event.inbound_bytes} bytes at {time_s:.3f} s"


@promise
def no_error_is_a_surprise(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A peer ends only with an error that says what to mend, and no error occurs where nothing can report it."""
    for _, life, event in entries:
        if isinstance(event, Gone) and not event.foreseen:
            yield f"{life} failed: {event.error}"
        elif isinstance(event, Complained):
            yield event.what


@promise
def a_peer_becomes_only_what_the_table_of_states_says(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    for time_s, life, event in entries:
        if isinstance(event, Moved) and event.now not in TABLE[event.before]:
            yield f"{life} was {event.before} and became {event.now} at {time_s:.3f} s"


@promise
def nobody_is_a_member_before_it_has_a_result(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """Once a view continues from an averaged round, a newcomer is a learner until it has fetched the committed state or
    has it from a checkpoint. A peer that alone holds the state from which all continue is a member at once."""
    first, averaged, late = 0, False, set[int]()
    views, has = dict[str, Installed](), set[str]()
    for _, life, event in entries:
        if isinstance(event, Committed):
            averaged = averaged or event.key is not None
            has.add(life)
        elif isinstance(event, Installed):
            views[life] = event
            first = first if averaged else max(first, event.round)
            late |= {event.generation} if event.round > first else set()
        elif isinstance(event, Began):
            has |= {life} if event.round else set()
        elif isinstance(event, Moved) and event.now is State.LEARNER:
            # All peers have the state of the first round, but may learn late of the view that begins with it.
            has |= {life} if len(late) <= 1 else set()
        elif isinstance(event, Moved) and event.before in _WITHOUT_VOTES and event.now in _WITH_VOTES:
            view, learned = views.get(life), event.before is State.LEARNER and life in has
            if view is not None and view.round > first and not learned and f"peer-{peer_of(life)}" not in view.donors:
                yield f"{life} was {event.before}, is a member of generation {view.generation} and has no result"


@promise
def who_was_given_up_contributes_no_more(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """Until it is admitted again, an expelled peer contributes nothing: it would not learn how that attempt ends."""
    now: dict[str, State] = {}
    for _, life, event in entries:
        if isinstance(event, Moved):
            now[life] = event.now
        elif isinstance(event, Contributed) and now.get(life) in (State.EXPELLED, State.FAILED):
            yield f"{life} begins an attempt at round {event.key[1]}, though it is {now[life]}"


@promise
def who_lives_finishes(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """Once enough peers can continue together, some peer ends the run, and no admitted peer gives up. Exception: the
    others may end the run while a peer is declared dead, which then finds no peer to return to."""
    yield from unfinished(scenario, entries)
