"""Flow control of an endpoint: how much data its peers may send, and the pace at which it sends itself.

A sender needs credit, bytes that the receiver allows. The bytes that have arrived here and are not consumed yet are
bounded, and all links share that bound. With a rate (`--budget`) peers also send data at that rate only: as soon as
the bytes that have arrived so far are within that rate, each link that has brought data is allowed one chunk more.
Cost: a pulse for each chunk.
On failure: a peer that does not keep to its credit is cut off by `Inbound.take`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Protocol

from ..budget import Budget
from ..testpoints import buggify
from ..transport import PeerId
from .congestion import WINDOW_BYTES_MAX, Pace
from .lane import CREDIT_BYTES_MIN, Inbound, Room

INBOUND_BYTES_MAX = 256 << 20
"""Bytes that all peers together may have in flight towards this one, without a budget. Each may overshoot its share by
one message, and keeps credit that it was granted while there were fewer peers."""
_LEAD_S = 0.03
"""Credit is given this many seconds before the budget allows for its data: that is about the time until the data
arrives."""
_PACES_MAX = 4096
"""The most peers whose congestion control is remembered without a link to them."""


class Receiver(Protocol):
    """The receiving end of a link."""

    def consumed(self, cost: int) -> None:
        """Give the sender back the credit of a message of `cost` bytes that was consumed; 0: tell it only of new
        credit."""
        ...


class Flow:
    """The flow control of all links of one endpoint. `links` returns the number of its links. `budget` bounds the bytes
    that are not consumed yet (`held_bytes`), and the rate at which data comes (`rate_Bps`), if it has one; None: the
    bound is 256 MiB, and there is no rate."""

    def __init__(self, links: Callable[[], int], budget: Budget | None = None, patience_s: float = math.inf) -> None:
        """`patience_s`: seconds that a peer may be silent before it is lost."""
        self._links, self._budget, self._patience_s = links, budget, patience_s
        self._paces: dict[PeerId, Pace] = {}
        """Congestion control by peer. It outlives the link: without it, a new link would flood a slow path again."""
        self._held_bytes = INBOUND_BYTES_MAX if budget is None else budget.held_bytes
        self._pacer = None if budget is None else budget.down
        self._owed: dict[Receiver, None] = {}
        """Links that have brought data, in the order in which they get credit for more."""
        self._timer: asyncio.TimerHandle | None = None

    def pace(self, peer: PeerId) -> Pace:
        """The congestion control for a link to `peer`: that of an earlier link, if it is remembered, else a new one. At
        most 4096 are remembered: a new one takes the place of the oldest."""
        if peer not in self._paces:
            if len(self._paces) >= _PACES_MAX:
                del self._paces[next(iter(self._paces))]  # a link that has it keeps it
            self._paces[peer] = Pace(self._patience_s, None if self._budget is None else self._budget.rate_Bps)
        return self._paces[peer]

    def forget(self, peer: PeerId) -> None:
        """Forget the congestion control of `peer`: a later link to it begins with a new one (`pace`). A link that has
        the old one keeps it. Does nothing for a peer that is not known."""
        self._paces.pop(peer, None)

    def share_bytes(self) -> int:
        """The most bytes that a peer may send on one link beyond those that are consumed here: an equal share of the
        bound for all links, but at least 256 KiB and at most 32 MiB. It may overshoot by one message, and keeps credit
        that it was given while there were fewer links."""
        if buggify("the least credit"):
            return CREDIT_BYTES_MIN
        return max(CREDIT_BYTES_MIN, min(WINDOW_BYTES_MAX, self._held_bytes // (self._links() or 1)))

    def room(self, inbound: Inbound) -> Room:
        """The present limits, in bytes, for the peer that sends on the lane `inbound`. They are no credit: the first,
        `share_bytes`, counts from the bytes that are consumed here, the second from those that have arrived, and
        `Inbound.limit_bytes` makes the credit of both. Without a rate (`Budget.rate_Bps`) there is no second limit.
        With one it is a chunk before any data has come; then 1 when the rate allows more, because a sender may
        overshoot by a message, and 0 until then."""
        if self._budget is None or (chunk_bytes := self._budget.chunk_bytes) is None:
            return Room(self.share_bytes())
        if inbound.received_bytes == 0:
            return Room(self.share_bytes(), chunk_bytes)
        return Room(self.share_bytes(), 1 if self._wait_s() <= 0 else 0)  # a sender may overshoot by one chunk

    def came(self, link: Receiver) -> None:
        """Note that data has arrived on `link`. With a rate, the link's peer gets credit for more as soon as the rate
        allows it; without one (also with a budget a day alone), this does nothing."""
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
