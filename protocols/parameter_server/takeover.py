"""Takeover: the servers of a new view agree on the copy of each range before workers push to it or pull from it.

The servers that hold a range are its chain; the first is its head. The head asks all servers of the view which copies
they hold. It takes the newest copy (`store.Copy.standing`), fetches it if another server has it, and gives it to those
servers of the chain that lack it. Then the range is settled: its term is this view's generation. Every acknowledged
push is in the chosen copy, as long as one server of the last chain is left:

- A push is acknowledged when all servers of the chain have it, so each of them alone holds it.
- A server that has come to a new view answers no message of a former one. So once the head has asked one server of a
  chain, no push is acknowledged in the former view any more.
- The heads tell all servers which terms have settled, and a worker knows the terms of its own exchanges. A copy of an
  earlier term than one of these is never taken: the servers wait for a copy of that term to come back, and then tell
  that the range is lost.

In the same way ranges move to a server that has joined, and from one that leaves. Where a link in a chain breaks and
the view stays, the head gives its copy to the servers behind it again.

Cost: one question to each other member by each server; for each range that moves, its values and state once.
On failure: a server that does not answer is asked until it does, or until a view without it begins; then all of this
begins again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..channel import Channel, Envelope
from ..link.link import PeerLost
from ..testpoints import sometimes, witness
from ..transport import PeerId
from ..wire.frames import PeerMisbehaved
from .chain import Chains
from .holdings import Answers
from .messages import Copied, Fetch, Holdings, Install, Installed, Settled, Survey
from .store import NOTHING, Copy, Store, settled_at, term_of
from .tenure import Tenure

_RETURN_PATIENCES = 4
"""How many patiences the servers wait for a given-up server to come back with the last copy of a range."""
_AT_A_TIME = 4
"""The most ranges that a server takes over at the same time: each needs memory for a copy on its way."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The holdings of one server: see the message `Holdings`."""

    standings: tuple[int, ...]
    versions: tuple[int, ...]
    knows: tuple[int, ...]


class Takeover:
    """One server's part. `initial` [n]: the model with which the run begins; None: this server joined later, or was
    resumed from a checkpoint."""

    def __init__(self, channel: Channel, store: Store, tenure: Tenure, chains: Chains, initial: Tensor | None) -> None:
        self._channel, self._store, self._tenure, self._chains = channel, store, tenure, chains
        self._initial = initial
        self._tasks: set[asyncio.Task[None]] = set()
        self._repaired: set[int] = set()
        """The ranges whose chains are being repaired."""
        self._task: asyncio.Task[None] | None = None
        self.on_wrong: Callable[[PeerId, str], None] = lambda peer, why: None
        """Called with a server and the reason when that server's answer is invalid."""
        self._holdings = Answers(channel, store, tenure)
        channel.on(Install, self._on_install)
        channel.on(Settled, self._on_settled)
        self._held: list[tuple[Envelope, Callable[[Envelope], None]]] = []

    def begin(self) -> None:
        """A new view begins: give up the work for the last view, and settle the ranges whose head this server is."""
        self.close()
        self._task = asyncio.create_task(self._run(), name="takeover")
        held, self._held = self._held, []
        for envelope, handler in held:
            handler(envelope)

    def not_new(self) -> None:
        """The run began before this server came: never make a range from the initial model."""
        self._initial = None

    def close(self) -> None:
        self._repaired.clear()
        self._holdings.close()
        for task in (self._task, *self._tasks):
            if task is not None:
                task.cancel()

    def repair(self, numbers: Sequence[int]) -> None:
        """Give this server's copies of these ranges, of which it is the head, to the servers behind it, which lack
        entries."""
        for number in numbers:
            if number not in self._repaired:
                self._repaired.add(number)
                self._tenure.unsettle(number)
                self._spawn(self._repair(number), "repair")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _repair(self, number: int) -> None:
        sometimes("a chain was repaired")
        copy, chain = self._store.copies[number], self._tenure.placement.chain(number)
        await asyncio.gather(*(self._given(number, server, copy, copy.term, same=False) for server in chain[1:]))
        self._repaired.discard(number)
        self._chains.settled(number)
        self._tenure.settle([number])

    # As a head

    async def _run(self) -> None:
        tenure, count = self._tenure, self._tenure.count
        mine = [
            number for number in range(count) if (chain := tenure.placement.chain(number)) and chain[0] == tenure.me
        ]
        others = [server for server in tenure.placement.servers if server != tenure.me]
        everybody = [*others, *tenure.workers]
        answers = await asyncio.gather(*(self._asked(peer) for peer in everybody))
        found = dict(zip(everybody, answers, strict=True))
        limit = asyncio.Semaphore(_AT_A_TIME)

        async def one(number: int) -> bool:
            async with limit:
                return await self._take(number, found)

        there = await asyncio.gather(*(one(number) for number in mine))
        settled = tuple(number for number, taken in zip(mine, there, strict=True) if taken)
        for server in others:
            self._channel.post(server, Settled(tenure.epoch, settled))
        self._all_known()
        if gone := [number for number, taken in zip(mine, there, strict=True) if not taken]:
            await asyncio.sleep(_RETURN_PATIENCES * self._channel.endpoint.patience_s)
            tenure.lost.update({number: _gone(number) for number in gone})
            tenure.look()

    async def _asked(self, server: PeerId) -> _Found:
        while True:
            try:
                answer = await self._channel.ask(
                    server, lambda ask: Survey(ask, self._tenure.epoch), answers=(Holdings,)
                )
                answer.done()
                held: Holdings = answer.message
                if {len(held.standings), len(held.versions), len(held.knows)} == {self._tenure.count}:
                    return _Found(held.standings, held.versions, held.knows)
                self.on_wrong(server, f"it told of {len(held.standings)} ranges, there are {self._tenure.count}")
            except PeerLost:
                pass  # it has not come to this view yet, or the membership will find it gone
            await asyncio.sleep(self._channel.endpoint.interval_s)
            self._channel.endpoint.retry(server)

    def _all_known(self) -> None:
        """Free the initial model once all ranges have been settled."""
        if all(standing > NOTHING for standing in self._store.known):
            self._initial = None

    async def _take(self, number: int, found: Mapping[PeerId, _Found]) -> bool:
        """Settle one range. Returns False if there is no copy that may be taken."""
        store, tenure = self._store, self._tenure
        own = store.copies.get(number)
        known = max((store.known[number], *(one.knows[number] for one in found.values())))
        holders = {server: (one.standings[number], one.versions[number]) for server, one in found.items()}
        if own is not None:
            holders[tenure.me] = (own.standing, own.version)
        best = max(holders.values(), default=(NOTHING, NOTHING))
        base = NOTHING
        if best[0] > NOTHING and best[0] >= known:
            base = term_of(best[0])
            if own is None or holders[tenure.me] != best:
                source = min(server for server, standing in holders.items() if standing == best)
                own = await self._fetched(number, source)
                own.term, own.restored = base, base > 0 and best[0] != settled_at(base)
                store.copies[number] = own
        elif self._initial is not None and known == NOTHING:
            part = store.ranges[number]
            own, best = store.create(number, self._initial[part.start : part.stop]), (NOTHING, NOTHING)
            store.copies[number] = own
        else:
            return False
        own.enlisted &= {*tenure.workers} | store.fixed
        chain = tenure.placement.chain(number)
        alike = base > 0 and best[0] == settled_at(base)  # copies of one term and version, of which none is restored
        same = [server for server in chain if alike and holders.get(server) == best]
        given = (self._given(number, server, own, base, same=server in same) for server in chain[1:])
        await asyncio.gather(*given)
        own.term, own.restored = tenure.epoch, False
        store.known[number] = own.standing
        witness(store.took(number, base))
        self._chains.settled(number)
        tenure.settle([number])
        return True

    async def _fetched(self, number: int, source: PeerId) -> Copy:
        """The copy that `source` holds."""
        while True:
            try:
                answer = await self._channel.ask(
                    source, lambda ask: Fetch(ask, self._tenure.epoch, number), answers=(Copied,)
                )
                told: Copied = answer.message
                copy = self._store.unpacked(number, told.names, answer.payload)
                answer.done()
                copy.past, copy.version, copy.updates = told.past, told.version, told.updates
                copy.clocks = dict(zip(told.workers, told.clocks, strict=True))
                copy.enlisted = {*told.enlisted}
                sometimes("a range has moved")
                return copy
            except PeerLost:
                pass  # as above
            except ValueError as error:
                self.on_wrong(source, f"it gave a copy that is none: {error}")
            await asyncio.sleep(self._channel.endpoint.interval_s)

    async def _given(self, number: int, server: PeerId, copy: Copy, base: int, *, same: bool) -> None:
        """Send this copy to `server` until it has it. `base`: the term of the copy that it was made from; `same`:
        `server` has the values already."""
        workers, names = tuple(copy.clocks), tuple(sorted(copy.state))
        payload = b"" if same else self._store.packed(copy)

        def question(ask: int) -> Install:
            clocks, enlisted = tuple(copy.clocks.values()), tuple(sorted(copy.enlisted))
            head = (ask, self._tenure.epoch, number, base, copy.past, copy.version, copy.updates)
            return Install(*head, workers, clocks, enlisted, names, same)

        while True:
            try:
                await self._channel.ask(server, question, payload, answers=(Installed,))
                return
            except PeerLost:
                pass  # it has not come to this view yet, or the membership will find it gone
            await asyncio.sleep(self._channel.endpoint.interval_s)

    # As a server that is asked

    def _on_install(self, envelope: Envelope) -> None:
        install, store, tenure = envelope.message, self._store, self._tenure
        if install.epoch > tenure.epoch:
            self._held.append((envelope, self._on_install))
            return
        number = install.range
        if install.epoch < tenure.epoch or envelope.sender != next(iter(tenure.placement.chain(number)), None):
            tenure.refuse(envelope)
            return
        if install.same:
            copy = store.copies[number]
        else:
            try:
                copy = store.unpacked(number, install.names, envelope.payload)
            except ValueError as error:
                raise PeerMisbehaved(f"sent a copy that is none: {error}") from None
        envelope.done()
        copy.past, copy.version, copy.updates = install.past, install.version, install.updates
        copy.term, copy.restored = install.epoch, False
        copy.clocks = dict(zip(install.workers, install.clocks, strict=True))
        copy.enlisted = {*install.enlisted}
        store.copies[number] = copy
        store.known[number] = copy.standing
        witness(store.took(number, install.base))
        self._channel.post(envelope.sender, Installed(install.ask))
        self._chains.settled(number)
        tenure.settle([number])

    def _on_settled(self, envelope: Envelope) -> None:
        settled: Settled = envelope.message
        if settled.epoch > self._tenure.epoch:
            self._held.append((envelope, self._on_settled))
            return
        for number in settled.ranges:
            if not 0 <= number < self._tenure.count:
                raise PeerMisbehaved("told of a range that there is not")
            self._store.known[number] = max(self._store.known[number], settled_at(settled.epoch))
            if settled.epoch == self._tenure.epoch and self._tenure.me not in self._tenure.placement.chain(number):
                self._store.copies.pop(number, None)
        self._all_known()


def _gone(number: int) -> str:
    return (
        f"the last copies of range {number} of the model went with their servers: begin with more --copies, or go on "
        "from the checkpoints with --resume"
    )
