"""Comings and goings: what a peer's records tell of the other members, as it happens."""

from __future__ import annotations

from typing import Protocol

from ..protocols.endpoint import Endpoint
from ..protocols.members.membership import Loss, Membership
from ..protocols.members.view import View
from .records import EventName, Missing


class Tell(Protocol):
    """Writes an event."""

    def __call__(self, event: EventName, *, about: str = "", why: str = "") -> None: ...


class Comings:
    """Those that the peer with that endpoint sees, from when it has `begun`; and at any time what it waits for, and
    whose messages it has refused."""

    def __init__(self, endpoint: Endpoint, membership: Membership, tell: Tell) -> None:
        self._own, self._membership, self._tell = endpoint.id, membership, tell
        membership.on_waiting.append(lambda why: tell("waiting", why=why))
        endpoint.on_refused.append(lambda refusal: tell("refused", why=str(refusal)))
        self._known: View | None = None
        self._losses_told = 0
        self._events_told = 0
        self._began_s = 0.0

    def begin(self, began_s: float) -> None:
        """This peer takes part from now on. `began_s`: when its clock of the run began."""
        self._known, self._began_s = self._membership.view, began_s

    def missing(self) -> tuple[Missing, ...]:
        """Who was lost since this was asked last."""
        losses, self._losses_told = self._membership.losses.since(self._losses_told), self._membership.losses.ever
        return tuple(self._missing(loss) for loss in losses if not loss.left)

    def _missing(self, loss: Loss) -> Missing:
        since = loss.since_s - self._began_s
        return Missing(peer=loss.name, address=loss.address, since_s=since, why=loss.why, advice=loss.advice)

    def follow(self, view: View) -> None:
        """Tell of members that come and go."""
        known, self._known = self._known, view if self._known is not None else None
        if known is None:
            return
        self._follow_edges(known, view)
        for member in view.members:
            if known.member(member.id) is None and member.id != self._own and known.started:
                self._tell("joined", about=member.name)
        for loss in self._membership.losses.since(self._events_told):
            self._tell("left" if loss.left else "lost", about=loss.name, why=loss.why.removeprefix("left: "))
        self._events_told = self._membership.losses.ever

    def _follow_edges(self, known: View, view: View) -> None:
        """Tell of members that cannot reach each other, and of those that can again: each of the two and the
        coordinator do."""
        for edge in sorted({*known.apart} ^ {*view.apart}):
            ends = (edge.one, edge.other)
            if self._own in (*ends, self._membership.coordinator) and all(end in view.ids for end in ends):
                one, other = sorted(map(view.name, ends))
                if edge in view.apart:
                    why = f"{one} and {other} cannot reach each other; sums go another way"
                    self._tell("apart", about=one, why=why)
                else:
                    self._tell("together", about=one, why=f"{one} and {other} may reach each other again")
