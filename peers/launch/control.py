"""The control line between a launcher and the peer processes it spawned: a socket pair that carries one JSON message a
line.

When either end closes the line, the other stops, so no peer process outlives its launcher. Secrets travel here, and
never in a command line or an environment, where other users could read them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from dataclasses import dataclass
from typing import Any

CONTROL_VARIABLE = "SAMOVAR_CONTROL"
"""The environment variable with the line's file descriptor in a spawned process."""
LINE_BYTES_MAX = 1 << 20
LEAVE_S = 4.0
"""How long a peer that was stopped or has failed waits for the others to release it: two round trips if none is
stuck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """A launcher's orders to a new peer. `settings` is `Settings.to_json()`; keys are hexadecimal, None if insecure."""

    task: str
    settings: str
    run: str
    folder: str
    name: str
    part: int
    secret: str | None
    admit: list[str]
    guest: str | None
    founder: bool
    resume: str | None
    threads: int
    restarted: str = ""
    """Why this peer was restarted; empty: it was not."""


class Control:
    """One end of a control line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, end: socket.socket) -> Control:
        return cls(*await asyncio.open_connection(sock=end, limit=LINE_BYTES_MAX))

    def tell(self, kind: str, content: Any = None) -> None:
        """Send one message. Does nothing when the other end has closed the line."""
        if not self._writer.is_closing():
            self._writer.write(json.dumps({kind: content}).encode() + b"\n")

    async def hear(self) -> tuple[str, Any]:
        """The next message, as its kind and content; ("closed", None) when the other end is gone."""
        try:
            line = await self._reader.readline()
        except (ConnectionError, ValueError):
            line = b""
        if not line.endswith(b"\n"):
            return "closed", None
        ((kind, content),) = json.loads(line).items()
        return kind, content

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


async def control_of_this_process() -> Control:
    """The spawned process's end of the line. The variable is removed from the environment, so that grandchildren do not
    use this launcher."""
    number = int(os.environ.pop(CONTROL_VARIABLE))
    return await Control.over(socket.socket(fileno=number))
