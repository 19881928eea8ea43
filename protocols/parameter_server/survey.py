"""Survey: a server of a new view asks all members which copies of ranges there are.

Servers are asked until they answer. A worker has no copy; it tells only which chains it knows to have settled: the
servers that hold a range had the same copy then. A worker that does not answer, or only wrongly, is waited for four
times the endpoint's patience.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ..channel import Channel
from ..link.link import PeerLost
from ..transport import PeerId
from .messages import Holdings, Survey
from .store import NOTHING, settled_at
from .tenure import Tenure

RETURN_PATIENCES = 4
"""How many times the endpoint's patience (seconds of silence after which a peer is lost) the servers wait for a
worker's answer, and for a given-up server to come back with the last copy of a range."""


@dataclass(frozen=True, slots=True)
class Found:
    """The answers to a survey, by peer: of all other `servers` of the view, and of those of its `workers` that have
    answered."""

    servers: dict[PeerId, Holdings]
    workers: dict[PeerId, Holdings]

    def copies(self, number: int) -> dict[PeerId, tuple[int, int]]:
        """By server that was asked, the standing and the version of its copy of the range `number`, both `NOTHING`
        where it has none."""
        return {server: (one.standings[number], one.versions[number]) for server, one in self.servers.items()}

    def known(self, number: int, *, doubted: int = 0) -> int:
        """The highest standing of a copy on which, by the answers, a chain of the range `number` has settled;
        `NOTHING`: no answer names one. So many workers as `doubted` says, those that report the highest standings, are
        left out of account.
        """
        workers = sorted(one.knows[number] for one in self.workers.values())
        believed = workers[: max(0, len(workers) - doubted)]
        return max((NOTHING, *(one.knows[number] for one in self.servers.values()), *believed))

    def newer(self, number: int, standing: int) -> tuple[PeerId, ...]:
        """The workers that have reported, for the range `number`, a standing above `standing`."""
        return tuple(worker for worker, one in self.workers.items() if one.knows[number] > standing)


class Surveys:
    """Asks the other members of the present view, for one server, which copies of ranges they hold or know. `on_wrong`
    is called with a peer and the reason when that peer's answer is invalid."""

    def __init__(self, channel: Channel, tenure: Tenure, on_wrong: Callable[[PeerId, str], None]) -> None:
        self._channel, self._tenure, self._on_wrong = channel, tenure, on_wrong

    async def found(self) -> Found:
        """Ask all other members of the present view, and return their answers. Waits for each server until it answers,
        and for each worker 4 times the endpoint's patience at most; the caller cancels this when the view is over."""
        servers = [server for server in self._tenure.placement.servers if server != self._tenure.me]
        workers = self._tenure.workers
        answers = await asyncio.gather(*map(self._asked, servers), *map(self._told, workers))
        by_peer = dict(zip((*servers, *workers), answers, strict=True))
        there = {peer: answer for peer, answer in by_peer.items() if answer is not None}
        return Found({one: there[one] for one in servers}, {one: there[one] for one in workers if one in there})

    async def _told(self, worker: PeerId) -> Holdings | None:
        """The answer of a worker; None: it has given none in time."""
        try:
            async with asyncio.timeout(RETURN_PATIENCES * self._channel.endpoint.patience_s):
                return await self._asked(worker)
        except TimeoutError:
            return None  # an honest one may hang

    async def _asked(self, peer: PeerId) -> Holdings:
        while True:
            try:
                answer = await self._channel.ask(peer, lambda ask: Survey(ask, self._tenure.epoch), answers=(Holdings,))
                answer.done()
                held: Holdings = answer.message
                if not (why := self._wrong(peer, held)):
                    return held
                self._on_wrong(peer, why)
            except PeerLost:
                pass  # it has not come to this view yet, or the membership will find it gone
            await asyncio.sleep(self._channel.endpoint.interval_s)
            self._channel.endpoint.retry(peer)

    def _wrong(self, peer: PeerId, held: Holdings) -> str:
        """The reason that these holdings cannot be; "": they can be."""
        count, latest = self._tenure.count, settled_at(self._tenure.epoch)
        if {len(held.standings), len(held.versions), len(held.knows)} != {count}:
            return f"it told of {len(held.standings)} ranges, there are {count}"
        if not all(NOTHING <= standing <= latest for standing in (*held.standings, *held.knows)):
            return "it told of copies that are later than this view"
        if peer in self._tenure.workers and any((*held.standings, *held.versions)):
            return "it told of copies that it has, and it is no server"
        return ""
