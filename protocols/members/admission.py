"""Admission: how a newcomer gets in.

Join -> Welcome or Refused with any member, the contact, who then introduces the newcomer to the coordinator: once, and
again to the next one when the first is lost with the introduction in its hands. The next change lets the newcomer in.
"""

from __future__ import annotations

from collections.abc import Callable

from ..delivery.link import PeerLost
from ..endpoint import Endpoint, Envelope
from ..transport import PeerId
from .roster import Expelled, MembershipError, Roster, Standing
from .view import Anew, Introduce, Join, Refused, Welcome, in_words

_NEWCOMERS_MAX = 1024


class JoinRefused(MembershipError):
    """The run does not let this peer in."""


class Admission:
    """Both sides of it. `layout`, `model`: the digest of the model's layout, and it in words."""

    def __init__(
        self, endpoint: Endpoint, roster: Roster, *, run: str, layout: str, model: str, standing: Callable[[], Standing]
    ) -> None:
        self._endpoint, self._roster, self._standing = endpoint, roster, standing
        self._run, self._layout, self._model = run, layout, model
        self._host: PeerId | None = None
        """Who has promised to introduce this peer."""
        endpoint.on(Join, self._on_join)
        endpoint.on(Introduce, self._on_introduce)
        endpoint.on(Anew, self._on_anew)

    async def ask(self, contact: PeerId, *, ready: bool) -> Welcome:
        """Ask `contact` to be let in, or, not `ready`, whether it would do so.

        Raises JoinRefused, or PeerLost when another member may be asked.
        """
        me, has = self._roster.me, self._standing()
        self._host = contact if ready else None
        answer = await self._endpoint.ask(
            contact,
            lambda ask: Join(ask, self._run, me, self._layout, self._model, has.held, has.fingerprint, ready),
        )
        if isinstance(answer.message, Refused):
            if answer.message.final:
                raise JoinRefused(answer.message.why)
            raise PeerLost(contact, answer.message.why)
        welcome: Welcome = answer.message
        if self._roster.id not in self._roster.view.ids:
            self._roster.meet(welcome.view)
        return welcome

    def _on_join(self, envelope: Envelope) -> None:
        join, newcomer, roster = envelope.message, envelope.sender, self._roster
        refusal = self._refusal(join, newcomer)
        if refusal is not None or roster.id not in roster.view.ids:
            why = refusal or "this peer is no member itself now; ask another, or later"
            self._endpoint.post(newcomer, Refused(join.ask, in_words(why), refusal is not None))
            return
        roster.joins_anew(newcomer, heard=True)
        self._endpoint.dial(newcomer, join.member.address)
        standing = self._standing()
        self._endpoint.post(newcomer, Welcome(join.ask, roster.view, standing.held, standing.fingerprint))
        if join.ready:
            self._introduce(Introduce(join.member, join.round, join.fingerprint, roster.view.generation))

    def _refusal(self, join: Join, sender: PeerId) -> str | None:
        view = self._roster.view
        if join.run != self._run:
            return f"this is run {self._run!r}, not {join.run!r}"
        if join.member.id != sender:
            return "it asks in another peer's name"
        if join.layout != self._layout:
            return f"the models have different layouts: {join.model}, {self._model}; is it the same task file?"
        if sender not in view.ids and not view.has_room(join.member):
            return f"the run is full: {len(view.members)} members"
        if join.ready and self._roster.id in self._roster.finished:
            return "the run is over: its last round is committed"
        return None

    def _on_introduce(self, envelope: Envelope) -> None:
        came, roster = envelope.message, self._roster
        known = roster.view.member(came.member.id)
        if envelope.sender not in roster.view.ids or roster.id in (came.member.id, *roster.finished):
            return
        if known is not None and known.since > came.generation:
            return  # that introduction has let it in already
        if known is not None or came.member.id not in roster.newcomers:
            roster.joins_anew(came.member.id, heard=False)
        self._introduce(came)

    def _on_anew(self, envelope: Envelope) -> None:
        roster, sender = self._roster, envelope.sender
        roster.gave_up(sender)
        if sender == self._host and not roster.view.ids and roster.failed is None:
            roster.fail(Expelled(sender))  # it has our introduction in its hands, and nobody to give it to

    def _introduce(self, came: Introduce) -> None:
        if len(self._roster.newcomers) < _NEWCOMERS_MAX:
            self._roster.newcomers[came.member.id] = came
            self._endpoint.dial(came.member.id, came.member.address)
            self._roster.news()
