"""Transport: the port by which an endpoint sends frames to peers and receives them. A transport carries two frames to a
peer, at any speed, bounded in size, and possibly not at all.

A transport may lose, delay, repeat and reorder frames (a broken TCP connection loses the frames that were under way).
It never invents them and never mistakes their sender. Everything above that (order, retransmission, credit, liveness)
is written once, in `link`, and so is the same over ZeroMQ, in one process and in simulation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from .budget import Budget
from .pipes import Pipe
from .wire.frames import Buffer

PeerId = str
"""A peer's id: its CURVE public key in hexadecimal. Over an insecure transport or in simulation, any name. Guests share
one key, so the id of each is that key, a slash, and a text that tells its connection from the others'."""


def key_of(peer: PeerId) -> str:
    """The key in the id `peer`: that of a guest is the one that guests share; any other id is the key itself."""
    return peer.partition("/")[0]


def is_guest(peer: PeerId) -> bool:
    """Whether `peer` is one of the guests that share a key."""
    return "/" in peer


def wire_bytes(header: int, payload: int, *, encrypted: bool) -> int:
    """Bytes that two frames of `header` and `payload` bytes take on the wire: with ZMTP 3 framing and, encrypted,
    CURVE's command, nonce and box."""
    box = 33 if encrypted else 0
    header, payload = header + box, payload + box
    return header + (2 if header < 256 else 9) + payload + (2 if payload < 256 else 9)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The functions that a transport calls. All are called on the event loop's thread, and never from inside `post`.

    frames: (sender, header frame, payload frame, bytes that these took on the wire).
    reconnected: the connection to that peer was made or made again; frames that were under way may be lost.
    garbage: (sender, the problem): the sender's bytes are not two frames of a bounded size.
    """

    frames: Callable[[PeerId, Buffer, Buffer, int], None]
    reconnected: Callable[[PeerId], None]
    garbage: Callable[[PeerId, str], None]


class Pipes(Protocol):
    """The pipes of one transport, for a peer that cannot be dialled."""

    wanted: Callable[[PeerId, Pipe], None]
    """The transport calls this with another peer that cannot be dialled and a new pipe when it has frames for that
    peer. The callee has the pipe's bytes carried, through a relay, to an `inlet` of that peer, and back. If it cannot,
    it closes the pipe; the transport then calls again with a new pipe, after ever longer pauses."""

    def inlet(self) -> Pipe:
        """A new pipe into this peer's own inbox. The caller writes into it the bytes that come through a relay from
        another peer's pipe, and has the bytes that come out of it carried back."""
        ...


class Transport(Protocol):
    """One peer's connections to all others."""

    @property
    def id(self) -> PeerId: ...

    @property
    def address(self) -> str:
        """The address at which others reach this peer, e.g. ``tcp://192.0.2.7:41234``; `NOWHERE`: it cannot be
        dialled."""
        ...

    @property
    def pipes(self) -> Pipes | None:
        """The pipes to other peers that cannot be dialled, of a peer that cannot be dialled itself; None: this one
        can."""
        ...

    @property
    def machine(self) -> str:
        """A name that is equal for peers that can share memory; "": this peer cannot share memory."""
        ...

    @property
    def budget(self) -> Budget | None:
        """The limits on the bytes that this peer sends and receives; None: there are none."""
        ...

    def open(self, arrivals: Arrivals) -> None:
        """Begin to listen. Raises OSError, with a message of one line, when the address cannot be bound."""
        ...

    def dial(self, peer: PeerId, address: str) -> None:
        """Make a connection to `peer`, which must prove its id. A second call with the same arguments does nothing.

        While `peer` cannot be reached, or refuses the connection, the transport tries again until `hang_up`. The tries
        follow each other quickly while messages to `peer` are posted. Both arguments may come from a hostile message:
        an address that cannot be dialled is reported by `trouble`, never raised.

        `NOWHERE` as `address`: wait until `peer` calls. If the own peer cannot be dialled either, what is posted goes
        by a pipe (`Pipes.wanted`). A peer that cannot be dialled keeps the connections that it has made, so that others
        can answer on them, and calls again within seconds when they break.
        """
        ...

    def admit(self, peer: PeerId, *, shared: bool = False) -> None:
        """Let `peer` connect to this one. A peer that was never admitted is refused before any byte from it is decoded;
        only an insecure transport lets any peer connect. `shared`: the key is one that many peers have at once, and
        each connection with it is a peer of its own (`PeerId`)."""
        ...

    def dismiss(self, peer: PeerId) -> None:
        """Do not let `peer` connect any more, and close its connections; for a shared key, the connections of all its
        guests."""
        ...

    def post(self, peer: PeerId, header: bytes, payload: Buffer) -> int:
        """Put two frames on their way to `peer`. Returns the bytes that they take on the wire, framing included, also
        while they wait for a connection. Returns 0 for frames that are dropped, because there is no way to `peer` or
        too many wait, and for frames that go by a pipe: the relay's connection counts these.

        Never waits and never raises for an unreachable peer. The payload must not change until it is acknowledged, or
        until `hang_up`.
        """
        ...

    def reaches(self, peer: PeerId) -> bool:
        """Whether frames posted to `peer` now leave at once. If not, and `dial` was called for `peer`, the transport
        soon tries to connect, and calls `Arrivals.reconnected` when the connection is made."""
        ...

    async def self_test(self) -> None:
        """Test that peers that were not admitted are refused. Raises RuntimeError when one would get in, or the test
        has no result in time. Does nothing on an insecure transport."""
        ...

    def trouble(self, peer: PeerId) -> str | None:
        """Why `peer` cannot be reached now, in words for the user; None: no trouble is known."""
        ...

    def whence(self, peer: PeerId) -> str:
        """The host from which `peer` has connected to this one, or else the address at which this one dials it; "":
        neither is known."""
        ...

    def hang_up(self, peer: PeerId, *, call: bool = False) -> None:
        """Forget the connection to `peer` and the frames that wait for it, and make no other one until `dial`. `call`:
        also close the connection that `peer` has made to this one, so that nothing more is read from it. The peer stays
        admitted, and may call again."""
        ...

    def close(self) -> None:
        """Stop for good. Calling twice, or before `open`, is harmless."""
        ...
