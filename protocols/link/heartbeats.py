"""Heartbeats: regular messages by which an endpoint tells other peers that it is alive. A watched peer that sends
nothing for the patience, a number of seconds, counts as lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set

from ..testpoints import buggify
from ..transport import PeerId
from .link import Link
from .table import Links


class Heartbeats:
    """The heartbeats of one endpoint on its `links`. `asked` returns the peers that this endpoint waits for an answer
    or for data from; they are watched, too. `ticked` is called each interval. `silent` is called with each link that is
    watched, or has a message waiting to be sent or acknowledged, and on which nothing has arrived for the patience."""

    def __init__(
        self,
        links: Links,
        patience_s: float,
        *,
        asked: Callable[[], Set[PeerId]],
        ticked: Callable[[], None],
        silent: Callable[[Link], None],
    ) -> None:
        self._links, self._asked = links, asked
        self._ticked, self._silent = ticked, silent
        self.interval_s = patience_s / 4
        """Seconds between two heartbeats: a quarter of the patience."""

    async def beat(self) -> None:
        """Send heartbeats until cancelled, and look for silent links. When a heartbeat is sent late, this process
        itself stood still: that time does not count as silence of others."""
        clock = asyncio.get_running_loop().time
        due = clock() + self.interval_s
        while True:
            await asyncio.sleep(max(0.0, due - clock()))
            late_s = max(0.0, clock() - due)
            due = clock() + self.interval_s
            self._ticked()
            watched = self._links.watched | self._asked()
            for link in self._links:
                if link.lost is None:
                    self._beat(link, clock(), watched=link.peer in watched, forgiven_s=late_s)

    def _beat(self, link: Link, now: float, *, watched: bool, forgiven_s: float) -> None:
        if not watched and not link.busy:
            link.heard_at = now
            link.beat(ask=False)
            return
        link.heard_at = min(now, link.heard_at + forgiven_s)
        if now - link.heard_at < self._links.patience_s(link) and not buggify("an early deadline"):
            link.beat(ask=watched or now - link.heard_at >= self.interval_s)
        else:
            self._silent(link)
