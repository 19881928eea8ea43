"""Ways to peers: an out-link to whoever can be called, and the peer's own connection to us for whoever cannot."""

from __future__ import annotations

import errno
import secrets
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from enum import Enum

from ..transport import PeerId, is_guest, key_of
from ..wire.frames import Buffer
from .call import Call
from .reader import Origin, Tap
from .redial import Redial

_CALLS_MAX, _GUESTS_CALLS_MAX = 1 << 15, 1 << 10
_NAME_MAX = 64
_UNKNOWN = "no answer"


def new_route(name: PeerId) -> bytes:
    """How an insecure peer says who it is: a route never used before, as a dead connection may still hold an old one
    (Z8)."""
    return f"{name}/{secrets.token_hex(4)}".encode()


def claimed_name(route: bytes) -> PeerId:
    name = route.partition(b"/")[0].decode("ascii", "replace")
    return name if name.isprintable() and 0 < len(name) <= _NAME_MAX else "somebody without a name"


class Change(Enum):
    """What became of an out-link's connection; the value says why it does not work, for its user."""

    REACHED = "it is there, but does not answer"
    SILENT = "it is there, but has said nothing for seconds"
    CONNECTED = ""
    REFUSED = "it refused our key"
    FAILED = "the handshake failed (is its key right, and does it encrypt as we do?)"
    UNREACHED = "nobody listens"
    CLOSED = "it closed the connection"


@dataclass(slots=True)
class OutLink:
    """Our connection to a peer, and the tap that tells of its changes."""

    address: str
    tap: Tap
    monitor: Tap
    redial: Redial
    connected: bool = False
    trouble: str = _UNKNOWN

    def close(self, linger_ms: int = 0) -> None:
        self.redial.stop()
        self.tap.close(linger_ms)
        self.monitor.close()


class Ways:
    """`inbox` sends to a route, which is how a peer that called us is named there; `reconnected` is told when what was
    under way to a peer may be lost; `shared`: keys that many have; `admitted`: keys that are let in, None: all are."""

    def __init__(
        self, inbox: Tap, reconnected: Callable[[PeerId], None], shared: Set[str], admitted: Set[str] | None
    ) -> None:
        self._inbox, self._reconnected, self._shared, self._admitted = inbox, reconnected, shared, admitted
        self._out: dict[PeerId, OutLink] = {}
        self._calls: dict[PeerId, Call] = {}
        """The latest of each peer, and those of guests apart, which may come in any number."""
        self._guests: dict[PeerId, Call] = {}
        self._undialable: dict[PeerId, str] = {}

    def __iter__(self) -> Iterator[OutLink]:
        return iter(list(self._out.values()))

    def address(self, peer: PeerId) -> str | None:
        """Where our out-link to `peer` goes."""
        link = self._out.get(peer)
        return None if link is None else link.address

    def add(self, peer: PeerId, link: OutLink) -> None:
        self._out[peer] = link

    def undialable(self, peer: PeerId, why: str) -> None:
        """There is no calling `peer`: it can only be answered."""
        self._undialable[peer] = why

    def trouble(self, peer: PeerId) -> str | None:
        """Why `peer` cannot be called, if it cannot."""
        link = self._out.get(peer)
        if link is None:
            return self._undialable.get(peer)
        return f"{link.trouble} at {link.address}" if link.trouble else None

    def post(self, peer: PeerId, header: bytes, payload: Buffer) -> bool:
        """By the out-link if it is connected, else by the peer's own connection if there is one, else as soon as the
        out-link is connected. False when none of these can be: then the link above will miss it and post it again."""
        link, call = self._out.get(peer), self._calls.get(peer)
        route = bytes.fromhex(peer.partition("/")[2]) if is_guest(peer) else None if call is None else call.route
        if route is not None and (link is None or not link.connected):
            failed = self._inbox.send([route, header, payload])
            if failed != errno.EHOSTUNREACH:
                return failed == 0
            self._calls.pop(peer, None)
        if link is None:
            return False
        if not link.connected:
            link.redial.hurry()
        return link.tap.post([header, payload])

    def caller(self, route: bytes, origin: Origin) -> PeerId | None:
        """Who sent what came in on `route`; None: somebody who was let in and is no more."""
        user = "" if self._admitted is None else origin.user
        if self._admitted is not None and user not in self._admitted:
            Call.of(route, origin).close()
            return None
        if user in self._shared:
            guest = f"{user}/{route.hex()}"  # which says how to answer, also when its call is forgotten
            if guest not in self._guests:
                _keep(self._guests, guest, Call.of(route, origin), _GUESTS_CALLS_MAX)
            return guest
        peer = user or claimed_name(route)
        if (call := self._calls.get(peer)) is None or call.route != route:
            _keep(self._calls, peer, Call.of(route, origin), _CALLS_MAX)
            self._changed_route(peer)
        return peer

    def whence(self, peer: PeerId) -> str:
        """The host that `peer` called from, or else where we have called it; "": neither is known."""
        if (call := self._calls.get(peer) or self._guests.get(peer)) is not None:
            return call.address
        return self.address(peer) or ""

    def dismiss(self, key: str) -> None:
        """End all connections with the peer of that key, or with all who share it."""
        for calls in (self._calls, self._guests):
            for peer in [peer for peer in calls if key_of(peer) == key]:
                calls.pop(peer).close()
        self.hang_up_out(key)

    def changed(self, peer: PeerId, link: OutLink, change: Change) -> None:
        """The connection of `link`, which goes to `peer`, has changed."""
        if self._out.get(peer) is not link:
            return
        if change is Change.CONNECTED:
            link.connected, link.trouble = True, ""
            link.redial.succeeded()
            link.tap.serve()  # what waited for the connection goes first
            self._reconnected(peer)
            return
        if change is Change.REACHED:
            if link.trouble == _UNKNOWN:  # else the last call's end says more
                link.trouble = change.value
            return
        if link.redial.pausing:
            return  # a call that has failed is also closed, which would only hide the reason
        link.trouble = change.value
        link.redial.failed()
        if link.connected:
            link.connected = False
            self._changed_route(peer)

    def _changed_route(self, peer: PeerId) -> None:
        link = self._out.get(peer)
        if peer in self._calls and (link is None or not link.connected):
            self._reconnected(peer)

    def hang_up(self, peer: PeerId, *, call: bool) -> None:
        """Forget every way to `peer` and what waits there. `call`: and close the connection by which it calls."""
        calls = self._guests if is_guest(peer) else self._calls
        if call and peer in calls:
            calls.pop(peer).close()
        self._calls.pop(peer, None)
        self.hang_up_out(peer)

    def hang_up_out(self, peer: PeerId) -> None:
        """Forget our out-link to `peer` and what waits there."""
        self._undialable.pop(peer, None)
        link = self._out.pop(peer, None)
        if link is not None:
            link.close()

    def close(self, linger_ms: int) -> None:
        for link in self:
            link.close(linger_ms)
        self._out.clear()
        self._calls.clear()
        self._guests.clear()


def _keep(calls: dict[PeerId, Call], peer: PeerId, call: Call, most: int) -> None:
    """Of so many, the oldest is forgotten."""
    if len(calls) >= most:
        del calls[next(iter(calls))]
    calls[peer] = call
