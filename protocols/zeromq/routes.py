"""Ways to peers: for each peer that this one can dial, its own connection to it (out-link); for any other peer, the
connection that the other has made to this one (call). Between two peers of which neither can be dialled, an out-link
goes through a pipe, and is opened when there is a message to send and the other has not connected."""

from __future__ import annotations

import errno
import secrets
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from ..addresses import NOWHERE
from ..transport import PeerId, is_guest, key_of
from ..wire.frames import Buffer
from .call import Call
from .pipes import Doorstep
from .reader import Origin, Tap
from .redial import Redial

_CALLS_MAX, _GUESTS_CALLS_MAX = 1 << 15, 1 << 10
_NAME_MAX = 64
_UNKNOWN = "no answer"
AWAITED = "it cannot be dialled, and has no connection to this peer now"


def new_route(name: PeerId) -> bytes:
    """A new routing id by which an insecure peer names itself. Each connection gets a new one, because a dead
    connection may still hold an old one (Z8)."""
    return f"{name}/{secrets.token_hex(4)}".encode()


@lru_cache(maxsize=1024)
def claimed_name(route: bytes) -> PeerId:
    """The name in an insecure peer's routing id (`new_route`); a placeholder if there is no valid name."""
    name = route.partition(b"/")[0].decode("ascii", "replace")
    return name if name.isprintable() and 0 < len(name) <= _NAME_MAX else "somebody without a name"


class Change(Enum):
    """A change of the state of an out-link's connection. Each value is the reason, in words for the user, why messages
    to the peer do not arrive in that state; "": they do arrive."""

    REACHED = "it is there, but does not answer"
    SILENT = "it is there, but has said nothing for seconds"
    CONNECTED = ""
    REFUSED = "it refused our key"
    FAILED = "the handshake failed (is its key right, and does it encrypt as we do?)"
    UNREACHED = "nobody listens"
    CLOSED = "it closed the connection"


@dataclass(slots=True)
class OutLink:
    """This peer's connection to another peer, and the monitor that reports the connection's changes. `doorstep`: the
    socket at which its pipes begin, if it goes through pipes; its `address` is `NOWHERE` then. `trouble`: why it does
    not work, "": it does."""

    address: str
    tap: Tap
    monitor: Tap
    redial: Redial
    doorstep: Doorstep | None = None
    connected: bool = False
    trouble: str = _UNKNOWN

    @property
    def whither(self) -> str:
        """The other end in words, to put after `trouble`."""
        return "through a relay" if self.address == NOWHERE else f"at {self.address}"

    def close(self, linger_ms: int = 0) -> None:
        """Close the connection, and make no more attempts to connect. Messages in the socket get `linger_ms`
        milliseconds to be sent."""
        self.redial.stop()
        self.tap.close(linger_ms)
        self.monitor.close()
        if self.doorstep is not None:
            self.doorstep.close()


class Ways:
    """All connections to other peers, and the choice between them. `inbox` sends to a route, the routing id of a peer
    that called this one. `reconnected` is called with a peer when messages under way to it may be lost. `shared`: keys
    that many peers hold; `admitted`: keys that are let in, None: all. `announced`: the header of a message that is sent
    on every out-link whenever it is connected, behind those that have waited there; None: there is none."""

    def __init__(
        self,
        inbox: Tap,
        reconnected: Callable[[PeerId], None],
        shared: Set[str],
        admitted: Set[str] | None,
        announced: bytes | None = None,
    ) -> None:
        self._inbox, self._reconnected, self._shared, self._admitted = inbox, reconnected, shared, admitted
        self._announced = announced
        self._out: dict[PeerId, OutLink] = {}
        self._calls: dict[PeerId, Call] = {}
        """The latest call of each peer. Guests have a table of their own, because any number of them may call."""
        self._guests: dict[PeerId, Call] = {}
        self._undialable: dict[PeerId, str] = {}

    def __iter__(self) -> Iterator[OutLink]:
        return iter(list(self._out.values()))

    def address(self, peer: PeerId) -> str | None:
        """The address of the out-link to `peer`; None: there is no out-link."""
        link = self._out.get(peer)
        return None if link is None else link.address

    def add(self, peer: PeerId, link: OutLink) -> None:
        """Use `link` as the out-link to `peer` from now on. The one before is not closed: `hang_up_out` does that."""
        self._out[peer] = link

    def undialable(self, peer: PeerId, why: str) -> None:
        """Note that this peer can only answer on connections that `peer` makes. `why`: the reason why it cannot dial
        `peer`, or `AWAITED`."""
        self._undialable[peer] = why

    def trouble(self, peer: PeerId) -> str | None:
        """Why `peer` cannot be reached now; None: no trouble is known."""
        link = self._out.get(peer)
        if link is None:
            why = self._undialable.get(peer)
            return None if why == AWAITED and peer in self._calls else why
        return f"{link.trouble} {link.whither}" if link.trouble else None

    def post(self, peer: PeerId, header: bytes, payload: Buffer) -> bool:
        """Send a message to `peer`, without waiting: by the out-link if it is connected; else by the call of `peer`, or
        of a guest by the route in its id; else it waits at the out-link until that is connected, which this hastens.

        Returns False, and keeps nothing, when there is no way, too many messages wait at the out-link, or the call
        cannot take a message now (the out-link is not tried then): the link layer sends it again later. True does not
        mean that it has arrived. `payload` must not change until it is acknowledged, or until `hang_up`."""
        link = self._out.get(peer)
        if link is not None and link.connected:
            return link.tap.post((header, payload))
        call = self._calls.get(peer)
        route = bytes.fromhex(peer.partition("/")[2]) if is_guest(peer) else None if call is None else call.route
        if route is not None:
            # A copy: nothing takes back what waits here, and after `hang_up` the payload may change.
            failed = self._inbox.send([route, header, bytes(payload)])
            if failed != errno.EHOSTUNREACH:
                return failed == 0
            self._calls.pop(peer, None)
        if link is None:
            return False
        link.redial.hurry()
        return link.tap.post((header, payload))

    def reaches(self, peer: PeerId) -> bool:
        """Whether a message posted to `peer` now leaves at once. If not, the out-link is connected soon, if there is
        one."""
        link = self._out.get(peer)
        if is_guest(peer) or peer in self._calls or (link is not None and link.connected):
            return True
        if link is not None:
            link.redial.hurry()
        return False

    def caller(self, route: bytes, origin: Origin) -> PeerId | None:
        """The peer that has sent a message over the connection with this `route` and `origin`; None: its key is no
        longer admitted, and the connection is closed. The connection is remembered as the call of that peer; if it is a
        new one, and no out-link is connected, `reconnected` is called (not for guests)."""
        user = "" if self._admitted is None else origin.user
        if self._admitted is not None and user not in self._admitted:
            Call.of(route, origin).close()
            return None
        if user in self._shared:
            guest = f"{user}/{route.hex()}"  # the id contains the route, for an answer even if its call is forgotten
            if guest not in self._guests:
                _keep(self._guests, guest, Call.of(route, origin), _GUESTS_CALLS_MAX)
            return guest
        peer = user or claimed_name(route)
        if (call := self._calls.get(peer)) is None or call.route != route:
            _keep(self._calls, peer, Call.of(route, origin), _CALLS_MAX)
            self._changed_route(peer)
        return peer

    def whence(self, peer: PeerId) -> str:
        """The host from which `peer` has called, or else the address at which this peer dials it; "": neither is
        known."""
        if (call := self._calls.get(peer) or self._guests.get(peer)) is not None:
            return call.address
        return self.address(peer) or ""

    def dismiss(self, key: str) -> None:
        """Close all connections with the peer of `key`, or with all guests that share it."""
        for calls in (self._calls, self._guests):
            for peer in [peer for peer in calls if key_of(peer) == key]:
                calls.pop(peer).close()
        self.hang_up_out(key)

    def changed(self, peer: PeerId, link: OutLink, change: Change) -> None:
        """Handle a change of the connection of `link`, if it is still the out-link to `peer`. Connected: send what
        waits, then what is `announced`, and call `reconnected`. Failed or closed: note why, hold messages back, and
        connect again after a pause. Reached, with the handshake still to come: only note that, if no other trouble is
        known."""
        if self._out.get(peer) is not link:
            return
        if change is Change.CONNECTED:
            link.connected, link.tap.hold, link.trouble = True, False, ""
            link.redial.succeeded()
            if self._announced is not None:
                link.tap.post([self._announced, b""])
            link.tap.serve()  # messages that waited for the connection go first
            self._reconnected(peer)
            return
        if change is Change.REACHED:
            if link.trouble == _UNKNOWN:  # otherwise the outcome of the last call says more
                link.trouble = change.value
            return
        if link.redial.pausing:
            return  # a failed call is also closed: that event would only hide the reason
        link.trouble = change.value
        link.redial.failed()
        if link.connected:
            link.connected, link.tap.hold = False, True
            self._changed_route(peer)

    def _changed_route(self, peer: PeerId) -> None:
        link = self._out.get(peer)
        if peer in self._calls and (link is None or not link.connected):
            self._reconnected(peer)

    def hang_up(self, peer: PeerId, *, call: bool) -> None:
        """Close the out-link to `peer`, drop the messages that wait there, and forget the call of `peer`. `call`: also
        close the connection of that call. Without it, the call of a guest, and of a peer that cannot be dialled, is
        kept, because there may be no other way to it."""
        calls = self._guests if is_guest(peer) else self._calls
        if call and peer in calls:
            calls.pop(peer).close()
        if self._undialable.get(peer) != AWAITED:
            self._calls.pop(peer, None)
        self.hang_up_out(peer)

    def hang_up_out(self, peer: PeerId) -> None:
        """Close the out-link to `peer`, and drop the messages that wait there."""
        self._undialable.pop(peer, None)
        link = self._out.pop(peer, None)
        if link is not None:
            link.close()

    def close(self, linger_ms: int) -> None:
        """Close all out-links, and forget the calls. Messages in sockets get `linger_ms` milliseconds to be sent."""
        for link in self:
            link.close(linger_ms)
        self._out.clear()
        self._calls.clear()
        self._guests.clear()


def _keep(calls: dict[PeerId, Call], peer: PeerId, call: Call, most: int) -> None:
    """Add a call of `peer`. If there are `most` already, the oldest is forgotten."""
    if len(calls) >= most:
        del calls[next(iter(calls))]
    calls[peer] = call
