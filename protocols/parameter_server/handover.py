"""Handover: a copy of a range on its way from one server to another, in as many messages as it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..channel import Channel
from ..link.link import PeerLost
from ..testpoints import sometimes
from ..transport import PeerId
from ..wire.frames import Buffer
from .copy_bytes import fill, nbytes_of, packed_copy
from .messages import Copied, Fetch, Install, Installed
from .store import Copy, Store
from .tenure import Tenure


class Handover:
    """One server's copies on their way: fetches copies from other servers, and gives them to others. `on_wrong` is
    called with a server and the reason when that server's answer is invalid."""

    def __init__(self, channel: Channel, store: Store, tenure: Tenure, on_wrong: Callable[[PeerId, str], None]) -> None:
        self._channel, self._store, self._tenure, self._on_wrong = channel, store, tenure, on_wrong
        self._arriving: dict[int, tuple[Copy, int]] = {}
        """By range, the copy of which some bytes have arrived, and their number."""

    def close(self) -> None:
        """Forget the copies that have not arrived as a whole."""
        self._arriving.clear()

    async def fetched(self, number: int, source: PeerId) -> Copy:
        """Fetch the copy of the range `number` that the server `source` holds, in as many messages as it takes. Asks
        again until it has all of it, so it never ends by itself if `source` does not answer; the caller cancels it when
        the view is over."""
        copy, at = None, 0

        def question(ask: int) -> Fetch:
            return Fetch(ask, self._tenure.epoch, number, at)

        while True:
            try:
                answer = await self._channel.ask(source, question, answers=(Copied,))
                told: Copied = answer.message
                copy = copy or self._store.blank(number, told.names)
                at = fill(copy, at, answer.payload)
                answer.done()
                if at < nbytes_of(copy):
                    continue
                copy.past, copy.version, copy.updates = told.past, told.version, told.updates
                copy.clocks = dict(zip(told.workers, told.clocks, strict=True))
                copy.enlisted = {*told.enlisted}
                sometimes("a range has moved")
                return copy
            except PeerLost:
                pass  # it has not come to this view yet, or the membership will find it gone
            except ValueError as error:
                self._on_wrong(source, f"it gave a copy that is none: {error}")
            copy, at = None, 0
            await asyncio.sleep(self._channel.endpoint.interval_s)

    async def give(self, number: int, server: PeerId, copy: Copy, base: int, *, same: bool) -> None:
        """Send `copy`, of the range `number`, to `server`, again and again until `server` confirms that it has all of
        it; the caller cancels this when the view is over. `base`: the term (`store`) of the copy that this one was made
        from. `same`: `server` has the values already, so that only the numbers are sent."""
        workers, names, at = tuple(copy.clocks), tuple(sorted(copy.state)), 0

        def question(ask: int) -> Install:
            clocks, enlisted = tuple(copy.clocks.values()), tuple(sorted(copy.enlisted))
            head = (ask, self._tenure.epoch, number, at, base, copy.past, copy.version, copy.updates)
            return Install(*head, workers, clocks, enlisted, names, same)

        while True:
            payload = b"" if same else packed_copy(copy, at)
            try:
                await self._channel.ask(server, question, payload, answers=(Installed,))
                at += len(payload)
                if same or at == nbytes_of(copy):
                    return
                continue
            except PeerLost:
                at = 0  # it has not come to this view yet, or the membership will find it gone
            await asyncio.sleep(self._channel.endpoint.interval_s)

    def arrived(self, install: Install, payload: Buffer) -> Copy | None:
        """Take one message of a copy that another server gives to this one. Returns the copy once all its bytes are
        here; None: more are to come. Raises ValueError for bytes that do not follow those before them."""
        store, number = self._store, install.range
        copy, at = self._arriving.pop(number, (None, 0)) if install.at else (store.blank(number, install.names), 0)
        if copy is None or at != install.at:
            raise ValueError(f"bytes {install.at} and on came after {at}")
        at = fill(copy, at, payload)
        if at == nbytes_of(copy):
            return copy
        self._arriving[number] = copy, at
        return None
