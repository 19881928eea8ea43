"""A transport with a budget (`protocols.budget`): frames leave at its rate, whatever link and lane they are of.

Frames that arrive are charged to the budget too; the endpoint slows their senders by giving credit later
(`link.credit`). Frames that go by a pipe pass at once, and are charged on their way to the relay. Others, to a peer
that is not connected now, wait here: the inner transport would send all of them at once when it connects. When the
day's bytes are used up, or the peer sleeps, nothing leaves, and frames that are posted are dropped.
"""

from __future__ import annotations

import asyncio

from ..budget import Budget
from ..transport import PeerId, Transport, wire_bytes
from ..wire.frames import Buffer
from .send_queues import Lines
from .wrapped import Wrapped

_LOOK_S = 0.5
"""Seconds between two checks whether a peer is connected by now, besides the transport's own calls."""
_LAST_FRAMES = 16
"""The most frames, acknowledgements above all, that are still sent on closing."""


class Budgeted(Wrapped):
    """The transport `inner`, whose sent and received bytes are charged to `budget`, but for the last frames on closing.
    `encrypted`: whether `inner` encrypts."""

    def __init__(self, inner: Transport, budget: Budget, *, encrypted: bool) -> None:
        super().__init__(inner)
        self._budget, self._encrypted, self._lines = budget, encrypted, Lines()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def budget(self) -> Budget | None:
        return self._budget

    def post(self, peer: PeerId, header: bytes, payload: Buffer) -> int:
        if self._by_pipe(peer):
            return self._inner.post(peer, header, payload)
        size = wire_bytes(len(header), len(payload), encrypted=self._encrypted)
        if self._budget.is_spent or not self._lines.put(peer, header, payload, size):
            return 0
        self._send_on()
        return size

    def _send_on(self) -> None:
        """Send the frames that the budget allows now, and set a timer for the next ones."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._closed:
            return
        while self._lines and (wait_s := self._wait_s()) <= 0:
            if (one := self._lines.take(self._inner.reaches)) is None:
                wait_s = _LOOK_S
                break
            self._budget.sent(one.size)
            self._inner.post(one.peer, one.header, one.payload)
        if self._lines:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._send_on)

    def _wait_s(self) -> float:
        if self._budget.is_spent:
            return _LOOK_S
        return 0.0 if self._budget.up is None else self._budget.up.wait_s(self._clock())

    def _arrived(self, sender: PeerId, header: Buffer, payload: Buffer, size: int) -> None:
        self._budget.received(size)
        super()._arrived(sender, header, payload, size)

    def _reconnected(self, peer: PeerId) -> None:
        if not self._by_pipe(peer):
            self._budget.connected()
        super()._reconnected(peer)
        self._send_on()

    def hang_up(self, peer: PeerId, *, call: bool = False) -> None:
        self._lines.drop(peer)
        self._inner.hang_up(peer, call=call)

    def close(self) -> None:
        """Send the frames that would leave next, at most 16 pairs, and only those before the first pair with a payload;
        none if the budget is spent. Then close. So a peer whose last message was just acknowledged learns of it and
        need not wait."""
        for _ in range(_LAST_FRAMES):
            one = None if self._closed or self._budget.is_spent else self._lines.take(self._inner.reaches)
            if one is None or len(one.payload):
                break
            self._inner.post(one.peer, one.header, one.payload)
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._inner.close()
