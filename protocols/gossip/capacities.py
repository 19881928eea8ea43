"""Capacities: the measured bandwidth at which each peer can send, for the topologies that depend on it (`Capacity`).

A peer's up-link counts as the fastest link from it: either end may be the cause of a slow one. Every five rounds a peer
tells the coordinator its capacity. Where it differs from that in the present view by a whole octave, the coordinator
has a new view decided that contains it. So all peers draw the same graph.
Cost: a small message every five rounds, and a new generation after 5 rounds, 10 more, 30 more and so on at the
earliest, because measured values fluctuate.
On failure: a capacity that a peer has not told stays as it is in the view; an unknown one counts as the median.
"""

from __future__ import annotations

from ..channel import Channel, Envelope
from ..link_quality.bandwidths import LEVEL_MAX, in_Bps, level_of
from ..members.membership import Membership
from ..testpoints import sometimes
from ..transport import PeerId
from .messages import Capable

_ROUNDS = 5
_CLASS = 2
"""Levels, of half an octave each, by which a capacity must differ from the known one."""


class Capacities:
    """Measures one peer's capacity and reports it to the coordinator. Where this peer is the coordinator, it collects
    all capacities, and has a view decided that contains them."""

    def __init__(self, channel: Channel, membership: Membership) -> None:
        self._channel, self._membership = channel, membership
        self._told: dict[PeerId, int] = {}
        self._rounds, self._due = 0, _ROUNDS
        channel.on(Capable, self._on_capable)

    def consider(self) -> None:
        """To be called after each round. At every fifth call, report this peer's capacity to the coordinator; at the
        coordinator, have a new view decided if a known capacity is now another by an octave, and enough rounds have
        passed since it last did so. Does nothing where the membership knows no coordinator."""
        self._rounds += 1
        leader = next(iter(self._membership.leaders), None)
        if self._rounds % _ROUNDS or leader is None:
            return
        if leader != self._membership.me.id:
            self._channel.post(leader, Capable(self._own_level()))
            return
        self._told[leader] = self._own_level()
        if self._rounds >= self._due:
            self._decide()

    def _own_level(self) -> int:
        endpoint, others = self._channel.endpoint, self._membership.neighbours.now
        return max((level_of(endpoint.bandwidth_Bps(one.id)) for one in others), default=0)

    def _on_capable(self, envelope: Envelope) -> None:
        if envelope.message.level <= LEVEL_MAX:
            self._told[envelope.sender] = envelope.message.level

    def _decide(self) -> None:
        """Have a view decided with what was told, if it tells another class of bandwidths."""
        members = {member.id: member.attributes.capacity for member in self._membership.view.members}
        self._told = {peer: level for peer, level in self._told.items() if peer in members}
        found = {
            peer: round(in_Bps(level))
            for peer, level in self._told.items()
            if level and abs(level - level_of(members[peer] or None)) >= _CLASS
        }
        if found:
            sometimes("neighbours by capacity")
            self._due = self._rounds + 2 * self._due
            self._membership.assess(found)
