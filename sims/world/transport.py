"""The simulated transport, by which an endpoint uses a virtual network in place of sockets."""

from __future__ import annotations

from ...protocols.transport import Arrivals, PeerId, Pipes
from ...protocols.wire.frames import Buffer
from .network import LINGER_S, Network


class SimulatedTransport:
    """The transport of the peer `id` on `network`, with the interface of all transports (`protocols.transport`)."""

    pipes: Pipes | None = None
    budget = None

    def __init__(self, network: Network, id: PeerId) -> None:
        self._network, self._id = network, id

    @property
    def id(self) -> PeerId:
        return self._id

    @property
    def address(self) -> str:
        return f"sim://{self._id}"

    @property
    def machine(self) -> str:
        return ""

    def open(self, arrivals: Arrivals) -> None:
        self._network.open(self._id, arrivals)

    def dial(self, peer: PeerId, address: str) -> None:
        """Do nothing, because a virtual network needs no connections."""

    def admit(self, peer: PeerId, *, shared: bool = False) -> None:
        self._network.doors.admit(self._id, peer)

    def dismiss(self, peer: PeerId) -> None:
        self._network.doors.dismiss(self._id, peer)

    def post(self, peer: PeerId, header: bytes, payload: Buffer) -> int:
        return self._network.carry(self._id, peer, header, payload)

    def reaches(self, peer: PeerId) -> bool:
        return True

    async def self_test(self) -> None:
        """Do nothing, because `Network` itself delivers only frames of admitted senders."""

    def whence(self, peer: PeerId) -> str:
        return f"sim://{peer}"

    def trouble(self, peer: PeerId) -> str | None:
        there = self._network.can_be_dialled(peer) or self._network.joined(peer, self._id)
        return None if there else "it cannot be dialled, and has no connection to this peer now"

    def hang_up(self, peer: PeerId, *, call: bool = False) -> None:
        """Do nothing, because there is no connection to close."""

    def close(self) -> None:
        self._network.close(self._id, linger_s=LINGER_S)
