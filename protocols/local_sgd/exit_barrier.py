"""Exit barrier: a peer leaves only when no other member still needs the result that it holds.

A round is committed when more than half of the members hold its result. If a peer left at that moment, the others might
never get the chunks or the copy of the result that they wait for, and would end with another model. So a peer that
wants to leave tells the members which round it holds, and leaves when each of them has answered that it holds that
round too, or is gone itself. A member that cannot reach the leaving peer asks the others, which hold the result by
then.
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
    """Sent by a peer that wants to leave to each other member: the sender holds the result of `round`, and leaves as
    soon as the receiver and all others hold it too."""

    round: int


@message(LOCAL_SGD)
@dataclass(frozen=True, slots=True)
class Holding:
    """The answer to Going: the sender holds the result of `round`, so the receiver may leave."""

    round: int


class Farewell:
    """One peer's side of the exit barrier: as the one that leaves, it waits until each member holds its round too; as
    another, it answers. The owner calls `moved_on` whenever a round is over on this peer."""

    def __init__(self, averaging: LocalSGD) -> None:
        self._channel, self._averaging, self._membership = averaging.channel, averaging, averaging.membership
        self._going: dict[PeerId, int] = {}
        self._holding: dict[PeerId, int] = {}
        self._channel.on(Going, self._on_going)
        self._channel.on(Holding, self._on_holding)

    async def say(self) -> None:
        """Tell the other members that this peer is about to leave, and wait until each holds the result of this peer's
        last round, is gone, or cannot be reached. Raises MembershipError and Expelled."""
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
        """Answer the leaving peers that wait until this peer holds their result. Called when a round is over on this
        peer."""
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
