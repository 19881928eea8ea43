"""A call: a connection to the inbox, which libzmq has no way to close."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import NamedTuple

from .reader import Origin


class Call(NamedTuple):
    """`route`: by which it is answered; `address`: the host of the caller. The descriptor may be another's by now: the
    file that it stands for tells."""

    route: bytes
    address: str
    descriptor: int
    file: tuple[int, int] | None

    @classmethod
    def of(cls, route: bytes, origin: Origin) -> Call:
        """That by which a message has just come."""
        descriptor = origin.descriptor
        try:
            return cls(route, origin.address, descriptor, _file(descriptor))
        except OSError:  # it is closed already
            return cls(route, origin.address, descriptor, None)

    def close(self) -> None:
        """End the connection, if it is there still: libzmq finds its other end gone."""
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
