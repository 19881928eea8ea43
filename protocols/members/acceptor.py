"""The acceptor's half of a change: what one member has promised, and which next view it has adopted (`change`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..endpoint import Endpoint, Envelope
from ..transport import PeerId
from .roster import Roster, Standing
from .view import Adopt, Adopted, Behind, Decree, Install, Promise, Propose


class Acceptor:
    """One member's word in the change of the present view. `asked` is called when somebody else leads it."""

    def __init__(
        self,
        endpoint: Endpoint,
        roster: Roster,
        *,
        standing: Callable[[], Standing],
        stale: Callable[[PeerId, int], None],
        asked: Callable[[], None],
    ) -> None:
        self._endpoint, self._roster, self._standing, self._stale, self._asked = (
            endpoint,
            roster,
            standing,
            stale,
            asked,
        )
        self.promised = 0
        """The highest ballot this member has promised to follow; 0 while nothing is being changed."""
        self.unsettled_s = 0.0
        """When it first promised anything in this generation."""
        self._adopted: tuple[int, Decree | None] = (0, None)
        self._latest: Decree | None = None
        endpoint.on(Propose, self._on_propose)
        endpoint.on(Adopt, self._on_adopt)

    def begin(self, decree: Decree | None) -> None:
        """The roster has gone on to the view of `decree`, in which nothing is promised yet."""
        self.promised, self._adopted, self._latest = 0, (0, None), decree

    def promise(self, ballot: int) -> Promise:
        """Promise to follow `ballot` unless a higher one is promised; the answer says which, and what we hold."""
        if self.promised == 0:
            self.unsettled_s = asyncio.get_running_loop().time()
        self.promised = max(self.promised, ballot)
        self._roster.notify()
        standing, (adopted, decree) = self._standing(), self._adopted
        generation = self._roster.view.generation
        return Promise(generation, ballot, self.promised, standing.held, standing.fingerprint, adopted, decree)

    def adopt(self, ballot: int, decree: Decree) -> Adopted:
        """Adopt `decree`, unless a higher ballot is promised meanwhile."""
        if ballot >= self.promised:
            self.promised, self._adopted = ballot, (ballot, decree)
        return Adopted(self._roster.view.generation, ballot, self.promised)

    def of_now(self, envelope: Envelope, generation: int) -> bool:
        """Whether a member speaks of our generation. If not, one of the two is brought up to date."""
        view, sender = self._roster.view, envelope.sender
        if sender not in view.ids:
            self._stale(sender, generation)
        elif generation > view.generation:
            self._endpoint.post(sender, Behind(view.generation))
        elif generation < view.generation and self._latest is not None:
            self._endpoint.post(sender, Install(self._latest))
        return sender in view.ids and generation == view.generation

    def _on_propose(self, envelope: Envelope) -> None:
        proposal: Propose = envelope.message
        if self.of_now(envelope, proposal.generation):
            self._endpoint.post(envelope.sender, self.promise(proposal.ballot))
            self._asked()

    def _on_adopt(self, envelope: Envelope) -> None:
        request: Adopt = envelope.message
        if self.of_now(envelope, request.generation):
            self.promise(request.ballot)
            self._endpoint.post(envelope.sender, self.adopt(request.ballot, request.decree))
            self._asked()
