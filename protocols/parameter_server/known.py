"""A worker's knowledge of the chains that have settled, which it tells the heads of ranges in each new view. A chain,
the servers that hold a range, head first, has settled once all of them have the same copy."""

from __future__ import annotations

from collections.abc import Iterable

from ..channel import Channel, Envelope
from ..members.presence import Presence
from ..members.view import View
from ..wire.frames import PeerMisbehaved
from .held import Held
from .messages import Holdings, Survey
from .store import NOTHING, settled_at
from .tenure import servers_of


class Known:
    """Notes, for one worker, in which view it last had an exchange with the settled chain of each range, 0 to `count` -
    1, and tells that to the servers that ask (`messages.Survey`)."""

    def __init__(self, channel: Channel, presence: Presence, count: int) -> None:
        self._channel, self._presence = channel, presence
        self._standings = [NOTHING] * count
        """By range, the standing of the copy with whose chain this worker has had its last exchange."""
        self._held = Held(channel)
        channel.on(Survey, self._on_survey)
        presence.on_view.append(self._on_view)

    def settled(self, ranges: Iterable[int], view: View) -> None:
        """Note that this worker has had an exchange with the chains of these ranges in `view`."""
        for number in ranges:
            self._standings[number] = settled_at(view.generation)

    def _on_survey(self, envelope: Envelope) -> None:
        """Answer the head of a range. This worker answers only once it has the head's view itself, and no exchange of
        an earlier view any more."""
        survey, view = envelope.message, self._presence.present
        if survey.epoch > view.generation:
            self._held.put_off(envelope, self._on_survey)
        elif survey.epoch < view.generation:
            self._channel.refuse(envelope, "the view has changed")
        elif envelope.sender not in servers_of(view):
            raise PeerMisbehaved(f"sent Survey, which it may not send in view {survey.epoch}")
        else:
            nothing = (NOTHING,) * len(self._standings)
            self._channel.post(envelope.sender, Holdings(survey.ask, nothing, nothing, tuple(self._standings)))

    def _on_view(self, view: View) -> None:
        self._held.keep(view.everybody)
        self._held.look()
