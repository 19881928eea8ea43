"""Admission on a virtual network: the peers whose frames each peer accepts, and the connections of peers that cannot be
dialled."""

from __future__ import annotations

from collections.abc import Mapping

from ...protocols.transport import PeerId, key_of
from .ways import Port


class Doors:
    """The admissions of one network's peers. `outbound`: peers that cannot be dialled. Frames to such a peer go only on
    a connection that it has made. It has one from the arrival of its first frame on, as long as it does not hang up and
    neither end closes its port."""

    def __init__(self) -> None:
        self.outbound: set[PeerId] = set()
        self._admitted: dict[PeerId, set[PeerId]] = {}
        self._calls: dict[tuple[PeerId, PeerId], tuple[Port, Port]] = {}
        """(caller, called) -> the ports that the connection joins."""

    def admit(self, at: PeerId, peer: PeerId) -> None:
        """Deliver frames of `peer` to `at` from now on."""
        self._admitted.setdefault(at, set()).add(peer)

    def dismiss(self, at: PeerId, peer: PeerId) -> None:
        """Drop frames of `peer` to `at` from now on."""
        self._admitted.get(at, set()).discard(peer)

    def close(self, peer: PeerId) -> None:
        """Drop all frames to `peer` from now on, because its port is closed."""
        self._admitted.pop(peer, None)

    def lets_in(self, at: PeerId, sender: PeerId) -> bool:
        """Whether frames of `sender` to `at` are delivered: its id or its key was admitted there."""
        admitted = self._admitted.get(at, ())
        return sender in admitted or key_of(sender) in admitted

    def call(self, caller: PeerId, called: PeerId, ports: tuple[Port, Port]) -> bool:
        """Note that a frame of `caller`, which cannot be dialled, has arrived at `called`, so that it has a connection.
        `ports`: the two ports. Returns whether the connection is new: none between these ports was noted last."""
        before, self._calls[caller, called] = self._calls.get((caller, called)), ports
        return before != ports

    def hang_up(self, caller: PeerId, called: PeerId) -> None:
        """Note that `caller` closes its connection to `called`."""
        self._calls.pop((caller, called), None)

    def joined(self, caller: PeerId, called: PeerId, ports: Mapping[PeerId, Port]) -> bool:
        """Whether `caller`, which cannot be dialled, has a connection to `called`: a frame of it has arrived there, it
        has not hung up since (`hang_up`), and both ports are open and the same as then. `ports`: the open ports. False
        for a caller that can be dialled: its connections are not noted."""
        call = self._calls.get((caller, called))
        return call is not None and call == (ports.get(caller), ports.get(called))
