"""The listener: the address that the inbox is bound to, and the address that others dial."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from ..addresses import advertised, split_address
from .gate import Gate


class Listener:
    """The inbox's addresses. `listen`: where to bind; `advertise`: the host that others dial, None: found out."""

    def __init__(self, listen: str, advertise: str | None) -> None:
        self._listen, self._advertise = listen, advertise
        self.bound = ""
        """The address that the inbox is bound to."""
        self.address = listen
        """The address that others dial."""
        self.gate: Gate | None = None

    def open(self, bind: Callable[[str], str]) -> None:
        """Bind the inbox with `bind`, which returns the address actually bound or raises OSError. Raises OSError, with
        the address and what to do, when the inbox cannot be bound."""
        host, port = split_address(self._listen)
        try:
            self.bound = bind(f"tcp://{host}:{port or '*'}")
        except OSError as error:
            elsewhere = dict.fromkeys((errno.ENODEV, errno.EADDRNOTAVAIL), "this machine has no such address")
            why = {errno.EADDRINUSE: "the port is in use", **elsewhere}.get(error.errno or 0, error.strerror)
            raise OSError(f"cannot listen on {self._listen}: {why}; choose another with --listen") from None
        self.address = f"tcp://{self._advertise or advertised(host)}:{split_address(self.bound)[1]}"
        self.gate = Gate(asyncio.get_running_loop(), self.bound)

    def close(self) -> None:
        if self.gate is not None:
            self.gate.close()
