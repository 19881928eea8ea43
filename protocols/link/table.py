"""The links of one endpoint: the peers that it exchanges messages with, their addresses, and the peers that are
watched.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterator

from ..addresses import NOWHERE
from ..transport import PeerId, Transport, is_guest, key_of
from ..wire.frames import encode
from .flow import Flow
from .link import Link, PeerLost
from .outbox import Outbox

_LINKS_MAX = 1 << 15
GUESTS_MAX = 64
"""The most guests (peers that share one key) with a link at the same time."""
CLOSED = "this endpoint was closed"


class Links:
    """The links of one endpoint, one for each peer. `ended` is called with each peer whose link `forget` has ended and
    with the reason, and not for one that is lost or closed; `patience_s`: seconds that a peer may be silent."""

    def __init__(
        self,
        transport: Transport,
        rng: random.Random,
        *,
        ended: Callable[[PeerId, str], None],
        patience_s: float,
    ) -> None:
        self.watched: set[PeerId] = set()
        """The peers that any channel watches: a watched peer that is silent for the patience is reported as lost."""
        self.outbox = Outbox(transport)
        self._watched_by: dict[str, set[PeerId]] = {}
        self.closed = False
        self._transport, self._rng = transport, rng
        self._ended, self._patience_s = ended, patience_s
        self._links: dict[PeerId, Link] = {}
        self._guests: dict[PeerId, float] = {}
        """When the link to each guest began, on the loop's clock; the earliest first."""
        self._flow = Flow(self._links.__len__, transport.budget, patience_s)
        self._addresses: dict[PeerId, str] = {}

    def __iter__(self) -> Iterator[Link]:
        return iter(list(self._links.values()))

    def get(self, peer: PeerId) -> Link | None:
        """The link to `peer`, even if it is lost; None: there is none."""
        return self._links.get(peer)

    def known(self, peer: PeerId) -> Link:
        """The link to `peer`, even if it is lost. Where there is none, a new one is begun (`call`), which may raise
        PeerLost."""
        return self._links.get(peer) or self.call(peer)

    @property
    def peers(self) -> list[PeerId]:
        """All peers with a link or an address."""
        return list(dict.fromkeys((*self._links, *self._addresses)))

    @property
    def held_bytes(self) -> int:
        """Bytes that have arrived from all peers together and are not consumed yet."""
        return sum(link.held_bytes for link in self._links.values())

    def call(self, peer: PeerId) -> Link:
        """Begin a new link to `peer` with a ping, and return it. Raises PeerLost as `answer` does."""
        link = self.answer(peer)
        link.pulse(ping=True)
        return link

    def answer(self, peer: PeerId) -> Link:
        """Make a new link to `peer`, in place of a lost one, without sending anything: `peer` has sent the first frame.
        If its address is known, it is dialled. Where there are too many links, one that is not in use is ended first.
        Raises PeerLost when all of these are in use, or this endpoint is closed."""
        if self.closed:
            raise PeerLost(peer, CLOSED)
        if is_guest(peer):
            self._take_in(peer)
        if len(self._links) >= _LINKS_MAX:
            self._make_room(peer, self._links)
        if peer in self._addresses:
            self._transport.dial(peer, self._addresses[peer])
        link = self._links[peer] = Link(
            peer,
            self._rng.randrange(1, 2**62),
            clock=asyncio.get_running_loop().time,
            outbox=self.outbox,
            flow=self._flow,
            pace=self._flow.pace(peer),
        )
        return link

    def dial(self, peer: PeerId, address: str) -> None:
        """Learn the address of `peer`. If the link to it was lost, a new one is begun when it is next needed. An
        endpoint that cannot be dialled itself connects to `peer` at once, because `peer` cannot connect to it."""
        self._addresses[peer] = address
        self.retry(peer)
        if peer in self._links or (self._transport.pipes is not None and address != NOWHERE):
            self._transport.dial(peer, address)

    def hang_up(self, peer: PeerId) -> None:
        """Close the connection to `peer` and drop the frames that wait for it. An endpoint that cannot be dialled
        itself connects again at once, because `peer` may still need to reach it."""
        self._transport.hang_up(peer)
        if self._transport.pipes is not None and (address := self._addresses.get(peer, NOWHERE)) != NOWHERE:
            self._transport.dial(peer, address)

    def patience_s(self, link: Link) -> float:
        """Seconds that the peer of `link` may be silent before it counts as lost. They are twice as many for a peer
        that cannot be dialled and has not been heard of yet, if this one can be: that peer has to learn of this one
        first, and then to connect."""
        calls_first = not link.towards and self._addresses.get(link.peer) == NOWHERE
        return self._patience_s * (2 if calls_first and self._transport.pipes is None else 1)

    def tell(self, channel: str, peer: PeerId, message: object) -> None:
        """Send a loose message, one that may be lost, to `peer`: without a link, over the connection that there is, or
        over a new one if `peer` has an address, or both peers are reached through a relay only. Does nothing when this
        endpoint is closed. Raises ValueError for a message that a receiver would refuse."""
        if self.closed:
            return
        address = self._addresses.get(peer)
        if address is not None and (address != NOWHERE or self._transport.pipes is not None):
            self._transport.dial(peer, address)
        self.outbox.post(peer, encode(message, 0, incarnation=1, towards=0, seq=0, channel=channel), b"", channel)

    def retry(self, peer: PeerId) -> None:
        """Remove a lost link to `peer`, so that a new one is begun when it is next needed; other links stay."""
        link = self._links.get(peer)
        if link is not None and link.lost is not None:
            del self._links[peer]
            self._guests.pop(peer, None)

    def watch(self, channel: str, peers: set[PeerId]) -> None:
        """Replace the peers that `channel` watches by `peers`. A peer with a lost link or none is called now, so that
        its silence is reported again. Raises PeerLost as `answer` does, and then replaces nothing."""
        for peer in sorted(peers):  # in an order that a simulation repeats
            link = self._links.get(peer)
            if link is None or link.lost is not None:
                self.call(peer)
            elif peer not in self.watched:
                link.heard_at = asyncio.get_running_loop().time()
        self._watched_by[channel] = peers
        self.watched = set[PeerId]().union(*self._watched_by.values())

    def forget(self, peer: PeerId, why: str) -> None:
        """End the link to `peer` for the reason `why`, close its connection, watch it no more, and forget its
        address."""
        link = self._links.pop(peer, None)
        if link is not None:
            link.lose(why)
            self._ended(peer, why)
        for watched in (self.watched, *self._watched_by.values()):
            watched.discard(peer)
        self._addresses.pop(peer, None)
        self._transport.hang_up(peer)
        if self._guests.pop(peer, None) is not None:
            self._flow.forget(peer)  # no guest comes under that name again

    def forget_key(self, key: str, why: str) -> None:
        """End the links to all peers that use the key `key`, as guests may share one."""
        for link in self:
            if key_of(link.peer) == key:
                self.forget(link.peer, why)

    def dismiss_guests(self, after_s: float) -> None:
        """End the links to guests (peers that share one key) that came more than `after_s` seconds ago and have nothing
        waiting to be sent or acknowledged: each holds a share of the credit."""
        came_before_s = asyncio.get_running_loop().time() - after_s
        for guest in [guest for guest, came_s in self._guests.items() if came_s < came_before_s]:
            if not self._links[guest].busy:
                self.forget(guest, "it has been a guest for long enough")

    def close(self) -> None:
        """End all links, for good. Acknowledgements that peers wait for are sent first: otherwise each peer would wait
        until its patience is over."""
        for link in self:
            if link.lost is None and not self.closed:
                link.beat(ask=False)
            link.lose(CLOSED)
        self.closed = True

    def _take_in(self, guest: PeerId) -> None:
        """Admit a guest. A guest that has only just come does not give way to it: of very many guests, none would ever
        finish."""
        now = asyncio.get_running_loop().time()
        if guest not in self._guests and len(self._guests) >= GUESTS_MAX:
            self._make_room(guest, [one for one, came_s in self._guests.items() if now - came_s > self._patience_s / 4])
        self._guests.setdefault(guest, now)

    def _make_room(self, newcomer: PeerId, among: Collection[PeerId]) -> None:
        """Forget one idle peer of `among`; if it was still needed, one of the two calls again. Raises PeerLost when
        none of them is idle."""
        for peer in among:
            link = self._links[peer]
            if link.lost is not None or not (link.busy or peer in self.watched):
                self.forget(peer, "there were too many others to talk to")
                self._flow.forget(peer)
                return
        raise PeerLost(newcomer, "too many others are being talked to, and there is no room for more")
