"""Dispersion: what the ways between members carry now, whatever else is under way on them, or waits for somebody.

Source: packet trains (Dovrolis, Ramanathan and Moore, "What do packet dispersion techniques measure?", INFOCOM 2001):
of messages sent back to back, the last comes as much later than the first as the slowest link on the way takes for
those in between, however far it is and whatever was before them. They are control messages: no credit holds them up.

A peer sends a train to each of the next members by rank, and keeps what it sees of the others' trains to it.
Cost: what `send` is given, to each of 4 members at most.
On loss: the train is not counted.
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
"""So that who has one slow way has others that are not."""
_FILLING_BYTES, _MESSAGES_MAX = 8 * 1024, 32
_INSTANT_S = 1e-6


@message("link_quality")
@dataclass(frozen=True, slots=True)
class Probe:
    """One of a train, behind which so many are `left`. The first carries nothing."""

    generation: int
    left: int
    filling: bytes


@dataclass(slots=True)
class _Train:
    """What has come of one. `began_s`: when its first message came, on the loop's clock."""

    left: int
    began_s: float
    nbytes: int = 0


class Dispersion:
    """One peer's part in it."""

    def __init__(self, channel: Channel, membership: Membership) -> None:
        self._channel, self._membership = channel, membership
        self._generation = 0
        self._trains: dict[PeerId, _Train] = {}
        self._levels: dict[PeerId, int] = {}
        channel.on(Probe, self._on_probe)

    def send(self, nbytes: int) -> None:
        """Send trains of about so many bytes each."""
        view, me = self._membership.view, self._channel.endpoint.id
        count = max(1, min(_MESSAGES_MAX, round(nbytes / _FILLING_BYTES)))
        filling = bytes(max(1, min(_FILLING_BYTES, nbytes // count)))
        rank = view.ids.index(me)
        for peer in [*view.ids[rank + 1 :], *view.ids[:rank]][:_NEXT]:
            self._channel.post(peer, Probe(view.generation, count, b""))
            for left in reversed(range(count)):
                self._channel.post(peer, Probe(view.generation, left, filling))

    def levels(self) -> Levels:
        """Of each member in rank order, what the way from it to this peer carries, as last measured in this view."""
        view = self._membership.view
        known = self._levels if self._generation == view.generation else {}
        return tuple(known.get(peer, 0) for peer in view.ids) if len(view.ids) <= MEASURED_MEMBERS_MAX else ()

    def _on_probe(self, envelope: Envelope) -> None:
        probe, sender, now = envelope.message, envelope.sender, asyncio.get_running_loop().time()
        if not self._membership.current(envelope, probe.generation):
            return
        if self._generation != probe.generation:
            self._generation = probe.generation
            self._trains.clear()
            self._levels.clear()
        if not probe.filling:
            self._trains[sender] = _Train(probe.left, now)
            return
        train = self._trains.get(sender)
        if train is None or probe.left != train.left - 1:
            self._trains.pop(sender, None)
            return
        train.left, train.nbytes = probe.left, train.nbytes + len(probe.filling)
        if not train.left:
            self._levels[sender] = level_of(train.nbytes / max(_INSTANT_S, now - train.began_s))
            del self._trains[sender]
