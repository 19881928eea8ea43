"""Learning: how a newcomer to a run that has started becomes a member.

The newcomer is in the view as a learner: it has no vote and no rank, and no member waits for it. It fetches the present
state and reports this to the coordinator; in the next view it is a member. From then on the members wait for it: once
until it has caught up to the present version, and in every later exchange for its connection. Hence the learner must
have fetched the state within the time that the members take for four versions, or within a heartbeat interval where
that is longer. A slower learner is told so, stays a learner, and tries again later. A learner that shares memory with
all members cannot be too slow.
Cost: one message each way per learner, and one change of the view.
On failure: the learner repeats its message after a patience, and in each new view.
"""

from __future__ import annotations

from collections.abc import Callable

from ..channel import Channel, Envelope
from ..testpoints import sometimes
from ..transport import PeerId
from .attached import NOTHING, Standing
from .messages import Learned, TooSlow
from .roster import Roster
from .view import Decree, Version

_VERSIONS = 4


class Learning:
    """One peer's side of learning: as learner it reports that it holds the state; as coordinator it records in the
    roster the learners that may become members. `standing` returns the versions of this peer's state; `of_now` returns
    whether a message's sender is a member that names the present generation (`Acceptor.of_now`)."""

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
        """Seconds within which this learner must fetch the state to become a member; None: the coordinator has not
        called it too slow."""
        channel.on(Learned, self._on_learned)
        channel.on(TooSlow, self._on_too_slow)

    def tell(self, version: Version, took_s: float) -> None:
        """For a learner: report to the coordinator, once, that it holds `version`, and that fetching it took `took_s`
        seconds. The caller repeats this until the learner is a member. Nothing is sent if no member stays. Sets
        `within_s`, the limit that the coordinator has told a slow learner, back to None."""
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
        elif sender not in roster.learned or roster.learned[sender].version.number < told.version.number:
            roster.learned[sender] = told
            roster.news()

    def _within_s(self, peer: PeerId) -> float:
        """Seconds within which the learner `peer` must fetch the state."""
        view, learner = self._roster.view, self._roster.view.anybody(peer)
        if learner is not None and learner.machine and view.one_machine and learner.machine == view.members[0].machine:
            return float("inf")
        usual_s = self._standing().usual_s
        return max(self._channel.endpoint.interval_s, _VERSIONS * usual_s) if usual_s else float("inf")

    def _on_too_slow(self, envelope: Envelope) -> None:
        told = envelope.message
        if self._roster.learns and envelope.sender in self._roster.view.ids and told.within_s > 0:
            self.within_s = told.within_s
            self._roster.notify()


class Unattached:
    """Stands in for the conversation of a membership that has none attached. It has no state, so a learner has nothing
    to fetch, and reports that at once."""

    def __init__(self, roster: Roster, learning: Learning) -> None:
        self._roster, self._learning = roster, learning

    def standing(self) -> Standing:
        """The version (0, 0) as state and as result: there is no state."""
        return NOTHING

    def installed(self, decree: Decree) -> None:
        """For a learner: report at once that it holds the decree's version."""
        if self._roster.learns:
            self._learning.tell(decree.base, 0.0)
