"""The promises of the parameter server on what a worker keeps from turn to turn, as predicates over the event log of a
simulation: a model of its own, and what its filters hold back. A predicate yields a line for each way in which its
promise is broken."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ...peers.conversations.parameter_server_settings import ParameterServerSettings
from ...protocols.parameter_server.events import Entered, Sifted, Trains
from ...protocols.testpoints import Became
from ...protocols.transport import PeerId
from ..scenarios.scenario import Scenario
from ..world.event_log import Began, Entry, Resumed, id_of, peer_of
from .common import Check


def a_worker_goes_on_from_its_own_model(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A worker that keeps a model of its own takes its next steps from the model that its last turn has led to, to the
    bit, whatever it has pulled in between, e.g. for an evaluation."""
    own: dict[str, Tensor] = {}
    for _, life, event in entries:
        if isinstance(event, Became):
            own[life] = event.vector
        elif isinstance(event, Trains) and life in own and not torch.equal(event.model, own[life]):
            yield f"{life} takes its steps after turn {event.clock} from another model than that turn has led to"


def what_filters_hold_back_is_sent_once(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """The part of a push that a worker's filters let pass and the part that they keep sum up to the push. The kept part
    is added to the worker's next push and to no later one. A restarted worker adds the part that its checkpoint has
    kept to its first push, unless a push that its former process made later was applied, which has some of that. Where
    a filter forgets elements, the sums are not judged: these are neither sent nor kept. The first push of a process of
    a resumed run is not judged: its checkpoint is of the run before."""
    resumed = bool(entries) and isinstance(entries[0].event, Resumed)
    filters = ParameterServerSettings.of(scenario.settings).filters
    kept: defaultdict[str, dict[int, Tensor | None]] = defaultdict(dict)
    applied, before, last = Counter[PeerId](), Counter[str](), dict[str, int]()
    """`applied`: by worker, its latest push that was applied; `before`: by life, the one when it began; `last`: by
    life, its latest push."""
    for _, life, event in entries:
        if isinstance(event, Entered):
            for worker, seq in event.pushes:
                applied[worker] = max(applied[worker], seq)
        elif isinstance(event, Began):
            before[life] = applied[id_of(life)]
        elif isinstance(event, Sifted):
            owed, left = _or_zeros(event.owed, event.pushed), _or_zeros(event.left, event.pushed)
            of = kept[peer_of(life)]
            known = [of[last[life]]] if life in last else [one for seq, one in of.items() if seq >= before[life]]
            judged = bool(owed.any()) and not (resumed and life not in last)
            if judged and not any(torch.equal(owed, _or_zeros(one, owed)) for one in known):
                yield f"{life} adds to its push {event.seq} what was not kept back of the one before"
            of[event.seq], last[life] = event.left, event.seq
            due, found = event.pushed.double() + owed, event.sent.double() + left
            scale = max(1.0, *(float(one.abs().max()) for one in (event.pushed, owed, event.sent)))
            forget = filters is not None and filters.value.forget
            if not forget and not torch.allclose(found, due, rtol=0, atol=1e-5 * scale):
                yield f"{life} neither sends nor keeps a part of its push {event.seq}"


def _or_zeros(found: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if found is None else found


KEPT: tuple[Check, ...] = (a_worker_goes_on_from_its_own_model, what_filters_hold_back_is_sent_once)
"""Promises that are checked in every simulation of the parameter server."""
