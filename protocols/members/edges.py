"""Edges: finds out which members cannot reach each other, and decides when a member that others have lost is given up,
that is removed by the next view.

A member that loses another tells the coordinator (Suspicion), which asks the accused member. If the accused answers,
the edge between the two is broken: both are alive, the next view lists the edge in `apart`, and the conversation sends
nothing along it. The coordinator has one end try the edge at intervals that double each time it breaks again; an edge
that works is taken off the list. An accused that does not answer for half a patience is given up: two members have
missed it then. A member with broken edges to more than half of the others is given up too. Where there are more broken
edges than a view can list, the end of the new edge that has more of them is given up; of equals, the junior.

The coordinator itself is given up when as many members accuse it as may decide a view: its successor needs that many
anyway. A member that hears of an accusation, and still hears the coordinator, asks the coordinator, and vouches for it
when it answers. A member that has lost a vouched-for coordinator joins anew, unless the view has changed within a
patience and a half, or the coordinator has answered nobody in the last third of that time. The successor waits that
long for other accusers, and no longer: they may be gone, or may not know the view.

Cost: two small messages for each accusation. A broken edge costs one patience, once, and a change of the view.
On failure: only the coordinator knows when an edge is tried again; the next coordinator starts from the view's `apart`.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ..channel import Channel, Envelope
from ..testpoints import sometimes, witness
from ..transport import PeerId
from ..wire.frames import in_words, message
from .backoff import Backoff
from .edge import EDGES_MAX, Edge
from .errors import Expelled
from .messages import MEMBERS, Suspicion
from .roster import Roster
from .view import View

_REST = 4
"""Patiences from when an edge breaks to when it is tried again."""


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class AreYouThere:
    """Asks a peer that `accuser` has lost whether it is alive. The sender is the coordinator; a member that hears that
    `accuser` has lost the coordinator; or `accuser` itself, when it tries a broken edge again."""

    generation: int
    accuser: PeerId


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class IAmThere:
    """The answer to AreYouThere, with the same fields: the sender is alive."""

    generation: int
    accuser: PeerId


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class TryAgain:
    """The coordinator asks an end of a broken edge to test whether it can reach `peer`, the other end, now."""

    generation: int
    peer: PeerId


@message(MEMBERS)
@dataclass(frozen=True, slots=True)
class Reaches:
    """The answer to TryAgain: the sender reaches `peer`. It is not sent if the sender does not. It is also sent to a
    member that has lost the coordinator `peer`, by a member that still reaches it."""

    generation: int
    peer: PeerId


@dataclass(frozen=True, slots=True)
class LostCoordinator:
    """Event for a simulation's checkers: this peer has lost the `coordinator`, and accuses it before others: for the
    first time, or `again`, after a patience in which nothing has come of it."""

    coordinator: PeerId
    again: bool


@dataclass(frozen=True, slots=True)
class VouchedFor:
    """Event for a simulation's checkers: this peer joins anew, because it has lost the `coordinator`, which others say
    that they hear."""

    coordinator: PeerId


class Edges:
    """Reports the members that one peer has lost, and tests accusations. Where this peer is the coordinator, it decides
    whether the edge between two members is broken, or which of them is removed."""

    def __init__(
        self,
        channel: Channel,
        roster: Roster,
        *,
        enough: Callable[[Collection[PeerId]], bool],
        renew: Callable[[], None],
        of_now: Callable[[Envelope, int], bool],
    ) -> None:
        """`enough` returns whether these members may decide a view. `renew` has a new view decided. `of_now` returns
        whether a message's sender is a member that names the present generation (`Acceptor.of_coordinator`)."""
        self._channel, self._roster, self._enough, self._renew = channel, roster, enough, renew
        self._of_now = of_now
        self._accusers: defaultdict[PeerId, set[PeerId]] = defaultdict(set)
        """For each coordinator: the members that have lost it."""
        self._vouchers: dict[PeerId, set[PeerId]] = {}
        """For each coordinator that this peer has lost: the members that vouch for it."""
        self._asked: dict[Edge, tuple[str, asyncio.TimerHandle]] = {}
        """For each edge whose accused end was asked: the accusation, and the timer after which that end is given up."""
        self._found: set[Edge] = set()
        """Broken edges that the view does not have yet."""
        self._rest: Backoff[Edge] = Backoff(_REST * channel.endpoint.patience_s)
        self._rests_s: dict[Edge, float] = {}
        """Seconds between two tries of each broken edge."""
        self._timers: list[asyncio.TimerHandle] = []
        roster.missed = self.lost
        channel.on(Suspicion, self._on_suspicion)
        channel.on(AreYouThere, self._on_asked)
        channel.on(IAmThere, self._on_answer)
        channel.on(TryAgain, self._on_try)
        channel.on(Reaches, self._on_reaches)

    def begin(self, view: View) -> None:
        """Start afresh in `view`, to which the roster has gone on: accusations are forgotten. The coordinator keeps the
        broken edges between members that this view does not list, and has another view decided that lists them."""
        self.stop()
        self._accusers.clear()
        self._vouchers.clear()
        self._asked.clear()
        known = {member.id for member in view.members if member.since < view.generation}
        late = {edge for edge in self._found if edge not in view.apart and known.issuperset((edge.one, edge.other))}
        self._found = late if self._coordinates else set()
        self._roster.apart = (*view.apart, *sorted(self._found))
        self._rests_s = {edge: rest_s for edge, rest_s in self._rests_s.items() if edge in self._roster.apart}
        if self._coordinates:
            for edge in view.apart:
                self._try_later(view, edge)
        if self._found:
            self._renew()

    def stop(self) -> None:
        """Cancel all timers: no accused member is given up any more, and no broken edge is tried."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def lost(self, peer: PeerId, why: str) -> None:
        """Accuse the member `peer`, lost because of `why`, before the coordinator, or before its successor if `peer` is
        the coordinator. Does nothing if the view lists `peer` as apart from this peer, and neither is coordinator."""
        roster, coordinator = self._roster, self._roster.coordinator
        if peer == coordinator:
            self._lost_coordinator(peer, why)
        elif coordinator == roster.id or not roster.view.are_apart(peer, roster.id):
            roster.suspect(peer, why)

    def _lost_coordinator(self, coordinator: PeerId, why: str) -> None:
        roster, patience_s = self._roster, self._channel.endpoint.patience_s
        left = [peer for peer in roster.view.by_seniority if peer != coordinator and roster.stays(peer)]
        if not left:  # this peer is about to leave, and no other member is there
            roster.suspect(coordinator, why)
            return
        witness(LostCoordinator(coordinator, again=False))
        first, *others = left
        ask = others[:1] if first == roster.id else [first]

        def tell() -> None:
            for other in ask:
                self._channel.post(other, Suspicion(roster.view.generation, coordinator, in_words(why)))

        def tell_again() -> None:
            witness(LostCoordinator(coordinator, again=True))
            self._vouchers[coordinator].clear()  # the coordinator may have ended since it answered
            tell()

        def settle() -> None:
            if vouchers := self._vouchers.pop(coordinator) - self._accusers[coordinator]:
                sometimes("a peer that had lost the coordinator, and nobody else, joined anew")
                witness(VouchedFor(coordinator))
                roster.fail(Expelled(min(vouchers)))
            elif first == roster.id:
                roster.suspect(coordinator, why)

        if coordinator not in self._vouchers:
            self._vouchers[coordinator] = set()
            self._call_in(patience_s, tell_again)
            self._call_in(1.5 * patience_s, settle)
        if first != roster.id:
            roster.suspect(coordinator, why)  # this tells the successor, `first`
            return
        self._accuse_coordinator(roster.id, coordinator, why)
        tell()

    def _on_suspicion(self, envelope: Envelope) -> None:
        told: Suspicion = envelope.message
        if self._of_now(envelope, told.generation):
            self._accuse(envelope.sender, told.peer, told.why)

    def _accuse(self, accuser: PeerId, accused: PeerId, why: str) -> None:
        """The member `accuser` says that it has lost the member `accused`."""
        roster = self._roster
        if accused not in roster.alive or accused == roster.id:
            return
        if accused == roster.coordinator:
            self._accuse_coordinator(accuser, accused, f"{why} (says peer {roster.view.name(accuser)})")
        elif self._coordinates and (edge := Edge.between(accuser, accused)) not in (*roster.apart, *self._asked):
            self._channel.post(accused, AreYouThere(roster.view.generation, accuser))
            wait_s = self._channel.endpoint.patience_s / 2
            why = f"{why} (says peer {roster.view.name(accuser)})"
            both = f"{why}, and it has not answered for {wait_s:g} s"
            self._asked[edge] = why, self._call_in(wait_s, lambda: roster.suspect(accused, both))

    def _accuse_coordinator(self, accuser: PeerId, accused: PeerId, why: str) -> None:
        accusers = self._accusers[accused]
        accusers.add(accuser)
        if self._enough(accusers) or accusers.issuperset({*self._roster.staying} - {accused}):
            self._roster.suspect(accused, why)
        elif self._roster.id not in accusers:
            self._channel.post(accused, AreYouThere(self._roster.view.generation, accuser))

    def _on_asked(self, envelope: Envelope) -> None:
        if self._roster.id in self._roster.view.ids:
            asked: AreYouThere = envelope.message
            self._channel.post(envelope.sender, IAmThere(asked.generation, asked.accuser))

    def _on_answer(self, envelope: Envelope) -> None:
        answer, view = envelope.message, self._roster.view
        edge = Edge.between(answer.accuser, envelope.sender)
        if answer.generation != view.generation or not {edge.one, edge.other} <= {*view.ids}:
            return
        coordinator = self._roster.coordinator
        if edge in self._asked:
            why, timer = self._asked.pop(edge)
            timer.cancel()
            self._broken(edge, why)
        elif coordinator is not None and coordinator != self._roster.id:
            told = answer.accuser if envelope.sender == coordinator else coordinator
            if told != self._roster.id:
                self._channel.post(told, Reaches(view.generation, envelope.sender))

    def _broken(self, edge: Edge, why: str) -> None:
        roster, seniority = self._roster, self._roster.view.by_seniority
        count = Counter(peer for each in (*roster.apart, edge) for peer in (each.one, each.other))
        worst = max((edge.one, edge.other), key=lambda peer: (count[peer], seniority.index(peer)))
        if 2 * count[worst] >= len(seniority) or len(roster.apart) >= EDGES_MAX:
            sometimes("too many edges of one peer were broken")
            roster.suspect(worst, f"{why}: {count[worst]} of the others do not reach it")
            return
        sometimes("an edge was broken")
        self._found.add(edge)
        roster.apart = (*roster.apart, edge)
        self._rests_s[edge] = self._rest.again(edge)
        self._renew()

    # Trying again

    def _try_later(self, view: View, edge: Edge) -> None:
        rest_s = self._rests_s.setdefault(edge, _REST * self._channel.endpoint.patience_s)

        def again() -> None:
            self._channel.post(edge.one, TryAgain(view.generation, edge.other))
            self._try_later(view, edge)

        self._call_in(rest_s, again)

    def _on_try(self, envelope: Envelope) -> None:
        told, view = envelope.message, self._roster.view
        if told.generation == view.generation and view.are_apart(told.peer, self._roster.id):
            self._channel.endpoint.retry(told.peer)
            self._channel.post(told.peer, AreYouThere(view.generation, self._roster.id))

    def _on_reaches(self, envelope: Envelope) -> None:
        told, roster = envelope.message, self._roster
        edge = Edge.between(envelope.sender, told.peer)
        if told.generation != roster.view.generation or envelope.sender not in roster.view.ids:
            return
        if told.peer in self._vouchers:
            self._vouchers[told.peer].add(envelope.sender)
        elif edge in roster.view.apart and edge in roster.apart:
            sometimes("a broken edge works again")
            roster.apart = tuple(each for each in roster.apart if each != edge)
            self._renew()

    @property
    def _coordinates(self) -> bool:
        return self._roster.coordinator == self._roster.id

    def _call_in(self, seconds: float, do: Callable[[], None]) -> asyncio.TimerHandle:
        self._timers.append(asyncio.get_running_loop().call_later(seconds, do))
        return self._timers[-1]
