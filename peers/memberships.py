"""The memberships that a conversation may run on: how the settings name them, and how each is made.

With `views` all members agree on the list of members. With `swim` each peer keeps its own list, and in a large run it
knows only a few of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from ..aggregation.options import made_of, whole
from ..protocols.channel import Channel
from ..protocols.endpoint import Endpoint
from ..protocols.limits import SWIM_PEERS_MAX, VIEW_MEMBERS_MAX, WHOLE_PEERS_MAX
from ..protocols.members.invitation import Invitation
from ..protocols.members.joining import Entry
from ..protocols.members.ledger import Store
from ..protocols.members.membership import Membership, Terms
from ..protocols.members.messages import MEMBERS
from ..protocols.members.port import RunMembers, Way
from ..protocols.members.view import Member

_LINKS, _LINKS_MIN, _LINKS_MAX = 6, 3, 32


@dataclass(frozen=True, slots=True)
class Views:
    """The membership in which all members agree on each list of members, called a view."""

    peers_max: ClassVar[int] = VIEW_MEMBERS_MAX

    def links(self, peers: int) -> int | None:
        """The number of other peers that each of `peers` peers has links to. Always None: each knows all."""
        return None


@dataclass(frozen=True, slots=True)
class BySwim:
    """The membership by SWIM. `wished`: the number of links of each peer; None: in a run of at most `WHOLE_PEERS_MAX`
    peers each knows all others, and in a larger one each has six links. Raises ValueError for fewer than 3, which do
    not hold a run together, or more than 32."""

    wished: int | None = None
    peers_max: ClassVar[int] = SWIM_PEERS_MAX

    def __post_init__(self) -> None:
        if self.wished is not None and not _LINKS_MIN <= self.wished <= _LINKS_MAX:
            raise ValueError(f"a peer has from {_LINKS_MIN} to {_LINKS_MAX} links, not {self.wished}")

    def links(self, peers: int) -> int | None:
        """The number of other peers that each of `peers` peers has links to; None: each knows all."""
        return _LINKS if self.wished is None and peers > WHOLE_PEERS_MAX else self.wished


Kind = Views | BySwim
MEMBERSHIPS: Final[Mapping[str, tuple[Callable[..., Kind], int]]] = {
    "views": (Views, 0),
    "swim": (lambda *links: BySwim(*map(whole, links)), 1),
}
"""Name -> a function that makes the membership from its options, which are texts, and the most options that it
takes."""


def parse_membership(text: str) -> Kind:
    """The membership that a user asks for: ``views``, ``swim``, or ``swim:LINKS``. Raises ValueError, in one line, on
    anything else."""
    return made_of(text, MEMBERSHIPS, "membership")


def made(
    kind: Kind, endpoint: Endpoint, me: Member, terms: Terms, store: Store | None, invitation: Invitation | None
) -> tuple[RunMembers, Way]:
    """One peer's membership, and the object that takes the peer into the run. `me`: the peer as a member; `terms`: the
    run's; `store`: keeps the peer's votes on views across restarts; None: they are not kept. SWIM has no votes, and
    ignores it. `invitation`: the one with which a founder begins the run; None: it has none, or this peer is no
    founder."""
    if isinstance(kind, BySwim):  # imported here: other peers do without the memory of its modules, 1 MB
        from ..protocols.swim.entry import SwimEntry
        from ..protocols.swim.membership import SwimMembership
        from ..protocols.swim.messages import SWIM

        swim = SwimMembership(Channel(endpoint, SWIM), me, terms, kind.links(terms.founders), invitation)
        return swim, SwimEntry(endpoint, swim)
    views = Membership(Channel(endpoint, MEMBERS), me, terms, store=store, invitation=invitation)
    return views, Entry(endpoint, views)
