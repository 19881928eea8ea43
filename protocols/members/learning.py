"""Learning: how a newcomer to a run that has started becomes a member.

It is in the view as a learner: it has no vote and no rank, no quorum counts it, and nobody waits for it. It fetches the
present state (`learner`) and tells the coordinator so; the next view has it among its members, and it contributes from
the round after that on. All wait then for what is left of its way to the present round, once, and for its connection in
each round: so it has to have fetched the state within `_ROUNDS` rounds, or within an interval, where rounds are short.
If it takes longer it stays a learner, is told so, and tries again later. Those who share memory with all members have
no connection that could be too slow.
Cost: one message each way a learner, and one change of the view. On loss: the learner tells again after a patience, and
in each new view.
"""

from __future__ import annotations

from collections.abc import Callable

from ..channel import Channel, Envelope
from ..testpoints import sometimes
from ..transport import PeerId
from .messages import Learned, TooSlow
from .roster import Roster, Standing
from .view import Version

_ROUNDS = 4


class Learning:
    """Both sides of it. `of_now`: see `Acceptor.of_now`."""

    def __init__(
        self,
        channel: Channel,
        roster: Roster,
        *,
        standing: Callable[[], Standing],
        of_now: Callable[[Envelope, int], bool],
    ) -> None:
        self._channel, self._roster, self._standing, self._of_now = channel, roster, standing, of_now
        self.within_s: float | None = None
        """How soon this learner would have to fetch the state, None: it has not been told that it is too slow."""
        channel.on(Learned, self._on_learned)
        channel.on(TooSlow, self._on_too_slow)

    def tell(self, version: Version, took_s: float) -> None:
        """This learner has `version`, which took so long to fetch."""
        self.within_s, coordinator = None, self._roster.coordinator
        if coordinator is not None:
            self._channel.post(coordinator, Learned(self._roster.view.generation, version, took_s))

    def _on_learned(self, envelope: Envelope) -> None:
        told, roster, sender = envelope.message, self._roster, envelope.sender
        view = roster.view
        member, learner = self._of_now(envelope, told.generation), view.anybody(sender)
        if member or learner is None or told.generation != view.generation or roster.coordinator != roster.id:
            return
        roster.places.tells(learner)
        if told.took_s > self._within_s(sender):
            sometimes("a learner is too slow")
            self._channel.post(sender, TooSlow(view.generation, self._within_s(sender)))
        elif sender not in roster.learned or roster.learned[sender].version.round < told.version.round:
            roster.learned[sender] = told
            roster.news()

    def _within_s(self, peer: PeerId) -> float:
        """How soon a learner has to fetch the state."""
        view, learner = self._roster.view, self._roster.view.anybody(peer)
        if learner is not None and learner.machine and view.one_machine and learner.machine == view.members[0].machine:
            return float("inf")
        usual_s = self._standing().usual_s
        return max(self._channel.endpoint.interval_s, _ROUNDS * usual_s) if usual_s else float("inf")

    def _on_too_slow(self, envelope: Envelope) -> None:
        told = envelope.message
        if self._roster.learns and envelope.sender in self._roster.view.ids and told.within_s > 0:
            self.within_s = told.within_s
            self._roster.notify()
