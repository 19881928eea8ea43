"""A transport around another one, whose behaviour it changes in a few ways."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ..addresses import NOWHERE
from ..budget import Budget
from ..transport import Arrivals, PeerId, Pipes, Transport
from ..wire.frames import Buffer


class Wrapped:
    """Passes all calls on to the transport `inner`. Subclasses change how frames are sent and received."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._dialled = set[PeerId]()
        """If this peer cannot be dialled: the peers that it has dialled. Frames to and from all others go by a pipe."""

    @property
    def id(self) -> PeerId:
        return self._inner.id

    @property
    def address(self) -> str:
        return self._inner.address

    @property
    def machine(self) -> str:
        return self._inner.machine

    @property
    def pipes(self) -> Pipes | None:
        return self._inner.pipes

    @property
    def budget(self) -> Budget | None:
        return self._inner.budget

    def open(self, arrivals: Arrivals) -> None:
        self._arrivals, self._clock = arrivals, asyncio.get_running_loop().time
        self._inner.open(replace(arrivals, frames=self._arrived, reconnected=self._reconnected))

    def dial(self, peer: PeerId, address: str) -> None:
        if self.pipes is not None and address != NOWHERE:
            self._dialled.add(peer)
        self._inner.dial(peer, address)

    def admit(self, peer: PeerId, *, shared: bool = False) -> None:
        self._inner.admit(peer, shared=shared)

    def dismiss(self, peer: PeerId) -> None:
        self._inner.dismiss(peer)

    def reaches(self, peer: PeerId) -> bool:
        return self._inner.reaches(peer)

    async def self_test(self) -> None:
        await self._inner.self_test()

    def whence(self, peer: PeerId) -> str:
        return self._inner.whence(peer)

    def trouble(self, peer: PeerId) -> str | None:
        return self._inner.trouble(peer)

    def post(self, peer: PeerId, header: bytes, payload: Buffer) -> int:
        return self._inner.post(peer, header, payload)

    def hang_up(self, peer: PeerId, *, call: bool = False) -> None:
        self._inner.hang_up(peer, call=call)

    def close(self) -> None:
        self._inner.close()

    def _by_pipe(self, peer: PeerId) -> bool:
        """Whether frames to and from `peer` go through a pipe. They leave this machine as payload of frames to a
        relay."""
        return self.pipes is not None and peer not in self._dialled

    def _arrived(self, sender: PeerId, header: Buffer, payload: Buffer, size: int) -> None:
        self._arrivals.frames(sender, header, payload, size)

    def _reconnected(self, peer: PeerId) -> None:
        self._arrivals.reconnected(peer)
