"""Dispersion: measures the bandwidth from one member to another by packet trains. It works beside other traffic, and
whether or not a peer is waiting for a sum.

Source: packet trains (Dovrolis, Ramanathan and Moore, "What do packet dispersion techniques measure?", INFOCOM 2001):
of messages sent back to back, the last arrives later than the first by the time that the slowest link on the path takes
for those in between, whatever the latency and the queue before them. They are control messages: no credit delays them.

A peer sends a train to each of the next members by rank, and keeps what it measures of the trains that it receives.
Cost: the bytes given to `send`, but at most 256 KiB, to each of 4 members at most.
On failure: the train is not counted.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ..channel import Channel, Envelope
from ..limits import MEASURED_MEMBERS_MAX
from ..members.membership import Membership
from ..transport import PeerId
from ..wire.frames import message
from .bandwidths import Levels, level_of

_NEXT = 4
"""Trains go to this many members, so that one slow path does not make a peer look slow."""
_FILLING_BYTES, _MESSAGES_MAX = 8 * 1024, 32
_INSTANT_S = 1e-6


@message("link_quality")
@dataclass(frozen=True, slots=True)
class Probe:
    """One message of a packet train, in which `left` more messages follow. The first message has no `filling`."""

    generation: int
    left: int
    filling: bytes


@dataclass(slots=True)
class _Train:
    """The received messages of one train. `began_s`: when its first message came, on the loop's clock."""

    left: int
    began_s: float
    nbytes: int = 0


class Dispersion:
    """One peer's packet trains, by which it measures bandwidths: sends trains to other members, and measures those that
    it receives."""

    def __init__(self, channel: Channel, membership: Membership) -> None:
        self._channel, self._membership = channel, membership
        self._generation = 0
        self._trains: dict[PeerId, _Train] = {}
        self._levels: dict[PeerId, int] = {}
        channel.on(Probe, self._on_packet)

    def send(self, nbytes: int) -> None:
        """Send a train of about `nbytes`, at most 256 KiB, to each of the 4 members that follow this one by rank (the
        first rank follows the last), or to all others if they are fewer. Raises ValueError when this peer is no member
        of the view."""
        view, me = self._membership.view, self._channel.endpoint.id
        count = max(1, min(_MESSAGES_MAX, round(nbytes / _FILLING_BYTES)))
        filling = bytes(max(1, min(_FILLING_BYTES, nbytes // count)))
        rank = view.ids.index(me)
        for peer in [*view.ids[rank + 1 :], *view.ids[:rank]][:_NEXT]:
            self._channel.post(peer, Probe(view.generation, count, b""))
            for left in reversed(range(count)):
                self._channel.post(peer, Probe(view.generation, left, filling))

    def levels(self) -> Levels:
        """By rank, the level (`bandwidths`) of the bandwidth from each member to this peer, as last measured in the
        present view; 0: unknown. Empty where there are more than 64 members, too many to measure."""
        view = self._membership.view
        known = self._levels if self._generation == view.generation else {}
        return tuple(known.get(peer, 0) for peer in view.ids) if len(view.ids) <= MEASURED_MEMBERS_MAX else ()

    def _on_packet(self, envelope: Envelope) -> None:
        packet, sender, now = envelope.message, envelope.sender, asyncio.get_running_loop().time()
        if not self._membership.current(envelope, packet.generation):
            return
        if self._generation != packet.generation:
            self._generation = packet.generation
            self._trains.clear()
            self._levels.clear()
        if not packet.filling:
            self._trains[sender] = _Train(packet.left, now)
            return
        train = self._trains.get(sender)
        if train is None or packet.left != train.left - 1:
            self._trains.pop(sender, None)
            return
        train.left, train.nbytes = packet.left, train.nbytes + len(packet.filling)
        if not train.left:
            self._levels[sender] = level_of(train.nbytes / max(_INSTANT_S, now - train.began_s))
            del self._trains[sender]
