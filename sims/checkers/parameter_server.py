"""The promises of the parameter server, as predicates over the event log of a simulation. A predicate yields a line for
each way in which its promise is broken. A range is a part of the values, of which a chain of servers holds copies. Its
term is the number of the view in which a chain last agreed on its content, and the version of a copy counts its
changes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...aggregation.consistency import spread
from ...peers.conversations.parameter_server_settings import ParameterServerSettings
from ...protocols.members.view import Decided
from ...protocols.parameter_server.algorithms.algorithm import MapReduce
from ...protocols.parameter_server.events import (
    Acknowledged,
    Doubted,
    Entered,
    Handled,
    Holds,
    Read,
    Shares,
    Showed,
    Took,
)
from ...protocols.transport import PeerId
from ..scenarios.scenario import Scenario
from ..world.event_log import Entry, Gone, Resumed, id_of
from ..world.hostile import GUEST, KEY
from .common import Check
from .parameter_server_updates import huge_pushes, wrong_updates

Push = tuple[PeerId, int]
"""A worker, and the number of its push."""


@dataclass(slots=True)
class _Term:
    """The content of a range in one term. `pushes`: by version, the pushes that its entry has added; `before`: the
    pushes that the range had when the term began; `restored`: the clocks that it had when this history began, as those
    of partitions in a resumed run; `lives`: the processes that hold a copy; `content`: the pushes that the range has
    in its last version."""

    before: Counter[Push] = field(default_factory=Counter)
    restored: Mapping[str, int] = field(default_factory=dict)
    pushes: dict[int, list[Push]] = field(default_factory=dict)
    lives: set[str] = field(default_factory=set)
    content: Counter[Push] = field(init=False)

    def __post_init__(self) -> None:
        self.content = Counter(self.before)

    def added(self, version: int, pushes: Sequence[Push]) -> None:
        """Note the pushes of an entry. Each copy of the range tells of it; the last word counts."""
        self.content.subtract(self.pushes.get(version, ()))
        self.content.update(pushes)
        self.pushes[version] = [*pushes]

    def content_of(self, version: int) -> Counter[Push]:
        """The pushes that the range has in that version."""
        found = Counter(self.before)
        for number, pushes in self.pushes.items():
            if number <= version:
                found.update(pushes)
        return found


@dataclass(frozen=True, slots=True)
class _Kept:
    """An acknowledged push, the term in which it was, and the processes that held a copy of that term."""

    push: Push
    since: int
    lives: frozenset[str]


class _Histories:
    """The history of each range, built from the events of the log in order."""

    def __init__(self) -> None:
        self.terms: dict[tuple[int, int], _Term] = {}
        self.present: dict[tuple[str, int], int] = {}
        """By life and range, the term of its copy."""

    def took(self, life: str, event: Took) -> _Term | None:
        """Note that `life` holds a copy now. Returns its term if no process held a copy of that term before, else
        None."""
        key, new = (event.range, event.term), None
        if key not in self.terms:
            base = self.terms.get((event.range, event.base), _Term(restored=event.clocks))
            new = self.terms[key] = _Term(base.content_of(event.version), base.restored)
        self.terms[key].lives.add(life)
        self.present[life, event.range] = event.term
        return new

    def entered(self, event: Entered) -> _Term:
        term = self.terms.setdefault((event.range, event.term), _Term())
        if event.pushes:
            term.added(event.version, event.pushes)
        return term


def an_acknowledged_push_is_never_lost(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """When a push is acknowledged, it is in the range, unless backup workers made its step without it. It is also in
    every later term of the range, as long as one of the servers that held it then is running. There is one exception:
    the servers do not believe a worker that alone tells of a newer copy, so a copy is lost whose servers are all
    outside of the view, and of which one worker alone has told."""
    backup = bool(getattr(ParameterServerSettings.of(scenario.settings).algorithm.value, "backup", 0))
    histories, gone = _Histories(), set[str]()
    kept: defaultdict[int, list[_Kept]] = defaultdict(list)
    members, alone = dict[int, tuple[PeerId, ...]](), set[tuple[int, int]]()
    for _, life, event in entries:
        if isinstance(event, Resumed):
            histories, kept = _Histories(), defaultdict(list)
        elif isinstance(event, Gone):
            gone.add(life)
        elif isinstance(event, Decided):
            members[event.generation] = event.members
        elif isinstance(event, Doubted) and len(event.workers) == 1:
            alone.add((event.range, event.term))
        elif isinstance(event, Entered):
            histories.entered(event)
        elif isinstance(event, Acknowledged):
            number = histories.present[life, event.range]
            term, push = histories.terms[event.range, number], (event.worker, event.seq)
            if term.content[push]:
                kept[event.range].append(_Kept(push, number, frozenset(term.lives)))
            elif not backup and event.seq > term.restored.get(event.worker, 0):
                yield f"{life} acknowledged push {event.seq} of {event.worker} to range {event.range} without it"
        elif isinstance(event, Took) and (new := histories.took(life, event)) is not None:
            before = [one for one in kept[event.range] if event.term > one.since and not one.lives <= gone]
            for one in [one for one in before if one.push not in new.before]:
                there = {id_of(holder) for holder in one.lives - gone} & {*members.get(event.term, ())}
                if (event.range, event.term) in alone and not there:
                    kept[event.range].remove(one)
                    continue
                worker, seq = one.push
                yield f"range {event.range} has lost push {seq} of {worker} in term {event.term} at {life}"


def nothing_is_applied_twice(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """Each push of a worker is in a range at most once."""
    histories = _Histories()
    for _, life, event in entries:
        if isinstance(event, Resumed):
            histories = _Histories()
        elif isinstance(event, Took):
            histories.took(life, event)
        elif isinstance(event, Entered) and event.pushes:
            content = histories.entered(event).content
            for worker, seq in event.pushes:
                if content[worker, seq] > 1:
                    yield f"{life} applied push {seq} of {worker} to range {event.range} {content[worker, seq]} times"


def the_clocks_of_workers_keep_the_bound(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """At each event the clocks of the workers that take part differ by at most the consistency's bound and one step,
    and no read lacks a push that the bound requires. Not judged for a consistency without a bound, and after a run was
    resumed."""
    slack = ParameterServerSettings.of(scenario.settings).bound.slack
    if slack is None:
        return
    for _, life, event in entries:
        if isinstance(event, Resumed):
            return  # workers go on from checkpoints of different clocks
        if isinstance(event, Entered) and spread(event.counted.values()) > slack + 1:
            yield f"{life} counts {event.counted} in range {event.range}, beyond {slack} and a step"
        elif isinstance(event, Read):
            late = [one for one, clock in event.counted.items() if clock < event.clock - slack and one != event.reader]
            if late:
                yield f"{life} gave range {event.range} to {event.reader} at {event.clock} without {', '.join(late)}"


def the_copies_of_a_range_agree(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """All copies of a range have the same values, to the bit, in the same version of a term."""
    known: dict[tuple[int, int, int], Tensor] = {}
    blocks: dict[tuple[str, int], Tensor] = {}
    """By life and range, the values of the copy, for blocks of rows, of whose entries only some rows are told."""
    for _, life, event in entries:
        if isinstance(event, Resumed):
            known.clear()
        elif isinstance(event, Took | Entered):
            values = event.values
            if isinstance(event, Entered) and event.rows is not None:
                values = blocks[life, event.range].clone()
                values[event.rows] = event.values
            if values.dim() == 2:
                blocks[life, event.range] = values
            if not torch.equal(known.setdefault((event.range, event.term, event.version), values), values):
                yield f"{life} holds another version {event.version} of range {event.range} in term {event.term}"


def only_peers_of_the_run_push_and_read(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """No server handles a message about its ranges from a sender whose key is in no view of the run."""
    for time_s, life, event in entries:
        if isinstance(event, Handled) and event.sender.startswith((KEY, GUEST)):
            yield f"{life} handles a message of {event.sender} at {time_s:.3f} s"


def the_workers_of_a_view_share_one_memory(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """With an algorithm in shared memory, all workers of one view compute in the same memory."""
    secrets: dict[int, bytes] = {}
    for _, life, event in entries:
        if isinstance(event, Resumed):
            secrets.clear()
        elif isinstance(event, Shares) and secrets.setdefault(event.epoch, event.secret) != event.secret:
            yield f"{life} has another memory in view {event.epoch} than the workers before it"


def an_update_is_the_optimizers(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """Each version of a range is the one that the server function, computed as the optimizer of PyTorch of that name,
    makes of the version before, of what was pushed, and of all that was pushed to the range before. Judged for one
    range in four, but for no block of rows, in runs that were not resumed, and for functions that PyTorch has too."""
    yield from wrong_updates(ParameterServerSettings.of(scenario.settings).function({}), entries)


def no_push_is_beyond_the_norm_limit(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """No update that a server applies has a norm beyond that of a sum of pushes within the run's `norm_limit`
    (`huge_pushes`). In algorithms of map and reduce, whose pushes have no such limit, nothing is judged."""
    own = ParameterServerSettings.of(scenario.settings)
    if not isinstance(own.algorithm.value, MapReduce):
        yield from huge_pushes(own.norm_limit, entries)


def a_filtered_pull_is_near_the_values(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """The values that a server shows to workers differ from the exact ones by at most the threshold of the pull
    filters, as a share of the shown value. After a filtered pull a worker holds the shown values, to the bit, or with a
    codec to within a hundredth of the largest one that it was shown of the range."""
    pulls = ParameterServerSettings.of(scenario.settings).pull_filters
    if pulls is None:
        return
    showed: dict[tuple[int, PeerId, int], Tensor] = {}
    largest = defaultdict[tuple[int, PeerId], float](float)
    for _, life, event in entries:
        if isinstance(event, Showed) and event.shown.dim() == 1:
            showed[event.range, event.reader, event.updates] = event.shown
            off = (event.values - event.shown).abs() > pulls.value.threshold * event.shown.abs() + 1e-6
            if bool(off.any()):
                yield f"{life} shows {event.reader} range {event.range} beyond {pulls.text}"
        elif isinstance(event, Holds):
            due, key = showed[event.range, event.reader, event.updates], (event.range, event.reader)
            largest[key] = max(largest[key], float(due.abs().max()))
            most = 0.0 if pulls.value.codec is None else 0.01 * largest[key]
            if not bool(((event.values - due).abs() <= most).all()):
                yield f"{life} holds other values of range {event.range} after update {event.updates} than were shown"


PARAMETER_SERVER: tuple[Check, ...] = (
    an_acknowledged_push_is_never_lost,
    nothing_is_applied_twice,
    the_clocks_of_workers_keep_the_bound,
    the_copies_of_a_range_agree,
    only_peers_of_the_run_push_and_read,
    the_workers_of_a_view_share_one_memory,
    an_update_is_the_optimizers,
    no_push_is_beyond_the_norm_limit,
    a_filtered_pull_is_near_the_values,
)
"""The promises that are checked in every simulation of the parameter server."""
