"""Frames that wait in a shaped transport until they are due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from ..link.flow import INBOUND_BYTES_MAX
from ..link.lane import cost_bytes
from ..transport import PeerId
from ..wire.frames import Buffer

WAITING_BYTES_MAX = 2 * INBOUND_BYTES_MAX
"""The most bytes of frames that wait: links that keep to their credit have fewer under way."""


@dataclass(slots=True, eq=False)
class Delayed:
    """Two frames to a peer or from it, `size` bytes on the wire. `first_s`: when their first byte enters this peer's
    up-link, or its down-link if they come from the peer. `last_s`: when they leave this machine, after the up-link and
    the latency, or when their last byte has come to the down-link. Both on the loop's clock."""

    peer: PeerId
    header: Buffer
    payload: Buffer
    size: int
    first_s: float
    last_s: float
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class Waiting:
    """All frames that wait in one direction, in the order in which they were put here. `waiting_bytes`: their total
    cost (`link.lane.cost_bytes`)."""

    all: dict[Delayed, None] = field(default_factory=dict)
    waiting_bytes: int = 0

    def takes(self, header: Buffer, payload: Buffer) -> bool:
        """Whether there is room for two more frames, this header and payload: `waiting_bytes` stays within
        `WAITING_BYTES_MAX`."""
        return self.waiting_bytes + cost_bytes(header, payload) <= WAITING_BYTES_MAX

    def put(self, when: float, do: Callable[[Delayed], None], one: Delayed) -> None:
        """Keep `one` until the loop's time `when`; then remove it and call `do` with it. The caller has asked `takes`
        whether there is room."""
        self.all[one] = None
        self.waiting_bytes += cost_bytes(one.header, one.payload)
        one.timer = asyncio.get_running_loop().call_at(when, self._due, do, one)

    def _due(self, do: Callable[[Delayed], None], one: Delayed) -> None:
        self.take(one)
        do(one)

    def take(self, one: Delayed) -> None:
        """Remove `one`, which waits here, and cancel its timer: the function given to `put` is not called."""
        del self.all[one]
        self.waiting_bytes -= cost_bytes(one.header, one.payload)
        if one.timer is not None:
            one.timer.cancel()
