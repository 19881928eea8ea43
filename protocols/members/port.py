"""The port of memberships: what a conversation asks of whichever one it is given.

It holds for a `Membership`, whose members agree on views by Paxos, and is kept so small that SWIM, partial views and a
fixed list of peers can implement it too. A conversation that needs more is bound to one membership, and says so by its
type: local SGD takes a `Membership`, because all of its members have to agree who contributes to a round.

| | gossip | parameter server | local SGD |
|---|---|---|---|
| `me` | its place in a ring | its role, its shard | its data shard, its site |
| `neighbours.now` | draws or weighs partners | the servers and the workers, by their roles | the members of its view |
| `on_joined`, `on_left` | new weights; what a partner owes is void | shards move; a worker's clock counts no more | - |
| `at_least` | before it mixes at all | until there are servers | - (`Terms.founders` in its place) |
| `lost` | a partner that does not answer | a server, or a worker | a member out of reach |
| `leave` | each of them, when it goes before the end | the same | the same |
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from ..transport import PeerId
from .neighbours import Neighbours
from .view import Member

if TYPE_CHECKING:
    from .membership import Membership


class Members(Protocol):
    """One peer's membership."""

    @property
    def me(self) -> Member:
        """This peer, as the others know it."""
        ...

    @property
    def neighbours(self) -> Neighbours:
        """The other peers that this peer works with: always the same object, whose content changes."""
        ...

    async def at_least(self, count: int) -> None:
        """Wait until there are at least `count` neighbours. Raises MembershipError when there never will be, and
        Expelled when this peer has to join again."""
        ...

    def lost(self, peer: PeerId, why: str) -> None:
        """This peer cannot work with `peer`. The membership may remove it from the neighbours, and it may become one
        again."""
        ...

    def leave(self, why: str) -> Awaitable[None]:
        """Leave of one's own will. When the returned awaitable is done, no peer counts on this one any more."""
        ...


if TYPE_CHECKING:

    def _is_of_the_port(membership: Membership) -> Members:
        return membership
