"""What an endpoint asks of the world: carry two frames to a peer, fast or slowly, at most bounded, at times not at all.

A transport may lose, delay, repeat and reorder frames (a broken TCP connection loses what was under way). It never
invents them and never mistakes their sender. Everything above that (order, retransmission, credit, liveness) is
written once, in `link`, and so is the same over ZeroMQ, in one process and in simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from .wire.frames import Buffer

PeerId = str
"""Who a peer is: its CURVE public key in hexadecimal. Over an insecure transport or in simulation, any name. Guests
share one key, so each of them is that key, a slash, and what tells its connection from the others'."""


def key_of(peer: PeerId) -> str:
    """The key that `peer` proved to have."""
    return peer.partition("/")[0]


def is_guest(peer: PeerId) -> bool:
    """Whether others may have the key of `peer` too."""
    return "/" in peer


def wire_bytes(header: int, payload: int, *, encrypted: bool) -> int:
    """Bytes that two frames take on the wire: ZMTP 3 framing and, encrypted, CURVE's command, nonce and box."""
    box = 33 if encrypted else 0
    return _frame_bytes(header + box) + _frame_bytes(payload + box)


def _frame_bytes(size: int) -> int:
    return size + (2 if size < 256 else 9)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Where a transport hands what it has. All are called on the event loop's thread, and never from inside `post`.

    frames: (sender, header frame, payload frame, bytes these took on the wire).
    reconnected: the connection to that peer was made or made again; what was under way may be lost.
    garbage: (sender, what is wrong): bytes that are not two frames of a bounded size.
    """

    frames: Callable[[PeerId, Buffer, Buffer, int], None]
    reconnected: Callable[[PeerId], None]
    garbage: Callable[[PeerId, str], None]

    def take(self, sender: PeerId, frames: Sequence[Buffer], total: int, *, encrypted: bool) -> None:
        """Hand on a message of `total` frames, of which the first few are given."""
        if total != 2:
            self.garbage(sender, f"sent a message of {total} frames, two are due")
            return
        header, payload = frames
        self.frames(sender, header, payload, wire_bytes(len(header), len(payload), encrypted=encrypted))


class Transport(Protocol):
    """One peer's way to all others."""

    @property
    def id(self) -> PeerId: ...

    @property
    def address(self) -> str:
        """Where others reach this peer, e.g. ``tcp://192.0.2.7:41234``."""
        ...

    @property
    def machine(self) -> str:
        """What this peer has in common with those on its machine, if it can share memory with them; else ""."""
        ...

    def open(self, arrivals: Arrivals) -> None:
        """Start to listen. Raises OSError, in one clear line, when the address cannot be had."""
        ...

    def dial(self, peer: PeerId, address: str) -> None:
        """Make sure there is a way to `peer`, who must prove to be `peer`. Calling again with the same is free.

        Who cannot be reached, or does not let us in, is called again until `hang_up`, soon while something is posted.
        Both may come from a hostile message: what cannot be dialled is `trouble`, never an error.
        """
        ...

    def admit(self, peer: PeerId, *, shared: bool = False) -> None:
        """Let `peer` connect to us. Whoever was never admitted is refused before a byte of theirs is decoded. `shared`:
        it is a key that many have at once, and each connection with it is a peer of its own (`PeerId`)."""
        ...

    def dismiss(self, peer: PeerId) -> None:
        """Let `peer` in no more, and close its connections; of a shared key those of all who have it."""
        ...

    def post(self, peer: PeerId, header: bytes, payload: Buffer) -> int:
        """Put two frames on their way and return the bytes they take on the wire, framing included; 0 if there is no
        way at all.

        Never waits and never raises for an unreachable peer. The payload must not change until it is acknowledged, or
        until `hang_up`.
        """
        ...

    async def self_test(self) -> None:
        """Prove what the transport promises about strangers. Raises RuntimeError when it does not hold."""
        ...

    def trouble(self, peer: PeerId) -> str | None:
        """Why the way to `peer` does not work now, in words for its user, or None."""
        ...

    def whence(self, peer: PeerId) -> str:
        """The address that `peer` sends from, as far as it is known; else ""."""
        ...

    def hang_up(self, peer: PeerId, *, call: bool = False) -> None:
        """Forget the way to `peer` and what still waits to be sent there. `call`: close the connection by which it
        calls, too, so that what it sends is read no more. It may call again."""
        ...

    def close(self) -> None:
        """Stop for good. Calling twice, or before `open`, is harmless."""
        ...
