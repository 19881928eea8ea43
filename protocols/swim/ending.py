"""Ending: how a peer leaves of its own will, and how peers that have finished wait for each other."""

from __future__ import annotations

import asyncio
import contextlib

from ..channel import Channel, Envelope
from ..members.states import Moved, State
from ..members.view import Member
from ..members.waiting import Waiting
from ..testpoints import witness
from ..transport import PeerId
from ..wire.frames import in_words
from .driver import Driver
from .messages import AskDone, Done, Goes

_FINISHED_MAX = 1024
_TOLD_MAX = 16
"""The most neighbours that a leaving peer tells itself; these tell the others."""


class Ending:
    """One peer's side of the end: it leaves, or waits until all members that it knows have finished too. It notes which
    others leave or have finished, and answers those that ask whether it has. `waiting` is notified when another peer
    has reported that it has finished."""

    def __init__(self, channel: Channel, driver: Driver, waiting: Waiting) -> None:
        self._channel, self._driver, self._waiting = channel, driver, waiting
        self.finished: set[PeerId] = set()
        """Peers that have finished, also some that are no members here, and this peer once it has."""
        self.leaves = False
        """Whether this peer has begun to leave."""
        self._state = State.MEMBER
        driver.on_joined.append(self._joined)
        channel.on(Goes, self._on_goes)
        channel.on(Done, self._on_done)
        channel.on(AskDone, self._on_ask_done)

    @property
    def _others(self) -> list[PeerId]:
        return list(self._driver.swim.table.entries)

    async def leave(self, why: str) -> None:
        """Stop the state machine, and tell other members that this peer leaves for the reason `why`. Returns when they
        have acknowledged it, or after twice the endpoint's patience, the seconds that a peer may be silent. A second
        call does nothing."""
        if self.leaves:
            return
        self.leaves = True
        self._moves(State.LEAVING)
        self._driver.do(self._driver.swim.leave)
        for peer in self._others[:_TOLD_MAX]:
            self._channel.post(peer, Goes(in_words(why)))
        self._driver.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * self._channel.endpoint.patience_s):
                await self._channel.endpoint.drain()

    def take_back(self) -> None:
        """Note that this peer, which has left, is to join again."""
        self.leaves = False
        self._moves(State.OUTSIDE)

    def came_back(self) -> None:
        """Note that this peer has joined again."""
        self._moves(State.MEMBER)

    async def finish(self, me: PeerId) -> None:
        """Tell the other members that this peer, `me`, has finished, and all peers that have reported the same, even if
        they are no members here. Returns when all members that this peer knows have finished too, or are gone: until
        then one of them may need data that only this peer has. A message is lost if the link breaks, so members that
        have not reported are asked after each patience. Raises the error of `Waiting.failed`."""
        waiting = [*dict.fromkeys([*self._others, *self.finished])]
        self.finished.add(me)
        self._moves(State.FINISHED)
        if self._driver.swim.overlay is not None:
            self._driver.swim.overlay.rests = True
        for peer in waiting:
            self._channel.post(peer, Done())
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._channel.endpoint.patience_s):
                    return await self._waiting.until(lambda: self.over(me))
            for peer in self._others:
                if peer not in self.finished:
                    self._channel.endpoint.retry(peer)
                    self._channel.post(peer, AskDone())

    def _moves(self, to: State) -> None:
        if self._state is not to:
            before, self._state = self._state, to
            witness(Moved(before, to))

    def over(self, me: PeerId) -> bool:
        """Whether this peer and all the members that it knows have finished."""
        return me in self.finished and self.finished.issuperset(self._others)

    def departed(self, peer: PeerId) -> bool:
        """Note that `peer` is no member any more. Returns whether it had finished before."""
        had = peer in self.finished
        self.finished.discard(peer)
        return had

    def _joined(self, member: Member) -> None:
        if self._driver.swim.table.me.id in self.finished:
            self._channel.post(member.id, Done())

    def _on_goes(self, envelope: Envelope) -> None:
        swim = self._driver.swim
        entry = swim.table.entries.get(envelope.sender)
        if entry is not None:
            why = in_words(envelope.message.why)
            self._driver.do(lambda: swim.suspicion.bury(entry, why, told=True, left=True))

    def _on_done(self, envelope: Envelope) -> None:
        table, peer = self._driver.swim.table, envelope.sender
        if table.me.id in self.finished and peer not in table.entries and peer not in self.finished:
            self._channel.post(peer, Done())  # it knows this peer, which has not told it
        self.finished.add(peer)  # this peer may hear only next that it has a link with that one
        if len(self.finished) > _FINISHED_MAX:
            self.finished &= {*self._others, self._driver.swim.table.me.id}
        self._waiting.notify()

    def _on_ask_done(self, envelope: Envelope) -> None:
        if self._driver.swim.table.me.id in self.finished:
            self._channel.post(envelope.sender, Done())
