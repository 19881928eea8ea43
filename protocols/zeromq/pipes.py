"""Pipes of sockets: how a peer that cannot be dialled exchanges its ZeroMQ connections with other such peers as streams
of bytes, which a relay carries.

To send to such a peer, this one connects a DEALER to a doorstep, a listening socket of this machine. The doorstep hands
the connection's bytes to the relay as a pipe. On Linux a doorstep takes no connection of another process. A connection
that another such peer makes arrives as a pipe into this peer's own inbox, which is bound to the loopback. The bytes are
ZMTP with CURVE, between the two peers themselves.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import struct
import sys
from collections.abc import Callable, Coroutine
from typing import Any, cast

from ..addresses import split_address
from ..pipes import Pipe, PipeUser
from ..transport import PeerId
from ..wire.frames import Buffer

LOOPBACK = "tcp://127.0.0.1:0"
"""The address to which a peer that cannot be dialled binds its inbox: only this machine reaches it."""


class SocketPipe(asyncio.Protocol):
    """A pipe whose other end is a stream socket. Bytes that are written before the socket is connected wait. `gone` is
    called with the pipe when it has ended, by either side."""

    def __init__(self, gone: Callable[[SocketPipe], None]) -> None:
        self._gone = gone
        self._user: PipeUser | None = None
        self._transport: asyncio.Transport | None = None
        self._held = self._closed = False
        self._early: list[bytes] = []

    @property
    def waiting_bytes(self) -> int:
        early = sum(map(len, self._early))
        return early + (0 if self._transport is None else self._transport.get_write_buffer_size())

    def begin(self, user: PipeUser) -> None:
        if self._closed:
            asyncio.get_running_loop().call_soon(user.ended)
            return
        self._user = user
        if self._transport is not None:
            self._read_on()

    def write(self, data: Buffer) -> None:
        if self._closed:
            return
        if self._transport is not None:
            self._transport.write(data)
        else:
            self._early.append(bytes(data))

    def hold(self, held: bool) -> None:
        self._held = held
        if self._transport is not None and not self._closed:
            self._read_on()

    def close(self) -> None:
        self._user = None
        self.end()

    def end(self) -> None:
        """Call the user's `ended` now, if there is a user. The connection ends once all written bytes are in the
        socket."""
        if self._transport is not None:
            self._transport.close()
        self.connection_lost(None)

    def _read_on(self) -> None:
        """Read if a user takes the bytes, or pause."""
        assert self._transport is not None
        if self._held or self._user is None:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._closed:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(0)  # so that resume_writing tells whenever the socket has taken all
        self._read_on()
        for data in self._early:
            self._transport.write(data)
        self._early.clear()
        if self._user is not None and not self.waiting_bytes:
            self._user.drained()

    def data_received(self, data: bytes) -> None:
        if self._user is not None:
            self._user.arrived(data)

    def resume_writing(self) -> None:
        if self._user is not None:
            self._user.drained()

    def connection_lost(self, error: Exception | None) -> None:
        """Called when the connection has ended, or could not be made: the user's `ended` is called, if there is a
        user."""
        self._early.clear()
        user, self._user, self._closed = self._user, None, True
        self._gone(self)
        if user is not None:
            user.ended()


class Doorstep:
    """A listening socket of this machine: on Linux an abstract one, which closes connections of other processes;
    elsewhere one on the loopback, which takes all. `came` is called with each connection that is taken, as a pipe."""

    def __init__(self, pipes: SocketPipes, came: Callable[[Pipe], None]) -> None:
        """`pipes` makes a pipe of each connection. Raises OSError when no descriptor is free for the socket."""
        self._loop, self._pipes, self._came = asyncio.get_running_loop(), pipes, came
        self._tells = sys.platform == "linux"
        self._socket = socket.socket(socket.AF_UNIX if self._tells else socket.AF_INET)
        name = f"samovar-{secrets.token_hex(16)}"
        try:
            self._socket.setblocking(False)
            self._socket.bind(f"\0{name}" if self._tells else ("127.0.0.1", 0))
            self._socket.listen(1)
        except OSError:
            self._socket.close()
            raise
        self.address = f"ipc://@{name}" if self._tells else f"tcp://127.0.0.1:{self._socket.getsockname()[1]}"
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        try:
            accepted, _ = self._socket.accept()
        except OSError:  # it has gone again, or there is no descriptor for it
            return
        if self._tells and _process_of(accepted) != os.getpid():
            accepted.close()
            return
        accepted.setblocking(False)
        self._came(self._pipes.opened(lambda made: self._loop.connect_accepted_socket(made, accepted)))

    def close(self) -> None:
        """Accept no more connections. A second call does nothing."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()


def _process_of(connected: socket.socket) -> int:
    """The id of the process that has connected to a socket of the family AF_UNIX, as the kernel tells it (unix(7))."""
    size = struct.calcsize("3i")
    pid: int = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[0]
    return pid


class SocketPipes:
    """The pipes of one ZeroMQ transport (`protocols.transport.Pipes`): makes doorsteps and inlets, and ends all
    pipes."""

    def __init__(self) -> None:
        self.wanted: Callable[[PeerId, Pipe], None] = lambda peer, pipe: pipe.close()
        self._inbox = LOOPBACK
        self._opening, self._open = set[asyncio.Task[object]](), set[SocketPipe]()

    def lead_to(self, bound: str) -> None:
        """From now on `inlet` makes pipes into the inbox that is bound to the address `bound`."""
        self._inbox = bound

    def doorstep(self, peer: PeerId) -> Doorstep:
        """A new doorstep. Each connection to it becomes a pipe that is `wanted` for `peer`. Raises OSError when no
        descriptor is free for it."""
        return Doorstep(self, lambda pipe: self.wanted(peer, pipe))

    def inlet(self) -> Pipe:
        """A new pipe into this peer's own inbox."""
        loop, (host, port) = asyncio.get_running_loop(), split_address(self._inbox)
        return self.opened(lambda made: loop.create_connection(made, host, port))

    def opened(self, connect: Callable[[Callable[[], SocketPipe]], Coroutine[Any, Any, object]]) -> SocketPipe:
        """A pipe over the connection that `connect` makes; it ends if the connection cannot be made."""
        pipe = SocketPipe(self._open.discard)
        self._open.add(pipe)

        async def connected() -> None:
            try:
                await connect(lambda: pipe)
            except OSError as error:
                pipe.connection_lost(error)

        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(connected(), name="opening a pipe")
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        return pipe

    def close(self) -> None:
        """End all pipes, and call their users' `ended`."""
        for task in self._opening:
            task.cancel()
        for pipe in list(self._open):
            pipe.end()
