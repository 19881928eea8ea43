"""Exit barrier: a peer leaves only when no other member still needs the result that it holds.

A round is committed when more than half hold its result. A peer that leaves at that moment may take away the chunks, or
the only copy, that the others wait for, and they would end with another model. So a peer that wants to leave tells the
members which round it holds, and leaves when each of them has answered that it holds that round too, or is gone itself.
A member that cannot reach the leaving peer asks the others, which hold the result by then.
Cost: one round trip to each member.
On failure: the view changes, and only its members are waited for.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..channel import Envelope
from ..transport import PeerId
from ..wire.frames import message
from .local_sgd import LocalSGD
from .rounds import LOCAL_SGD


@message(LOCAL_SGD)
@dataclass(frozen=True, slots=True)
class Going:
    """The sender holds the result of `round`, and leaves as soon as the receiver holds it too."""

    round: int


@message(LOCAL_SGD)
@dataclass(frozen=True, slots=True)
class Holding:
    """The answer to Going: the sender holds the result of `round`, so the receiver may leave."""

    round: int


class Farewell:
    """One peer's side of the exit barrier. The owner calls `moved_on` whenever a round is over on this peer."""

    def __init__(self, averaging: LocalSGD) -> None:
        self._channel, self._averaging, self._membership = averaging.channel, averaging, averaging.membership
        self._going: dict[PeerId, int] = {}
        self._holding: dict[PeerId, int] = {}
        self._channel.on(Going, self._on_going)
        self._channel.on(Holding, self._on_holding)

    async def say(self) -> None:
        """Return when all other members hold the result of this peer's last round. Raises MembershipError, Expelled."""
        held = self._averaging.state.round
        membership, me = self._membership, self._channel.endpoint.id
        others = [peer for peer in membership.view.ids if peer != me]

        def lets_go(peer: PeerId) -> bool:
            away = peer not in membership.view.ids or membership.view.are_apart(peer, me)
            return away or self._holding.get(peer, -1) >= held

        for peer in others:
            self._channel.post(peer, Going(held))
        await membership.until(lambda: all(map(lets_go, others)))

    def moved_on(self) -> None:
        """A round is over on this peer: tell the leaving peers that wait for it."""
        held = self._averaging.state.round
        for peer in [peer for peer, round_ in self._going.items() if round_ <= held]:
            self._channel.post(peer, Holding(self._going.pop(peer)))

    def _on_going(self, envelope: Envelope) -> None:
        if envelope.sender in self._membership.view.ids:
            self._going[envelope.sender] = envelope.message.round
            self.moved_on()

    def _on_holding(self, envelope: Envelope) -> None:
        if envelope.sender in self._membership.view.ids:
            self._holding[envelope.sender] = envelope.message.round
            self._membership.notify()
