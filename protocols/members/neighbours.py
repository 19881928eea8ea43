"""Neighbours: the other peers that a conversation works with now, under any kind of membership. Where members agree on
a view, they are all members that this peer can reach. Where a peer has links to only a few others, they are these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..transport import PeerId
from .removals import Removals
from .roster import Roster
from .view import NOBODY, Member

UNREACHABLE = "it cannot be reached from here"
OUTSIDE = "this peer is no member itself"
UNLINKED = "it has no link with this peer any more"
STILL_THERE = (UNREACHABLE, OUTSIDE, UNLINKED)
"""The reasons for which a peer leaves the neighbours that is still in the run, or may be: it may become a neighbour
again in the same life."""


class Neighbours:
    """One peer's neighbours. When a neighbour is restarted under its key, that counts as one neighbour that leaves and
    another that joins.

    A neighbour is away when this peer has lost it and it is not removed yet. The listeners of `on_away` hear of it once
    it is clear that it stays so, and those of `on_back` when it is there again. Those of `on_joined` and `on_left` hear
    of new and former neighbours."""

    def __init__(self, away: Callable[[PeerId], str | None] = lambda peer: None) -> None:
        """`away` returns why this peer has lost a neighbour that is not removed yet, for which nobody should wait;
        None: it has not lost it. As a default no neighbour is away."""
        self.away = away
        """Why this peer has lost a neighbour that is not removed yet, for which nobody should wait; None: it has
        not."""
        self.on_away: list[Callable[[Member, str], None]] = []
        """Called once with each neighbour that is away and stays so, because too few are left to remove it, and with
        the reason; again each time that it is away anew."""
        self.on_back: list[Callable[[Member], None]] = []
        """Called with a neighbour of which `on_away` has told, and that is not away any more."""
        self.on_joined: list[Callable[[Member], None]] = []
        self.on_left: list[Callable[[Member, str], None]] = []
        """Called with a neighbour that has left, and the reason."""
        self._now: dict[PeerId, Member] = {}
        self._away: dict[PeerId, int | None] = {}
        """The neighbours that were away when last looked at; the life of which `on_away` has told, None: of none."""
        self._returned = False

    @property
    def now(self) -> tuple[Member, ...]:
        """The present neighbours, as members with their attributes."""
        return tuple(self._now.values())

    def there(self, peers: Iterable[PeerId]) -> list[PeerId]:
        """Those of `peers` for which `away` returns None now, in the same order. They need not be neighbours."""
        return [peer for peer in peers if self.away(peer) is None]

    def have_returned(self) -> bool:
        """Whether a neighbour that was away has come back since the last call of this method. This peer or that one may
        be far behind then."""
        returned, self._returned = self._returned, False
        return returned

    def was_told(self, peer: PeerId, life: int) -> bool:
        """Whether `on_away` has told of a neighbour in this `life`, and `on_back` has not since."""
        return self._away.get(peer) == life

    def look(self, suspects: Iterable[PeerId]) -> None:
        """Ask `away` of those of `suspects` that are neighbours; all other neighbours count as there. `now` stays as it
        is. A neighbour that is not away any more makes `have_returned` true, and is told to `on_back` if it was told to
        `on_away`, which only `stay_away` calls."""
        before = self._away
        away = [peer for peer in suspects if peer in self._now and self.away(peer) is not None]
        self._away = {peer: before.get(peer) for peer in away}
        for peer in before:
            if (member := self._now.get(peer)) is not None and peer not in self._away:
                self._returned = True
                if before[peer] == member.life:
                    for back in self.on_back:
                        back(member)

    def stay_away(self) -> None:
        """Call `on_away` with each neighbour that the last `look` has found away and that still is, once until it is
        back. To be called when too few members are left to remove them."""
        for peer, told in self._away.items():
            if told != (member := self._now[peer]).life and (why := self.away(peer)) is not None:
                self._away[peer] = member.life
                for listener in self.on_away:
                    listener(member, why)

    def become(self, members: Iterable[Member], why_left: Callable[[Member], str]) -> None:
        """Replace the neighbours by `members`, which do not include this peer. Calls `on_left` for all that have left,
        with the reason by `why_left`, and then `on_joined` for all that are new; `now` has the new ones by then."""
        before, self._now = self._now, {member.id: member for member in members}
        for member in before.values():
            if not _among(self._now, member):
                for left in self.on_left:
                    left(member, why_left(member))
        for member in self.now:
            if not _among(before, member):
                for joined in self.on_joined:
                    joined(member)


def _among(known: dict[PeerId, Member], member: Member) -> bool:
    return member.id in known and known[member.id].life == member.life


def of_view(roster: Roster, removals: Removals) -> Neighbours:
    """Neighbours that follow the roster's views: the other members of the present view that it does not list as apart
    from this peer, and none while this peer is not a member itself. A neighbour that is `gone` in the roster stays one
    until the next view, and is away. `removals`: from these the reason is taken for which a neighbour has left."""
    neighbours, seen = Neighbours(lambda peer: gone.why if (gone := roster.gone.get(peer)) else None), NOBODY

    def why_left(member: Member) -> str:
        if roster.id not in roster.view.ids:
            return OUTSIDE
        if roster.view.holds(member):
            return UNREACHABLE
        return next((one.why for one in reversed(removals) if one.peer == member.id), "it is no member any more")

    def follow() -> None:
        nonlocal seen
        if roster.view is not seen:
            seen = view = roster.view
            others = [one for one in view.members if one.id != roster.id and not view.are_apart(one.id, roster.id)]
            neighbours.become(others if roster.id in view.ids else (), why_left)
        neighbours.look(roster.gone)

    roster.on_change.append(follow)
    roster.on_short.append(neighbours.stay_away)
    return neighbours
