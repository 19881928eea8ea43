"""Flow control of an endpoint: how much data its peers may send, and the pace at which it sends itself.

Credit: the bytes that are here unused are bounded: all links share them. With a budget, data also comes at its rate.
Whenever the bytes that have arrived have passed at that rate, each link that has brought data may send one chunk more.
Cost: a pulse for each chunk.
On failure: a peer that does not keep to its credit is cut off by `Inbound.take`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..budget import Budget
from ..testpoints import buggify
from ..transport import PeerId
from .congestion import WINDOW_BYTES_MAX, Pace
from .lane import CREDIT_BYTES_MIN, Inbound, Room

if TYPE_CHECKING:
    from .link import Link

INBOUND_BYTES_MAX = 256 << 20
"""Bytes that all peers together may have in flight towards this one, without a budget. Each may overshoot its share by
one message, and keeps credit that it was granted while there were fewer peers."""
_LEAD_S = 0.03
"""Credit is given so much before the budget allows for what it will bring: it takes that long to come."""


_PACES_MAX = 4096
"""Of more peers the congestion control is remembered only while there are links to them."""


class Flow:
    """Flow control of all links of an endpoint. `links` returns their number."""

    def __init__(self, links: Callable[[], int], budget: Budget | None = None, patience_s: float = math.inf) -> None:
        """`patience_s`: seconds that a peer may be silent before it is lost."""
        self._links, self._budget, self._patience_s = links, budget, patience_s
        self._paces: dict[PeerId, Pace] = {}
        """Congestion control by peer. It outlives the link: without it, a new link would flood a slow path again."""
        self._held_bytes = INBOUND_BYTES_MAX if budget is None else budget.held_bytes
        self._pacer = None if budget is None else budget.down
        self._owed: dict[Link, None] = {}
        """Links that have brought data, in the order in which they get credit for more."""
        self._timer: asyncio.TimerHandle | None = None

    def pace(self, peer: PeerId) -> Pace:
        """Congestion control for a link to `peer`."""
        if peer not in self._paces:
            if len(self._paces) >= _PACES_MAX:
                del self._paces[next(iter(self._paces))]  # a link that has it keeps it
            self._paces[peer] = Pace(self._patience_s, None if self._budget is None else self._budget.rate_Bps)
        return self._paces[peer]

    def forget(self, peer: PeerId) -> None:
        """`peer` does not come again."""
        self._paces.pop(peer, None)

    def share_bytes(self) -> int:
        """Bytes of one link that may be here before they are used."""
        if buggify("the least credit"):
            return CREDIT_BYTES_MIN
        return max(CREDIT_BYTES_MIN, min(WINDOW_BYTES_MAX, self._held_bytes // (self._links() or 1)))

    def room(self, inbound: Inbound) -> Room:
        """How far the sender may go with whom the lane `inbound` is shared."""
        if self._budget is None or (chunk_bytes := self._budget.chunk_bytes) is None:
            return Room(self.share_bytes())
        if inbound.received_bytes == 0:
            return Room(self.share_bytes(), chunk_bytes)
        return Room(self.share_bytes(), 1 if self._wait_s() <= 0 else 0)  # a sender may overshoot by one chunk

    def came(self, link: Link) -> None:
        """Data has come by `link`: it gets credit for more when the budget allows it."""
        if self._pacer is not None:
            self._owed[link] = None
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(self._wait_s(), self._give)

    def _give(self) -> None:
        self._timer = None
        if (wait_s := self._wait_s()) > 0:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._give)
            return
        owed, self._owed = self._owed, {}
        for link in owed:
            link.consumed(0)

    def _wait_s(self) -> float:
        return 0.0 if self._pacer is None else self._pacer.wait_s(asyncio.get_running_loop().time(), _LEAD_S)
