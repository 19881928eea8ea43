"""The control line between a launcher and a peer process that it spawned: a socket pair with one JSON message a line.

When the launcher's end closes, the peer process stops, so that no peer process outlives its launcher. When the peer's
end closes, the launcher waits for the process to end. Secret keys are sent on this line, never in a command line or an
environment, where other users could read them.
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
"""The environment variable that tells a spawned process the file descriptor of its control line."""
LINE_BYTES_MAX = 1 << 20
LEAVE_S = 4.0
"""The most seconds that a peer that was stopped or has failed spends on leaving in good order, in which the others
confirm that they do without it. That takes two round trips unless a peer is stuck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """The orders of a launcher to a new peer. Keys are hexadecimal, and None in an insecure run.

    `task`: path of the task file or script. `settings`: this peer's, as `Settings.to_json()`. `run`: name of the run;
    `folder`: path of its folder. `name`: the peer's display name. `data_shard`: the index of its data shard. `secret`:
    the peer's secret key; `admit`: public keys that may join without an invite; `guest`: public half of the invite's
    guest key. `founder`: this peer founds the run. `resume`: path of the checkpoint to resume from; None: it has none.
    `resumed_s`: the time of the last record of earlier processes, in seconds since the run began. `threads`: number of
    PyTorch threads. `restarted`: why this peer was restarted; "": it was not. `role`: its role in the run, as "server";
    "": it trains.
    """

    task: str
    settings: str
    run: str
    folder: str
    name: str
    data_shard: int
    secret: str | None
    admit: list[str]
    guest: str | None
    founder: bool
    resume: str | None
    threads: int
    resumed_s: float = 0.0
    restarted: str = ""
    role: str = ""


class Control:
    """One end of a control line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, end: socket.socket) -> Control:
        """An end of a control line over the connected socket `end`, which `close` closes too."""
        return cls(*await asyncio.open_connection(sock=end, limit=LINE_BYTES_MAX))

    def tell(self, kind: str, content: Any = None) -> None:
        """Send one message of this kind, without waiting. `content`: any JSON value. If this end is closed, nothing is
        sent."""
        if not self._writer.is_closing():
            self._writer.write(json.dumps({kind: content}).encode() + b"\n")

    async def hear(self) -> tuple[str, Any]:
        """Wait for the next message; returns its kind and content, or ("closed", None) when the other end is closed, or
        has sent a line longer than `LINE_BYTES_MAX`. One call at a time."""
        try:
            line = await self._reader.readline()
        except (ConnectionError, ValueError):
            line = b""
        if not line.endswith(b"\n"):
            return "closed", None
        ((kind, content),) = json.loads(line).items()
        return kind, content

    async def close(self) -> None:
        """Close this end; messages that were sent before still arrive."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


async def control_of_this_process() -> Control:
    """This process's end of the line, if a launcher spawned it; else KeyError. To be called once: the variable is
    removed from the environment, so that grandchildren do not use this launcher."""
    number = int(os.environ.pop(CONTROL_VARIABLE))
    return await Control.over(socket.socket(fileno=number))
