"""Admission: how a newcomer gets in.

Join -> Welcome or Refused with any member, the contact, who then introduces the newcomer to the coordinator: once, and
again to the next one when the first is lost with the introduction in its hands. The next change lets the newcomer in.
Who was given up for holding up the others is told Later, and asks again then. Who gave it up knows this, nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..delivery.link import PeerLost
from ..endpoint import Endpoint, Envelope
from ..transport import PeerId
from .roster import Expelled, MembershipError, Roster, Standing
from .view import Anew, Introduce, Join, Later, Refused, Welcome, in_words

_NEWCOMERS_MAX = 1024
_LATER_MAX_S = 3600.0


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
        self._held_off: dict[PeerId, Later] = {}
        """Whom this peer does not let in yet. Of these, `seconds` is when it does, on the loop's clock."""
        self._later_s = 0.0
        """When the others let this peer in, as they have said."""
        self._later_by: PeerId = ""
        endpoint.on(Join, self._on_join)
        endpoint.on(Introduce, self._on_introduce)
        endpoint.on(Later, self._on_later)
        endpoint.on(Anew, self._on_anew)

    async def ask(self, contact: PeerId, *, ready: bool) -> Welcome:
        """Ask `contact` to be let in, or, not `ready`, whether it would do so.

        Raises JoinRefused, or PeerLost when another member may be asked.
        """
        me, has = self._roster.me, self._standing()
        self._host = contact if ready else None
        if ready:
            self._later_s = 0.0  # asked anew: what is said from now on counts, be it before the answer is looked at
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
        if self._later_by not in welcome.view.ids:
            self._later_s = 0.0  # nobody else knows of it
        return welcome

    @property
    def held_off_s(self) -> float:
        """For how long the others do not let this peer in yet."""
        return max(0.0, self._later_s - asyncio.get_running_loop().time())

    def hold_off(self, peer: PeerId, seconds: float, why: str) -> None:
        """Let `peer` in only after so many seconds."""
        until_s = asyncio.get_running_loop().time() + min(seconds, _LATER_MAX_S)
        self._held_off[peer] = Later(until_s, in_words(why))

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

    def _on_later(self, envelope: Envelope) -> None:
        later, now = envelope.message, asyncio.get_running_loop().time()
        asked = self._host is not None and not self._roster.view.ids and envelope.sender in self._roster.addresses
        if not asked or not 0 < later.seconds <= _LATER_MAX_S:
            return
        if not self.held_off_s:
            for told in self._roster.on_waiting:
                told(f"the others let it in again in {later.seconds:.0f} s, not sooner: {in_words(later.why)}")
        self._later_s, self._later_by = now + later.seconds, envelope.sender

    def _introduce(self, came: Introduce) -> None:
        newcomer, roster, now = came.member.id, self._roster, asyncio.get_running_loop().time()
        later = self._held_off.get(newcomer)
        if later is not None and later.seconds > now:
            self._endpoint.dial(newcomer, came.member.address)
            self._endpoint.post(newcomer, Later(later.seconds - now, later.why))
        elif len(roster.newcomers) < _NEWCOMERS_MAX:
            roster.newcomers[newcomer] = came
            self._endpoint.dial(newcomer, came.member.address)
            roster.news()
