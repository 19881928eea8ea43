"""Addresses of peers, ``tcp://host:port``: their parts, which of this machine's addresses other machines can probably
reach, and the word `NOWHERE`, which stands for the address of a peer that cannot be dialled."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from typing import Any

NOWHERE = "none"
"""Stands for the address of a peer that cannot be dialled. Such a peer dials the others, and they answer on its
connections."""
_ALL_V4, _ALL_V6 = "0.0.0.0", "[::]"  # noqa: S104  # recognised, never chosen


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``tcp://host:port``, the host as it is written, an IPv6 address in its brackets; the port ``*``
    gives 0. Raises ValueError with the reason in one line."""
    scheme, separator, rest = address.partition("://")
    host, colon, port = rest.rpartition(":")
    if scheme != "tcp" or not separator or not colon or not host:
        raise ValueError(f"{address!r} is no address: write tcp://HOST:PORT, e.g. tcp://192.0.2.7:4000")
    if port == "*":
        return host, 0
    if not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise ValueError(f"{address!r} has no usable port: it is a number from 0 to 65535")
    return host, int(port)


def dialable(address: str) -> str:
    """Returns `address` unchanged. Raises ValueError if it does not name one host and one port to connect to (``*``,
    0.0.0.0, [::] and port 0 do not), or its host has a character that no host name or IP address has. The host is not
    looked up."""
    host, port = split_address(address)
    if port == 0 or host in ("*", _ALL_V4, _ALL_V6):
        raise ValueError(f"{address!r} names no one machine and port to call")
    if not host.isascii() or not set(host) <= set("[]:%._-") | {c for c in host if c.isalnum()}:
        raise ValueError(f"{address!r} has no usable host")
    return address


def own_way(bound: str) -> str:
    """The address at which this machine itself reaches a socket that is bound to `bound`, the address as the socket
    reports it: if that names all interfaces (0.0.0.0, [::]), the loopback address with the same port, else `bound`
    itself. Raises ValueError as `split_address` does."""
    host, port = split_address(bound)
    return f"tcp://{ {_ALL_V4: '127.0.0.1', _ALL_V6: '[::1]'}.get(host, host) }:{port}"


def host_of(address: str) -> str:
    """The host of `address`, which is an address, or a host alone, as `Transport.whence` may return it: without the
    brackets of an IPv6 address. An IPv4 address that is written as IPv6 (::ffff:192.0.2.7) becomes plain IPv4."""
    host = address.partition("://")[2].rpartition(":")[0] if "://" in address else address
    return host.strip("[]").removeprefix("::ffff:")


class Elsewhere:
    """Limits how often other peers can have this peer dial hosts of their choice, so that it cannot be used to flood a
    third machine. A peer's request to be dialled at the host that it sends from is always allowed. Requests to dial
    other hosts are allowed only so many times in any `within_s` seconds, for all peers together."""

    def __init__(self, most: int, within_s: float) -> None:
        """`most`: how many dials are remembered, so the largest `most` that is passed to `allows`. `within_s`: the
        window, in seconds."""
        self._within_s = within_s
        self._called = deque[tuple[float, str, str]](maxlen=most)
        """The last dials of other hosts: time on the loop's clock, the peer that is dialled, and the address."""

    def allows(self, whence: str, address: str, most: int, whom: str = "") -> bool:
        """Whether this peer may dial `address`, on request of a peer that sends from `whence` (`Transport.whence`).
        True for the host of `whence`, and for a dial that is counted in the window already: the same `whom`, the peer
        that is dialled, at the same address ("": not known, and each dial is counted). Else True, and counted, if fewer
        than `most` dials are counted in the window. To be called on the event loop."""
        now = asyncio.get_running_loop().time()
        recent = [call for call in self._called if now < call[0] + self._within_s]
        again = whom != "" and any(call[1:] == (whom, address) for call in recent)
        if host_of(address) == host_of(whence) or again:
            return True
        if len(recent) >= most:
            return False
        self._called.append((now, whom, address))
        return True


def local_addresses() -> list[str]:
    """IPv4 addresses of this machine, as texts, each once: that of its default route first, if it has one, then those
    for which its host name stands; 127.0.0.1 is always among them. Addresses of other interfaces are not found."""
    found: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, contextlib.suppress(OSError):
        udp.connect(("192.0.2.1", 9))  # a datagram socket: nothing is sent, only the route is looked up
        found.append(str(udp.getsockname()[0]))
    with contextlib.suppress(OSError):
        found += [str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    return list(dict.fromkeys([*found, "127.0.0.1"]))


def is_here(host: str) -> bool:
    """Whether `host`, a name or an IP address, is this machine: a socket can be bound to an address of it. A name is
    looked up, which may block; False for a name that is not known."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    return any(_is_own(family, place) for family, _, _, _, place in found)


def _is_own(family: int, place: tuple[Any, ...]) -> bool:
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as udp:
        udp.bind(place)
        return True
    return False


def advertised(bound_host: str) -> str:
    """The host to tell other peers for a socket bound to `bound_host`: the first of `local_addresses` where
    `bound_host` means all interfaces (``*``, 0.0.0.0, [::]), else `bound_host`."""
    return local_addresses()[0] if bound_host in ("*", _ALL_V4, _ALL_V6) else bound_host
