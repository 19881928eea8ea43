"""Pipes in memory: the pipes (`protocols.pipes`) of a simulated peer that cannot be dialled."""

from __future__ import annotations

import asyncio

from ...protocols.pipes import PipeUser
from ...protocols.wire.frames import Buffer


class MemoryPipe:
    """One end of a pipe within one process (`protocols.pipes.Pipe`); nothing is lost, and `write` never waits."""

    def __init__(self) -> None:
        self._far = self
        self._user: PipeUser | None = None
        self._came = bytearray()
        self._held = self._closed = self._due = False

    @classmethod
    def pair(cls) -> tuple[MemoryPipe, MemoryPipe]:
        """The two ends of a new pipe."""
        one, other = cls(), cls()
        one._far, other._far = other, one
        return one, other

    @property
    def waiting_bytes(self) -> int:
        return len(self._far._came)

    def begin(self, user: PipeUser) -> None:
        self._user = user
        self._hand_over_soon()

    def write(self, data: Buffer) -> None:
        if not self._closed and not self._far._closed:
            self._far._came += data
            self._far._hand_over_soon()

    def hold(self, held: bool) -> None:
        self._held = held
        self._hand_over_soon()

    def close(self) -> None:
        self._user, self._closed = None, True
        self._came.clear()
        self._far._hand_over_soon()

    def _hand_over_soon(self) -> None:
        if not self._due and self._user is not None and not self._held:
            self._due = True
            asyncio.get_running_loop().call_soon(self._hand_over)

    def _hand_over(self) -> None:
        self._due = False
        if self._user is None or self._held:
            return
        if self._came:
            data = bytes(self._came)
            self._came.clear()
            self._user.arrived(data)
            if self._far._user is not None:
                self._far._user.drained()
        if self._far._closed and not self._came and self._user is not None:
            user, self._user, self._closed = self._user, None, True
            user.ended()
