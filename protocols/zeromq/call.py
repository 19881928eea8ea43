"""A call: the connection that another peer has made to this peer's inbox. libzmq offers no function that closes a
single connection; `Call.close` does."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import NamedTuple

from .reader import Origin


class Call(NamedTuple):
    """A connection that another peer has made to this peer's inbox. `route`: the routing id by which messages go back
    over it. `address`: the host of the calling peer. `descriptor`: the file descriptor of its socket in this process.
    `file` (device, inode): tells whether `descriptor` still belongs to this connection, or has been reused; None: it
    was closed already."""

    route: bytes
    address: str
    descriptor: int
    file: tuple[int, int] | None

    @classmethod
    def of(cls, route: bytes, origin: Origin) -> Call:
        """The call by which a message with this `route` and `origin` has just arrived."""
        descriptor = origin.descriptor
        try:
            return cls(route, origin.address, descriptor, _file(descriptor))
        except OSError:  # it is closed already
            return cls(route, origin.address, descriptor, None)

    def close(self) -> None:
        """Shut the connection down if it still exists. libzmq then takes its other end for gone."""
        with contextlib.suppress(OSError):
            held = os.dup(self.descriptor)
            if self.file != _file(held):
                os.close(held)
                return
            with socket.socket(fileno=held) as own:
                own.shutdown(socket.SHUT_RDWR)


def _file(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
