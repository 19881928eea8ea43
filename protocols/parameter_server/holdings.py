"""Holdings: a server tells the heads of a new view, which are the first servers of the ranges' chains, which copies of
ranges it holds, and sends them copies that they fetch."""

from __future__ import annotations

import asyncio
import contextlib

from ..channel import Channel, Envelope
from ..link.link import PeerLost
from ..transport import PeerId
from ..wire.frames import Buffer
from .copy_bytes import packed_copy
from .messages import Copied, Fetch, Holdings, Survey
from .store import NOTHING, Store
from .tenure import Tenure


class Answers:
    """One server's answers to `Survey` (which copies it holds) and `Fetch` (the bytes of one copy)."""

    def __init__(self, channel: Channel, store: Store, tenure: Tenure) -> None:
        self._channel, self._store, self._tenure = channel, store, tenure
        self._sending: set[asyncio.Task[None]] = set()
        tenure.handler(Survey, self._on_survey, tenure.from_server)
        tenure.handler(Fetch, self._on_fetch, tenure.from_server)

    def close(self) -> None:
        """Stop sending copies to the heads of the last view, which do not need them any more."""
        for task in self._sending:
            task.cancel()

    def _on_survey(self, envelope: Envelope) -> None:
        copies, numbers = self._store.copies, range(self._tenure.count)
        standings = tuple(copies[one].standing if one in copies else NOTHING for one in numbers)
        versions = tuple(copies[one].version if one in copies else NOTHING for one in numbers)
        held = Holdings(envelope.message.ask, standings, versions, tuple(self._store.known))
        self._channel.post(envelope.sender, held)

    def _on_fetch(self, envelope: Envelope) -> None:
        fetch: Fetch = envelope.message
        copy = self._store.copies.get(fetch.range)
        if copy is None:
            self._channel.refuse(envelope, "it holds no copy of that range")
            return
        workers, clocks, names = tuple(copy.clocks), tuple(copy.clocks.values()), tuple(sorted(copy.state))
        enlisted = tuple(sorted(copy.enlisted))
        told = Copied(fetch.ask, copy.past, copy.version, copy.updates, workers, clocks, enlisted, names)
        payload = packed_copy(copy, fetch.at)
        task = asyncio.create_task(self._send(envelope.sender, told, payload), name="copy")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, to: PeerId, told: Copied, payload: Buffer) -> None:
        with contextlib.suppress(PeerLost):
            await self._channel.send(to, told, payload)
