"""The transport inside one process: peers on one event loop hand frames to each other. For tests and first steps."""

from __future__ import annotations

import asyncio

from .shared_memory.machine import machine
from .transport import Arrivals, PeerId
from .wire.frames import Buffer


class LocalHub:
    """The place where `LocalTransport`s of one event loop find each other."""

    def __init__(self) -> None:
        self.arrivals: dict[PeerId, Arrivals] = {}
        self.admitted: dict[PeerId, set[PeerId]] = {}


class LocalTransport:
    """A transport of peers on one event loop. It delivers frames in the loop's next iteration, in order, and loses none
    unless the receiver is closed or has not admitted the sender. Nothing is encrypted."""

    pipes = None
    budget = None

    def __init__(self, hub: LocalHub, id: PeerId) -> None:
        self._hub, self._id = hub, id
        self._arrivals: Arrivals | None = None

    @property
    def id(self) -> PeerId:
        return self._id

    @property
    def address(self) -> str:
        return f"local://{self._id}"

    @property
    def machine(self) -> str:
        return machine()

    def open(self, arrivals: Arrivals) -> None:
        if self._id in self._hub.arrivals:
            raise OSError(f"{self.address} is in use already")
        self._hub.arrivals[self._id] = self._arrivals = arrivals
        self._hub.admitted.setdefault(self._id, set())

    def dial(self, peer: PeerId, address: str) -> None:
        """Do nothing: every peer of the hub can be reached."""

    def admit(self, peer: PeerId, *, shared: bool = False) -> None:
        self._hub.admitted.setdefault(self._id, set()).add(peer)

    def dismiss(self, peer: PeerId) -> None:
        self._hub.admitted[self._id].discard(peer)

    def post(self, peer: PeerId, header: bytes, payload: Buffer) -> int:
        if not self._is_open():
            return 0
        size = len(header) + len(payload)
        asyncio.get_running_loop().call_soon(self._hand_over, peer, header, payload, size)
        return size

    def _hand_over(self, peer: PeerId, header: bytes, payload: Buffer, size: int) -> None:
        there = self._hub.arrivals.get(peer)
        if there is not None and self._id in self._hub.admitted[peer]:
            # A copy, as over a network: the sender may write to its buffer as soon as the arrival is acknowledged.
            there.frames(self._id, header, bytes(payload), size)

    def reaches(self, peer: PeerId) -> bool:
        return True

    async def self_test(self) -> None:
        """Do nothing: no peer outside the process can connect."""

    def whence(self, peer: PeerId) -> str:
        return f"local://{peer}"

    def trouble(self, peer: PeerId) -> str | None:
        return None if peer in self._hub.arrivals else "nobody listens"

    def hang_up(self, peer: PeerId, *, call: bool = False) -> None:
        """Do nothing: there are no connections."""

    def close(self) -> None:
        if self._is_open():
            del self._hub.arrivals[self._id]

    def _is_open(self) -> bool:
        """Whether this transport is open. Another one of the same id may have opened after it was closed."""
        return self._arrivals is not None and self._hub.arrivals.get(self._id) is self._arrivals
