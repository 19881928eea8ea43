"""A call: a peer's connection to the inbox. libzmq offers no function that closes one connection."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import NamedTuple

from .reader import Origin


class Call(NamedTuple):
    """`route`: the routing id by which the call is answered. `address`: the host of the caller. `file` (device, inode):
    tells whether `descriptor` still belongs to this connection, or has been reused."""

    route: bytes
    address: str
    descriptor: int
    file: tuple[int, int] | None

    @classmethod
    def of(cls, route: bytes, origin: Origin) -> Call:
        """The call through which a message has just arrived."""
        descriptor = origin.descriptor
        try:
            return cls(route, origin.address, descriptor, _file(descriptor))
        except OSError:  # it is closed already
            return cls(route, origin.address, descriptor, None)

    def close(self) -> None:
        """Shut the connection down if it still exists: to libzmq its other end has gone."""
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
