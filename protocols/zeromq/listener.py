"""The listener: the address that the inbox is bound to, and the address that others dial."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from ..addresses import NOWHERE, advertised, split_address
from .gate import Gate
from .pipes import LOOPBACK, SocketPipes


class Listener:
    """The inbox's addresses, the one it is bound to and the one that others dial. `listen`: the address to bind to;
    `NOWHERE`: this peer cannot be dialled. `advertise`: the host that others dial; None: one of this machine's
    addresses."""

    def __init__(self, listen: str, advertise: str | None) -> None:
        self._advertise = advertise
        self.pipes = SocketPipes() if listen == NOWHERE else None
        """The pipes of a peer that cannot be dialled, whose inbox is bound to the loopback, where they end; None: it
        can."""
        self.bound = LOOPBACK if self.pipes else listen
        """The address that the inbox is bound to, or is to be bound to."""
        self.address = listen
        """The address that others dial."""
        self.gate: Gate | None = None

    def open(self, bind: Callable[[str], str]) -> None:
        """Bind the inbox by calling `bind`, which returns the address actually bound or raises OSError. Also finds the
        address that others dial, and begins the gate. Raises OSError, with the address and advice, when the inbox
        cannot be bound."""
        wanted = self.bound
        host, port = split_address(wanted)
        try:
            self.bound = bind(f"tcp://{host}:{port or '*'}")
        except OSError as error:
            elsewhere = dict.fromkeys((errno.ENODEV, errno.EADDRNOTAVAIL), "this machine has no such address")
            why = {errno.EADDRINUSE: "the port is in use", **elsewhere}.get(error.errno or 0, error.strerror)
            raise OSError(f"cannot listen on {wanted}: {why}; choose another with --listen") from None
        if self.pipes is not None:
            self.pipes.lead_to(self.bound)
        else:
            self.address = f"tcp://{self._advertise or advertised(host)}:{split_address(self.bound)[1]}"
        self.gate = Gate(asyncio.get_running_loop(), self.bound)

    def close(self) -> None:
        """Close `pipes`, if there are any, and the `Gate`, which limits new connections. The inbox stays bound: its
        owner closes it."""
        if self.pipes is not None:
            self.pipes.close()
        if self.gate is not None:
            self.gate.close()
