"""The promises of the parameter server to workers that wait for each other, as predicates over the event log of a
simulation. A predicate yields a line for each way in which its promise is broken. A patience is the time of the setting
`patience_s`, after which a silent peer is lost."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from ...peers.conversations.parameter_server_settings import ParameterServerSettings
from ...protocols.members.view import Decided
from ...protocols.parameter_server.algorithms.algorithm import MapReduce
from ...protocols.parameter_server.algorithms.sync import Sync
from ...protocols.parameter_server.events import Acknowledged, Entered, Read, Took
from ...protocols.stalls.messages import Stall, Stalled
from ...protocols.stalls.works import FIRST_S, LOCAL_STEPS
from ...protocols.transport import PeerId
from ..scenarios.scenario import Kind, Scenario
from ..world.event_log import Entry, Fell, Gone, OutOfMemory, id_of
from .common import Check
from .parameter_server_kept import KEPT

_TRIPS = 1 + 2 * 5
"""The most messages, one after the other, until the others have gone on without a member: its own, by which it tells
that its work takes long, and those of two changes of the view, as one may be under way: Propose, Promise, Adopt,
Adopted, Install."""


def a_worker_ends_with_the_pushes_of_all(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """No worker that takes part when another one reads its last model pushes anything afterwards: so all workers of a
    view end with the same model, which has all pushes. Not judged for algorithms of map and reduce, in which workers
    push for partitions."""
    if isinstance(ParameterServerSettings.of(scenario.settings).algorithm.value, MapReduce):
        return
    taking_part: defaultdict[int, dict[PeerId, set[PeerId]]] = defaultdict(dict)
    """By range and reader, the other workers that took part when it read the range last."""
    lacks: dict[tuple[PeerId, int], tuple[PeerId, int]] = {}
    for _, life, event in entries:
        if isinstance(event, Read):
            taking_part[event.range][event.reader] = {*event.counted} - {event.reader}
            lacks.pop((event.reader, event.range), None)
        elif isinstance(event, Entered) and event.pushes:
            for reader, others in taking_part[event.range].items():
                late = next((push for push in event.pushes if push[0] in others), None)
                if late is not None:
                    lacks.setdefault((reader, event.range), late)
        elif isinstance(event, Gone) and event.finished:
            for (reader, number), (worker, seq) in lacks.items():
                if reader == id_of(life):
                    yield f"{life} ends with range {number} before push {seq} of {worker}"


def a_worker_whose_pushes_come_is_not_reported(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A server reports to its user that nothing of a worker comes, only if it has got no push of it for `works.FIRST_S`
    virtual seconds, the time within which a first piece of work is not overdue."""
    clocks: dict[tuple[str, int, PeerId], int] = {}
    came_s: dict[tuple[str, PeerId], float] = {}
    for time_s, life, event in entries:
        if isinstance(event, Entered):
            for worker, clock in event.counted.items():
                if clock > clocks.get((life, event.range, worker), 0):
                    clocks[life, event.range, worker] = clock
                    came_s[life, worker] = time_s
        elif isinstance(event, Stall) and not event.work and not event.over:
            since_s = came_s.get((life, event.peer), -math.inf)
            if since_s > time_s - FIRST_S:
                yield f"{life} misses pushes of {event.peer} at {time_s:.3f} s, and one came at {since_s:.3f} s"


def a_worker_that_hangs_is_not_waited_for(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """With `compute_patience_s`, and clocks that keep a bound, the others go on without a worker whose local steps take
    longer than that: by a view without it, within the time that the messages for this take, each of which arrives
    within a patience. Judged where nothing else goes wrong in that time, and two or more others are left."""
    settings = scenario.settings
    limit_s, bound = settings.compute_patience_s, ParameterServerSettings.of(settings).bound
    if limit_s is None or bound.slack is None:
        return
    troubles = [
        (time_s, (math.inf if event.until_s is None else event.until_s) if isinstance(event, Fell) else time_s)
        for time_s, _, event in entries
        if isinstance(event, OutOfMemory) or (isinstance(event, Fell) and event.kind != Kind.HANG)
    ]
    hung, members = dict[PeerId, float](), tuple[PeerId, ...]()
    """`hung`: the workers without which the others have not gone on, and since when."""
    for time_s, life, event in entries:
        peer = id_of(life)
        for worker, since_s in list(hung.items()):
            by_s = since_s + _TRIPS * settings.patience_s
            if time_s > by_s:
                del hung[worker]
                if not any(began <= by_s and ends >= since_s for began, ends in troubles):
                    yield f"{worker} has hung for {limit_s:g} s at {since_s:.3f} s, and is a member at {by_s:.3f} s"
        if isinstance(event, Decided):
            members = event.members
            hung = {worker: since_s for worker, since_s in hung.items() if worker in members}
        elif isinstance(event, Gone) or (isinstance(event, Stalled) and event.over):
            hung.pop(peer, None)
        elif isinstance(event, Stalled) and event.work == LOCAL_STEPS and event.taken_s >= 0.99 * limit_s:
            judged = time_s >= scenario.buggify_until_s and peer in members and len(members) > 2
            hung |= {peer: hung.get(peer, time_s)} if judged else {}


def a_synchronous_step_leaves_no_worker_behind(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """In synchronous SGD without backup workers, a step of a range waits for each worker that takes part in the range
    and goes on: afterwards none of them has a clock below the step's number."""
    own = ParameterServerSettings.of(scenario.settings)
    algorithm = own.algorithm.value
    if not (isinstance(algorithm, Sync) and algorithm.backup == 0 and own.bound.steps_together):
        return
    for _, life, event in entries:
        if isinstance(event, Entered) and event.pushes:
            step = min(seq for _, seq in event.pushes)
            late = sorted(worker for worker, clock in event.counted.items() if clock < step)
            if late:
                yield f"{life} makes version {event.version} of range {event.range} without {', '.join(late)}"


def the_answer_of_a_sum_names_a_worker_that_came_later(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A worker whose push is answered with values names, in its record, a worker for which it has waited. If in each
    range of the push another worker's push came last to the sum, the answer names one. Not judged is a push that came
    again, or whose sum was made in a former view: a server does not keep how a sum was made."""
    latest = dict[tuple[str, int, PeerId, int], PeerId]()
    answered = defaultdict[tuple[str, float, PeerId, int], list[tuple[PeerId | None, PeerId | None]]](list)
    """By server, time and push: of each range the worker named, and the one whose push came last (None: unknown)."""
    for time_s, life, event in entries:
        if isinstance(event, Took):
            latest = {key: worker for key, worker in latest.items() if key[:2] != (life, event.range)}
        elif isinstance(event, Entered) and event.pushes:
            latest |= {(life, event.range, *push): event.pushes[-1][0] for push in event.pushes}
        elif isinstance(event, Acknowledged) and event.late is not None:
            came = latest.pop((life, event.range, event.worker, event.seq), None)
            answered[life, time_s, event.worker, event.seq].append((event.late, came))
    for (life, time_s, worker, seq), told in answered.items():
        if all(named == "" and came not in (None, worker) for named, came in told):
            yield f"{life} answers push {seq} of {worker} at {time_s:.3f} s, and names nobody for whom it has waited"


WORKERS: tuple[Check, ...] = (
    a_worker_ends_with_the_pushes_of_all,
    a_worker_whose_pushes_come_is_not_reported,
    a_worker_that_hangs_is_not_waited_for,
    a_synchronous_step_leaves_no_worker_behind,
    the_answer_of_a_sum_names_a_worker_that_came_later,
    *KEPT,
)
"""The promises to workers that are checked in every simulation of the parameter server."""
