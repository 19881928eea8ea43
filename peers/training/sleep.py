"""The sleep of a peer whose bytes of the day are used up: it leaves the run, closes its connections, and comes back
later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from ...protocols.transport import PeerId
from ..peer import Peer
from ..records.units import bytes_text, seconds_text
from .stop import Stop

T = TypeVar("T")


class Sleep:
    """Has one peer leave the run while its bytes of the day (`Budget.day`) are used up, but for a reserve with which it
    leaves. `stop`: the request to stop, which also ends a sleep. A peer without a limit a day never has to sleep."""

    def __init__(self, peer: Peer, stop: Stop) -> None:
        self._peer, self._stop, self._must_sleep = peer, stop, Stop()
        self._day = None if peer.endpoint.budget is None else peer.endpoint.budget.day
        if self._day is not None:
            self._day.on_spent.append(lambda: self._must_sleep.set())

    async def unless(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T | None:
        """Await `work()` and return its result. Returns None when the peer has to stop or to sleep before it is done:
        `work` is then cancelled, or not called at all. Raises what `work` raises."""
        return await self._stop.unless(lambda: self._must_sleep.unless(work))

    @property
    def is_due(self) -> bool:
        """Whether the peer's bytes of the day are used up, so that the caller must call `sleep`; False once the peer is
        to stop."""
        return self._must_sleep.flag and not self._stop.flag

    async def sleep(self, contact: PeerId | None, left: Callable[[], Awaitable[object]], *, in_vain: bool) -> None:
        """Leave the run, await `left()`, drop the links to all peers, and wait until the peer has bytes for the run
        again, or is to stop. Unless it is to stop, the membership then takes it back (`take_back`): the conversation
        joins the run again at its next work. `contact`: the peer to join through when no other is known; None: there is
        none. `in_vain`: the peer has made no exchange since it joined or woke; the event about its sleep then advises a
        larger budget. To be called only when `is_due`."""
        peer, day, now = self._peer, self._day, asyncio.get_running_loop().time
        assert day is not None, "a peer without a budget never has to sleep"
        for_s = max(0.0, day.sleeps_s(now()))
        there = bytes_text(max(0.0, day.left_bytes(now())))
        used = f"only {there} are there for now, of {bytes_text(day.bytes_a_day)} a day"  # more comes in over the day
        if in_vain:
            used += ", without one exchange: this model takes a larger --budget-per-day"
        if peer.clock.started:
            peer.tell("asleep", why=f"{used}; it leaves, and is back in {seconds_text(for_s)}")
        await peer.conversation.leave(used)
        await left()
        for other in peer.endpoint.links.peers:
            peer.endpoint.forget(other)
        day.asleep = True
        while (for_s := day.sleeps_s(now())) > 0 and not self._stop.flag:
            await self._stop.unless(lambda: asyncio.sleep(max(1.0, for_s)))
        self._must_sleep, day.asleep = Stop(), False
        if not self._stop.flag:
            if peer.clock.started:
                peer.tell("awake", why=f"it may send and receive {bytes_text(day.left_bytes(now()))} now")
            peer.membership.take_back(contact)
