"""Exchanges: a worker's questions about all ranges to the servers that hold them. An exchange that breaks off with a
change of the view is taken up in the next view.

A worker asks each server for as many ranges at a time as suit the link, and has few questions open with each, so a
server holds little for it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from ..channel import Channel
from ..link.link import PeerLost
from ..members.errors import MembershipError
from ..members.presence import Presence
from ..members.view import View
from ..transport import PeerId
from ..wire.frames import PAYLOAD_BYTES_MAX
from ..wire.schema import ITEMS_MAX
from .keys import Keys
from .known import Known
from .messages import NotTaken
from .placement import Placement
from .shares import Shares
from .tenure import placement_of

T = TypeVar("T")


class LostRange(MembershipError):
    """All copies of a range of the model's vector are gone, so this worker cannot go on."""


SERVERLESS_PATIENCES = 8
"""When no server is left, a worker waits this many patiences for one to come back, and then raises LostRange."""


Exchange = Callable[[PeerId, int, tuple[int, ...]], Awaitable[None]]
"""Exchanges one question and answer about these ranges with a server: (server, generation of the view, ranges)."""


class Exchanges:
    """One worker's exchanges with the servers of the ranges `keys`, each held in `copies` copies."""

    def __init__(self, channel: Channel, presence: Presence, keys: Keys, copies: int) -> None:
        self._channel, self._presence, self._keys, self._copies = channel, presence, keys, copies
        self._known = Known(channel, presence, len(keys))
        self._placed: tuple[int, Placement] | None = None
        """The generation of a view and the chains in it; None: none were asked for."""

    async def with_all(self, exchange: Exchange, shares: Shares, *, tail: bool, at_a_time: int = 1) -> None:
        """Have `exchange` done once for each range, with the tail of the range's chain or else its head, over as many
        views as it takes. `shares`: the rows that it is about; `at_a_time`: the most questions open with a server."""
        left, now = {*range(len(self._keys))}, asyncio.get_running_loop().time
        served_s = now()
        while left:
            view = await self._presence.view()
            if self._placement(view).servers:
                served_s = now()
            elif now() - served_s > SERVERLESS_PATIENCES * self._channel.endpoint.patience_s:
                raise LostRange("no server is left, and none has come back: go on from the checkpoints with --resume")
            of = self._by_server(view, left, tail=tail)
            await self._presence.during(view, partial(self._in_view, view, exchange, shares, left, of, at_a_time))
            if left and not self._presence.has_left(view):
                await self._presence.pause()

    def _placement(self, view: View) -> Placement:
        """The chains in `view`; those of the last view are kept."""
        if self._placed is None or self._placed[0] != view.generation:
            self._placed = view.generation, placement_of(view, self._copies)
        return self._placed[1]

    def _by_server(self, view: View, left: set[int], *, tail: bool) -> dict[PeerId, list[int]]:
        """The ranges that are left, ascending, by the tail of their chain in `view`, or else by its head."""
        of: defaultdict[PeerId, list[int]] = defaultdict(list)
        placement = self._placement(view)
        for number in sorted(left):
            if chain := placement.chain(number):
                of[chain[-1 if tail else 0]].append(number)
        return of

    async def _in_view(
        self,
        view: View,
        exchange: Exchange,
        shares: Shares,
        left: set[int],
        of: Mapping[PeerId, Sequence[int]],
        at_a_time: int,
    ) -> None:
        async def with_one(server: PeerId, batches: Iterator[tuple[int, ...]]) -> None:
            try:
                for ranges in batches:
                    await exchange(server, view.generation, ranges)
                    left.difference_update(ranges)
                    self._known.settled(ranges, view)
            except PeerLost:
                self._channel.endpoint.retry(server)  # in this view, or without that server in the next

        batches = {server: self._batches(server, numbers, shares) for server, numbers in of.items()}
        tasks = [
            asyncio.create_task(with_one(server, those), name="ranges")
            for server, those in batches.items()
            for _ in range(at_a_time)
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def _batches(self, server: PeerId, numbers: Sequence[int], shares: Shares) -> Iterator[tuple[int, ...]]:
        """These ranges in groups, each of as many as suit the link to `server` now."""
        at = 0
        while at < len(numbers):
            most = min(PAYLOAD_BYTES_MAX, self._channel.endpoint.chunk_bytes(server))
            until, nbytes = at + 1, shares.nbytes(numbers[at])
            while until < min(len(numbers), at + ITEMS_MAX) and nbytes + shares.nbytes(numbers[until]) <= most:
                nbytes += shares.nbytes(numbers[until])
                until += 1
            yield tuple(numbers[at:until])
            at = until


def check(ranges: Sequence[int], before: Sequence[int], now: Sequence[int], what: str = "push") -> None:
    """Raises LostRange where the number of a range's last push, or update (`what`), is below the one that this worker
    knew `before` it asked."""
    for number, known, told in zip(ranges, before, now, strict=False):
        if told < known:
            gone = f"range {number} of the model has gone back from {what} {known} to {told}"
            raise LostRange(f"{gone}: its servers were lost with all copies; go on from the checkpoints")


def taken(message: T | NotTaken) -> T:
    """Returns `message` if it is the answer. If it is NotTaken, raises LostRange when copies are lost, and ValueError
    for a wrong question."""
    if isinstance(message, NotTaken):
        raise LostRange(message.why) if message.lost else ValueError(message.why)
    return message
