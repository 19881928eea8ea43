"""Takeover: the servers of a new view agree on the copy of each range before workers push to it or pull from it.

The servers that hold a range are its chain; the first is its head. The head asks all servers of the view which copies
they hold. It takes the newest copy (`store.Copy.standing`), fetches it if another server has it, and gives it to those
servers of the chain that lack it. Then the range is settled: its term is this view's generation. Every acknowledged
push is in the chosen copy, as long as one server of the last chain is left:

- A push is acknowledged when all servers of the chain have it, so each of them alone holds it.
- A server that has come to a new view answers no message of a former one. So once the head has asked one server of a
  chain, no push is acknowledged in the former view any more.
- The heads tell all servers which terms have settled, and a worker knows the terms of its own exchanges. A copy of an
  earlier term than one of these is not taken: the servers wait for a copy of that term to come back, and then tell
  that the range is lost. If a single worker tells of that term, which may be a lie, the range goes on then from the
  copy that there is. If it was true, that worker sees that the range has gone back, and ends (`client`).

In the same way ranges move to a server that has joined, and from one that leaves. Where a link in a chain breaks and
the view stays, the head gives its copy to the servers behind it again.

Cost: one question to each other member by each server; for each range that moves, its values and state once.
On failure: a server that does not answer is asked until it does, or until a view without it begins; then all of this
begins again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

from ..channel import Channel, Envelope
from ..testpoints import sometimes, witness
from ..transport import PeerId
from ..wire.frames import PeerMisbehaved
from .chain import Chains
from .events import Doubted
from .handover import Handover
from .held import Held
from .holdings import Answers
from .keys import Model
from .messages import Install, Installed, Lost, Settled
from .store import NOTHING, Store, settled_at, term_of
from .survey import RETURN_PATIENCES, Found, Surveys
from .tenure import Tenure

_AT_A_TIME = 4
"""The most ranges that a server takes over at the same time: each needs memory for a copy on its way."""


class Takeover:
    """One server's part: for the ranges of which it is the head in a new view, it finds the newest copy, gives it to
    the chain, and settles the range. `initial`: the model with which the run begins; None: this server joined later, or
    has copies from a checkpoint."""

    def __init__(self, channel: Channel, store: Store, tenure: Tenure, chains: Chains, initial: Model | None) -> None:
        self._channel, self._store, self._tenure, self._chains = channel, store, tenure, chains
        self._initial = initial
        self._tasks: set[asyncio.Task[None]] = set()
        self._repaired: set[int] = set()
        """The ranges whose chains are being repaired."""
        self._waits_until_s: dict[int, float] = {}
        """Until when this server, as head, waits for a copy of a range that has none; the next view keeps the time."""
        self.on_wrong: Callable[[PeerId, str], None] = lambda peer, why: None
        """Called with a peer and the reason when that peer's answer is invalid."""
        self._holdings = Answers(channel, store, tenure)
        self._handover = Handover(channel, store, tenure, self._wrong)
        self._handler(Install, self._on_install)
        self._handler(Settled, self._on_settled)
        self._handler(Lost, self._on_lost)
        self._held = Held(channel)

    def begin(self) -> None:
        """Give up the work for the last view, because a new one begins, and begin to settle the ranges of which this
        server is the head. Messages that waited for this view are handled."""
        self.close()
        self._spawn(self._run(), "takeover")
        self._held.keep(self._tenure.everybody)
        self._held.look()

    def not_new(self) -> None:
        """Note that the run began before this server came: from now on it never makes a range's first copy from the
        initial model."""
        self._initial = None

    def close(self) -> None:
        """Give up all work under way."""
        self._repaired.clear()
        self._handover.close()
        self._holdings.close()
        for task in self._tasks:
            task.cancel()

    def repair(self, numbers: Sequence[int]) -> None:
        """Give this server's copies of these ranges, of which it is the head, once more to the servers behind it in the
        chains, because these lack entries. Until that is done, messages about the ranges wait."""
        for number in numbers:
            if number not in self._repaired:
                self._repaired.add(number)
                self._tenure.unsettle(number)
                self._spawn(self._repair(number), "repair")

    def _wrong(self, peer: PeerId, why: str) -> None:
        self.on_wrong(peer, why)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _repair(self, number: int) -> None:
        sometimes("a chain was repaired")
        copy, chain = self._store.copies[number], self._tenure.placement.chain(number)
        await asyncio.gather(
            *(self._handover.give(number, server, copy, copy.term, same=False) for server in chain[1:])
        )
        self._repaired.discard(number)
        self._chains.settled(number)
        self._tenure.settle([number])

    # As a head

    async def _run(self) -> None:
        tenure = self._tenure
        mine = {number for number in range(tenure.count) if tenure.head(number) == tenure.me}
        found = await Surveys(self._channel, tenure, self._wrong).found()
        gone = mine - await self._taken(mine, found)
        now = asyncio.get_running_loop().time()
        over_s = now + RETURN_PATIENCES * self._channel.endpoint.patience_s
        self._waits_until_s = {number: self._waits_until_s.get(number, over_s) for number in gone}
        if gone:
            await asyncio.sleep(max(self._waits_until_s.values()) - now)
            gone -= await self._taken(gone, found, doubted=1)
            if gone:
                self._tell_others(Lost(tenure.epoch, tuple(sorted(gone))))
                tenure.lose(gone)

    async def _taken(self, numbers: Collection[int], found: Found, *, doubted: int = 0) -> set[int]:
        """Settle those of these ranges of which there is a copy that may be taken, and return their numbers."""
        limit = asyncio.Semaphore(_AT_A_TIME)

        async def one(number: int) -> int | None:
            async with limit:
                return number if await self._take(number, found, found.known(number, doubted=doubted)) else None

        there = await asyncio.gather(*(one(number) for number in sorted(numbers)))
        settled = [number for number in there if number is not None]
        self._tell_others(Settled(self._tenure.epoch, tuple(settled)))
        self._all_known()
        return {*settled}

    def _tell_others(self, message: Settled | Lost) -> None:
        for server in self._tenure.placement.servers:
            if server != self._tenure.me:
                self._channel.post(server, message)

    def _all_known(self) -> None:
        """Free the initial model once all ranges have been settled."""
        if all(standing > NOTHING for standing in self._store.known):
            self._initial = None

    async def _take(self, number: int, found: Found, known: int) -> bool:
        """Settle one range on a copy whose standing is not below `known`. Returns False if there is none."""
        store, tenure = self._store, self._tenure
        own, holders = store.copies.get(number), found.copies(number)
        known = max(known, store.known[number])
        if own is not None:
            holders[tenure.me] = (own.standing, own.version)
        best = max(holders.values(), default=(NOTHING, NOTHING))
        base = NOTHING
        if best[0] > NOTHING and best[0] >= known:
            base = term_of(best[0])
            if own is None or holders[tenure.me] != best:
                source = min(server for server, standing in holders.items() if standing == best)
                own = await self._handover.fetched(number, source)
                own.term, own.restored = base, base > 0 and best[0] != settled_at(base)
                store.copies[number] = own
        elif self._initial is not None and known == NOTHING:
            own, best = store.create(number, self._initial), (NOTHING, NOTHING)
            store.copies[number] = own
        else:
            return False
        if newer := found.newer(number, best[0]):
            witness(Doubted(number, tenure.epoch, newer))
        own.enlisted = own.enlisted & {*tenure.workers} | store.fixed
        store.forget(number, tenure.workers)
        chain = tenure.placement.chain(number)
        alike = base > 0 and best[0] == settled_at(base)  # copies of one term and version, of which none is restored
        same = [server for server in chain if alike and holders.get(server) == best]
        given = (self._handover.give(number, server, own, base, same=server in same) for server in chain[1:])
        await asyncio.gather(*given)
        own.term, own.former, own.restored = tenure.epoch, 0 if own.restored else own.term, False
        store.known[number] = own.standing
        witness(store.took(number, base))
        self._chains.settled(number)
        tenure.settle([number])
        return True

    # As a server that is told

    def _handler(self, kind: type, handler: Callable[[Envelope], None]) -> None:
        """Register `handler` for messages of the class `kind`. A message of a later view waits for that view."""

        def arrived(envelope: Envelope) -> None:
            if envelope.message.epoch > self._tenure.epoch:
                self._held.put_off(envelope, arrived)
            else:
                handler(envelope)

        self._channel.on(kind, arrived)

    def _on_install(self, envelope: Envelope) -> None:
        install, store, tenure = envelope.message, self._store, self._tenure
        number = install.range
        self._check([number])
        if install.epoch < tenure.epoch or envelope.sender != tenure.head(number):
            tenure.refuse(envelope)
            return
        if install.same and number not in store.copies:
            raise PeerMisbehaved("sent no values of a range of which this server has none")
        try:
            copy = store.copies[number] if install.same else self._handover.arrived(install, envelope.payload)
            clocks = dict(zip(install.workers, install.clocks, strict=True))
        except ValueError as error:
            raise PeerMisbehaved(f"sent a copy that is none: {error}") from None
        envelope.done()
        if copy is None:
            self._channel.post(envelope.sender, Installed(install.ask))
            return
        copy.past, copy.version, copy.updates = install.past, install.version, install.updates
        copy.term, copy.former, copy.restored = install.epoch, copy.term if install.same else 0, False
        copy.clocks, copy.enlisted = clocks, {*install.enlisted}
        store.copies[number] = copy
        store.known[number] = copy.standing
        witness(store.took(number, install.base))
        self._channel.post(envelope.sender, Installed(install.ask))
        self._chains.settled(number)
        tenure.settle([number])

    def _on_settled(self, envelope: Envelope) -> None:
        settled, tenure = envelope.message, self._tenure
        self._check(settled.ranges)
        if settled.epoch < tenure.epoch and envelope.sender not in tenure.placement.servers:
            return  # it has left since
        if settled.epoch == tenure.epoch and any(tenure.head(one) != envelope.sender for one in settled.ranges):
            raise PeerMisbehaved("told that ranges have settled of which it is not the head")
        for number in settled.ranges:
            self._store.known[number] = max(self._store.known[number], settled_at(settled.epoch))
            if settled.epoch == tenure.epoch and tenure.me not in tenure.placement.chain(number):
                self._store.copies.pop(number, None)
        self._all_known()

    def _on_lost(self, envelope: Envelope) -> None:
        lost, tenure = envelope.message, self._tenure
        self._check(lost.ranges)
        if lost.epoch == tenure.epoch:
            tenure.lose(number for number in lost.ranges if tenure.head(number) == envelope.sender)

    def _check(self, ranges: Sequence[int]) -> None:
        if not all(0 <= number < self._tenure.count for number in ranges):
            raise PeerMisbehaved("told of a range that there is not")
