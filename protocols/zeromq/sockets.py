"""A ZeroMQ socket in the form that a tap needs (`reader.RawSocket`): each call receives or sends a whole message, and
no call blocks."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

import zmq

from ..wire.frames import Buffer
from .reader import Arrived, Origin

_ZERO_COPY_BYTES = 64 * 1024
_NOBLOCK, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)  # plain numbers: enumerations cost time
_EVENTS, _IN, _OUT = int(zmq.EVENTS), int(zmq.POLLIN), int(zmq.POLLOUT)
_FRAMES_KEPT = 8  # a message has two frames, three with its route; a ZAP request has seven


class Socket:
    """A ZeroMQ socket as the `RawSocket` of a tap. `tells_origin`: received messages carry their `Origin`."""

    def __init__(self, socket: zmq.Socket[bytes], *, tells_origin: bool = False) -> None:
        self._socket = socket
        self._send: Callable[..., object] = super(zmq.Socket, socket).send
        """As `socket.send`, which looks at arguments that are not used here for longer than it takes to send."""
        self._receive, self._get = socket.recv, socket.get
        self._tells_origin = tells_origin

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> Arrived | None:
        receive = self._receive
        try:
            frame = receive(_NOBLOCK, copy=False)
        except zmq.Again:  # the message has just gone, with its connection
            return None
        origin = Origin(frame.get) if self._tells_origin else None
        frames: list[Buffer] = [frame.bytes]
        total = 1
        while frame.more:
            frame = receive(_NOBLOCK, copy=False)
            total += 1
            if total <= _FRAMES_KEPT:  # Z23: small buffers pin an arena
                frames.append(frame.bytes if len(frame) < _ZERO_COPY_BYTES else frame.buffer)
        return Arrived(frames, total, origin)

    def send(self, frames: Sequence[Buffer]) -> int:
        """Send a message now. Returns 0, or the errno, EAGAIN or EHOSTUNREACH, that tells why it cannot be sent; raises
        ZMQError for any other. The first frame decides whether it can be sent; the others follow it."""
        try:
            for frame in frames[:-1]:
                self._send(frame, _MORE)
            self._send(frames[-1], _NOBLOCK, copy=len(frames[-1]) < _ZERO_COPY_BYTES)  # Z22
        except zmq.ZMQError as error:
            if error.errno not in (errno.EAGAIN, errno.EHOSTUNREACH):
                raise
            return int(error.errno)
        return 0

    def ready(self) -> tuple[bool, bool]:
        events = int(self._get(_EVENTS))
        return events & _IN != 0, events & _OUT != 0

    def close(self, linger_ms: int) -> None:
        self._socket.disable_monitor()
        self._socket.close(linger=linger_ms)
