"""What waits in a shaped transport until it is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from ..link.lane import cost_bytes
from ..link.table import INBOUND_BYTES_MAX
from ..transport import PeerId
from ..wire.frames import Buffer

WAITING_BYTES_MAX = 2 * INBOUND_BYTES_MAX
"""Links that keep to their credit have less under way."""


@dataclass(slots=True, eq=False)
class Delayed:
    """Two frames to a peer or from it, `size` bytes on the wire. `first_s` and `last_s`: when their first byte comes to
    our link, and their last one to the other end of it."""

    peer: PeerId
    header: Buffer
    payload: Buffer
    size: int
    first_s: float
    last_s: float
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class Waiting:
    """All that waits in one direction, in the order in which it came."""

    all: dict[Delayed, None] = field(default_factory=dict)
    waiting_bytes: int = 0

    def takes(self, header: Buffer, payload: Buffer) -> bool:
        """Whether there is room for one more."""
        return self.waiting_bytes + cost_bytes(header, payload) <= WAITING_BYTES_MAX

    def put(self, when: float, do: Callable[[Delayed], None], one: Delayed) -> None:
        """Do that then with this one, which does not wait here any more."""
        self.all[one] = None
        self.waiting_bytes += cost_bytes(one.header, one.payload)
        one.timer = asyncio.get_running_loop().call_at(when, self._due, do, one)

    def _due(self, do: Callable[[Delayed], None], one: Delayed) -> None:
        self.take(one)
        do(one)

    def take(self, one: Delayed) -> None:
        """It does not wait any more."""
        del self.all[one]
        self.waiting_bytes -= cost_bytes(one.header, one.payload)
        if one.timer is not None:
            one.timer.cancel()
