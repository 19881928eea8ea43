"""Redial: when to connect again to a peer that could not be reached, refused this peer, or closed the connection.

libzmq's own reconnection is disabled (Z18, Z30): after a refusal it never tries again; after other failed handshakes it
tries five times a second without end; if no peer listens it tries ever more seldom, even if messages are waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PAUSE_MIN_S, PAUSE_MAX_S = 0.2, 30.0
_CALL_S = 15.0
"""Seconds after which an attempt to connect without an outcome is made anew. Connecting and the handshake have 5 s
each. libzmq reports nothing at all for a host name that cannot be resolved."""


class Redial:
    """Times the attempts to connect to one peer. `call` makes an attempt; if no outcome is reported within 15 s,
    another one is made. The caller has made the first attempt before it constructs this object; if `asleep`, there is
    none until `hurry` is called. `pause_max_s`: the longest pause, in seconds."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        call: Callable[[], None],
        *,
        pause_max_s: float = PAUSE_MAX_S,
        asleep: bool = False,
    ) -> None:
        self._loop, self._call, self._pause_max_s = loop, call, pause_max_s
        self._pause_s = PAUSE_MIN_S
        self._timer = None if asleep else loop.call_later(_CALL_S, self._again)
        self.pausing = asleep
        """Whether no attempt is under way: the next one waits for the end of a pause, or, if asleep, for a message to
        be sent."""

    def failed(self) -> None:
        """Note that the attempt has failed, or that its connection has ended: the next attempt is made after a pause of
        0.2 s, each time twice as long, up to `pause_max_s`."""
        self.pausing = True
        self._set_timer(self._pause_s)
        self._pause_s = min(2 * self._pause_s, self._pause_max_s)

    def hurry(self) -> None:
        """Note that a message is to be sent: the next pauses begin with 0.2 s again, and the present one ends within
        that time. If this object is asleep, an attempt is made now. An attempt in progress goes on."""
        self._pause_s = PAUSE_MIN_S
        if self._timer is None:
            self._again()
        elif self.pausing and self._timer.when() > self._loop.time() + PAUSE_MIN_S:
            self._set_timer(PAUSE_MIN_S)

    def succeeded(self) -> None:
        """Note that there is a connection: no more attempts until `failed`."""
        self.pausing, self._pause_s = False, PAUSE_MIN_S
        self.stop()

    def stop(self) -> None:
        """Make no more attempts, until another method begins them again."""
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self, delay_s: float) -> None:
        self.stop()
        self._timer = self._loop.call_later(delay_s, self._again)

    def _again(self) -> None:
        self.pausing = False
        self._set_timer(_CALL_S)
        self._call()
