"""A server of the parameter server as a conversation. It trains nothing; its works only have it write records and
checkpoints.

The conversation ends when all workers of the view have finished. A record of a server covers all pushes since its last
one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from ...aggregation.consistency import Consistency
from ...aggregation.server.showing import SHOWN
from ..channel import Channel
from ..clock import RunClock
from ..conversation import Came, Outcome, Position
from ..members.membership import Membership
from ..members.presence import Presence
from ..members.view import View
from ..stalls.stalls import Stalls
from ..transport import PeerId
from ..work import Keep, Steps, Update, Work
from .algorithms.algorithm import Rule
from .chain import Chains
from .intake import Intake
from .keys import Model
from .reads import Reads
from .store import NOTHING, Copy, Store
from .takeover import Takeover
from .tenure import Tenure, workers_of

_PREFIX = "range/"
REACHED = "parameter_server_reached"
"""The entry of a server's checkpoint with `Store.reached`. Older checkpoints lack it."""


class InView(Protocol):
    """The interface of an additional object of a server (`Parts.more`), whose work belongs to one view."""

    def begin(self) -> None:
        """Called when a view begins, also the first one, which the tenure and the other parts (`Parts`) have already.
        Ends the work for the view before, and may begin the work for the new one. Only views that have started, and of
        which this server is a member, begin so."""
        ...

    def close(self) -> None:
        """Cancel the work under way, if there is any. Called when the server itself ends."""
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """The objects of which one server of the parameter server is made up. `more`: those of some algorithms only."""

    store: Store
    tenure: Tenure
    chains: Chains
    intake: Intake
    reads: Reads
    takeover: Takeover
    more: tuple[InView, ...] = ()

    @classmethod
    def around(
        cls,
        channel: Channel,
        store: Store,
        tenure: Tenure,
        consistency: Consistency,
        algorithm: Rule,
        stalls: Stalls,
        initial: Model | None,
    ) -> Self:
        """Make all objects of one server: they work on `store`, exchange messages by `channel`, and follow the views of
        `tenure`. `initial`: see `Takeover`."""
        reads = Reads(channel, store, tenure, consistency, stalls)
        chains = Chains(channel, store, tenure)
        chains.on_entries.append(reads.look)
        intake = Intake(channel, store, tenure, chains, reads, algorithm, consistency)
        return cls(store, tenure, chains, intake, reads, Takeover(channel, store, tenure, chains, initial))


class Serving:
    """One server, as a conversation: it takes part in the run without local steps until all workers have finished. It
    writes a record each time that the slowest worker's clock, the number of its last push, has grown by `every`, and
    one at the end if anything was pushed or pulled since the last one."""

    needs = frozenset[str]()

    def __init__(self, parts: Parts, membership: Membership, presence: Presence, clock: RunClock, every: int) -> None:
        self._parts, self._members, self._presence, self._clock, self._every = parts, membership, presence, clock, every
        self._told = 0
        self._told = self._slowest()
        """The clock of the slowest worker at the last record; before it that of the run that is resumed."""
        self._updates = self._made()
        """The updates in this server's copies at the last record; before it those of the run that is resumed."""
        self._begun = False
        """Whether the first view has begun."""
        membership.on_view.append(self._on_view)
        parts.takeover.on_wrong = membership.lost
        parts.chains.on_broken = parts.takeover.repair
        parts.chains.on_entries.append(self._on_entries)

    @property
    def bytes_shared(self) -> int:
        return self._parts.tenure.parcels.bytes_shared

    @property
    def version(self) -> int:
        return self._told

    async def enter(self, contact: PeerId | None, steps: int) -> Came:
        resumed = self._clock.before_s > 0.0
        late = await self._presence.enter(contact)
        self._clock.start()
        return "resumed" if resumed else "joined" if late else "started"

    async def next(self) -> Work | None:
        while True:
            view = await self._presence.view()
            workers = {*workers_of(view)}
            over = workers <= self._members.finished
            if over and not self._parts.store.traffic:
                return None
            if over or self._is_due():
                return Work(Keep(), Steps(0))
            await self._presence.pause()

    async def bring(self, update: Update) -> Outcome | None:
        return self._outcome()

    def _outcome(self) -> Outcome:
        """The outcome for a record: the pushes and pulls since the last one, whose counts are cleared."""
        slowest, copies, traffic = self._slowest(), self._parts.store.copies, self._parts.store.traffic
        updates, held = self._made(), sum(copy.values.nbytes for copy in copies.values())
        outcome = Outcome(
            version=slowest,
            step=0,
            loss=float("nan"),
            members=len(workers_of(self._members.view)),
            steps=0,
            compute_s=0.0,
            details={
                "updates": max(0, updates - self._updates),
                "staleness": traffic.mean_staleness,
                "ranges": len(copies),
            },
            received_from=dict(traffic.received),
            counts=traffic.counts(),
            model_bytes=held,
        )
        traffic.clear()
        self._told, self._updates = slowest, updates
        return outcome

    async def finish(self) -> None:
        await self._presence.finish()

    async def leave(self, why: str) -> None:
        await self._presence.leave(why)

    async def settle(self) -> Sequence[Outcome]:
        return [self._outcome()] if self._parts.store.traffic else []

    def position(self) -> Position:
        tensors, numbers = saved(self._parts.store)
        numbers_of = {"parameter_server": numbers, REACHED: self._parts.store.reached}
        return Position(self._told, torch.empty(0), tensors, numbers_of, Keep())

    def close(self) -> None:
        parts = self._parts
        parts.takeover.close()
        parts.chains.begin()
        parts.reads.close()
        parts.tenure.parcels.close()
        for one in parts.more:
            one.close()

    def _on_view(self, view: View) -> None:
        parts = self._parts
        if not view.started or self._members.me.id not in view.ids or view.generation == parts.tenure.epoch:
            return
        if not self._begun:
            self._begun = True
            self._begin(late=self._presence.late)
        parts.intake.begin()
        parts.reads.begin()
        parts.chains.begin()
        parts.tenure.begin(view)
        parts.takeover.begin()
        for one in parts.more:
            one.begin()

    def _begin(self, *, late: bool) -> None:
        """Prepare for the first view, before any message of it is handled. `late`: the run began before."""
        if late:
            self._parts.takeover.not_new()
        else:  # if these copies are of a run before, so are the pushes in them
            self._parts.store.begin_anew()

    def _on_entries(self, ranges: Sequence[int], workers: Collection[PeerId]) -> None:
        if self._is_due():
            self._members.notify()

    def _is_due(self) -> bool:
        """Whether a record is due. Where the slowest worker is far behind the last record, that one was of a worker
        that was alone then and far ahead: count from the slowest one's clock."""
        slowest = self._slowest()
        if slowest + self._every < self._told:
            self._told = slowest
        return slowest >= self._told + self._every

    def _made(self) -> int:
        return sum(copy.updates for copy in self._parts.store.copies.values())

    def _slowest(self) -> int:
        """The clock of the slowest worker that takes part, in one of this server's ranges; if there is none, the
        highest clock that any has had, but none beyond the last record and the number of entries: that was only
        claimed, perhaps by a liar (`enlisting`)."""
        store = self._parts.store
        if (copy := next(iter(store.copies.values()), None)) is None:
            return min(self._told, store.reached)
        return min(copy.counted().values(), default=min(store.reached, max(copy.version, self._told)))


def saved(store: Store) -> tuple[dict[str, Tensor], list[Any]]:
    """The content of a checkpoint about this server's copies of ranges: their tensors by name, and for each copy a list
    of its range, term, past, version, updates and clocks (`store.Copy`). The tensors are not copied; from now on
    updates do not write into them any more. Left out are copies on which servers have never agreed (`takeover`), in
    this run or in one before."""
    tensors, numbers = dict[str, Tensor](), []
    for number, copy in sorted(store.copies.items()):
        if copy.standing == NOTHING:
            continue
        copy.lent = True
        tensors[f"{_PREFIX}{number}/values"] = copy.values
        tensors |= {f"{_PREFIX}{number}/state/{name}": tensor for name, tensor in copy.state.items()}
        numbers.append([number, copy.term, copy.past, copy.version, copy.updates, dict(copy.clocks)])
    return tensors, numbers


def restored(store: Store, tensors: Mapping[str, Tensor], numbers: Sequence[Sequence[Any]]) -> None:
    """Put the copies that `saved` returned into `store`, marked as perhaps older than other servers' copies of their
    term. Raises ValueError when `store` has no such range, when values have another shape there, or when its server
    function keeps other tensors by name; other differences, such as another rate of the function, are not noticed.
    Where only one of the two runs has a threshold of pulls, the exact values are shown; where both have one, the shown
    values stay, and the new threshold holds from the next update on."""
    why = "this run began with another model, --ranges or --server-update: go on with that one"
    for number, term, past, version, updates, clocks in numbers:
        if number >= len(store.keys):
            raise ValueError(why)
        values, prefix = tensors[f"{_PREFIX}{number}/values"], f"{_PREFIX}{number}/state/"
        state = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        if tuple(values.shape) != store.keys.shape(number):
            raise ValueError(why)
        due = store.function(number).start(values)
        if SHOWN not in due:  # the run goes on with other filters of pulls
            state.pop(SHOWN, None)
        elif SHOWN not in state:
            state[SHOWN] = due[SHOWN]
        if {*state} != {*due}:
            raise ValueError(why)
        copy = Copy(values, state, term, past, version, updates, dict(clocks), restored=True)
        store.copies[number] = copy
