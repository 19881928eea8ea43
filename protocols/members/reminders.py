"""Reminders: a member to which the end of a change of the view is not told asks for it.

A member that leads a change may lie, or soon end. Then nothing may follow for a member that it asked, or that it left
out, and all others wait for that member without end. There are four cases:
 - It proposed to one member alone, and says nothing more. The coordinator does not know of the change. So a member that
   has promised to follow a ballot passes the proposal on to the coordinator, which then leads a change itself
   (`view_change`). This member may have been told falsely who is gone, so it tells the most senior member that it
   reaches, too. A promise only keeps lower ballots from being followed, so this cannot move two members apart: the
   proposer could have asked the coordinator itself.
 - The others are in a later view, of which nobody tells this member. Their echoes told that they adopted a decree, and
   their messages name its generation. A member that is not there after a patience asks them for their view, and goes on
   to it by `hearsay`.
 - This member is in a view of which another one told it, and that one may have stayed behind, so that the two wait for
   each other. So it tells that one its generation after a patience, and that one asks for the view.
 - A newcomer is not told of the view that lets it in, as the leader has died. So each member sends the view to the
   newcomers among the next few peers after it.

Cost: none where the coordinator leads and tells all within a patience. Two small messages for each member that follows
another than the coordinator for an interval, and again each patience. One for each member that has been in a view for a
patience. The view, for each newcomer, three times. For each member that a change leaves behind, a
question to each of its partners and each patience, and the view as the answer of those that are in a later one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Set
from dataclasses import dataclass

from ..channel import Channel
from ..testpoints import sometimes, witness
from ..transport import PeerId
from .messages import Behind, Install, Propose
from .roster import Roster
from .view import Decree

_TOLD_BY_EACH = 3
"""Each peer sends the new view to the newcomers among this many peers after it in the ring of the view."""


@dataclass(frozen=True, slots=True)
class Reminds:
    """Event for a simulation's checkers: this member passes a proposal of `proposer` on, and reaches these members of
    its view, itself among them, the most senior first."""

    proposer: PeerId
    reached: tuple[PeerId, ...]


class Reminders:
    """One member's reminders in its present view."""

    def __init__(self, channel: Channel, roster: Roster) -> None:
        self._channel, self._roster = channel, roster
        self._passing: asyncio.TimerHandle | None = None
        """The timer after which a proposal is passed on; None: nothing is promised in this view."""
        self._ahead: dict[PeerId, None] = {}
        """The peers that may be in a later view, in the order in which they told so."""
        self._asking: asyncio.TimerHandle | None = None
        """The timer after which those are asked; None: there are none."""
        self._following: asyncio.TimerHandle | None = None
        """The timer after which the member that told of the view is told so; None: no other told of it."""

    def follow(self, decree: Decree, teller: PeerId, newcomers: Set[PeerId]) -> None:
        """Note that this peer has gone on to the view of `decree` by the word of `teller`, which is told so (Behind) a
        patience later. The view is sent now to those of the `newcomers` that are among the next three peers after this
        one."""
        for peer in decree.view.after(self._roster.id, _TOLD_BY_EACH):
            if peer in newcomers:
                self._channel.post(peer, Install(decree))
        patience_s, here = self._channel.endpoint.patience_s, Behind(decree.view.generation)
        self._following = asyncio.get_running_loop().call_later(patience_s, self._channel.post, teller, here)

    def pass_on(self, ballot: int, proposer: PeerId, after_s: float) -> None:
        """Pass the proposal of a `ballot` that this member has promised `proposer` to follow on to the coordinator, and
        to the most senior member that it reaches, except to `proposer` and itself: after so many seconds, and once a
        patience from then on, until `stop`. A further call before that does nothing, nor does one by a learner."""
        view = self._roster.view
        if self._passing is None and self._roster.id in view.ids:
            self._pass_on_in(after_s, Propose(view.generation, ballot), proposer)

    def _pass_on_in(self, seconds: float, proposal: Propose, proposer: PeerId) -> None:
        self._passing = asyncio.get_running_loop().call_later(seconds, self._pass_on, proposal, proposer)

    def _pass_on(self, proposal: Propose, proposer: PeerId) -> None:
        roster, endpoint = self._roster, self._channel.endpoint
        reached = [peer for peer in roster.view.by_seniority if endpoint.is_lost(peer) is None]
        witness(Reminds(proposer, tuple(reached)))
        for peer in dict.fromkeys((*reached[:1], roster.coordinator)):
            if peer is not None and peer not in (roster.id, proposer):
                sometimes("a proposal was passed on to the coordinator")
                self._channel.post(peer, proposal)
        self._pass_on_in(endpoint.patience_s, proposal, proposer)

    def heard(self, peer: PeerId, generation: int) -> None:
        """Note that the member `peer` may be in the view of `generation`. If it is later than that of the present view,
        `peer` is asked for its view a patience after the first such note since peers were last asked, unless `stop` is
        called before."""
        if generation > self._roster.view.generation:
            self._ahead[peer] = None
            if self._asking is None:
                patience_s = self._channel.endpoint.patience_s
                self._asking = asyncio.get_running_loop().call_later(patience_s, self._ask)

    def _ask(self) -> None:
        sometimes("a member that was left behind asked for the view")
        for peer in self._ahead:
            self._channel.post(peer, Behind(self._roster.view.generation))
        self._ahead.clear()
        self._asking = None

    def stop(self) -> None:
        """Cancel all reminders: another view holds here, or this peer is in none."""
        for timer in (self._passing, self._asking, self._following):
            if timer is not None:
                timer.cancel()
        self._passing = self._asking = self._following = None
        self._ahead.clear()
