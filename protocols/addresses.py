"""Addresses: ``tcp://host:port``, and which of this machine's addresses others can probably reach."""

from __future__ import annotations

import socket


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``tcp://host:port``. Raises ValueError, in one line that says what is wrong."""
    scheme, separator, rest = address.partition("://")
    host, colon, port = rest.rpartition(":")
    if scheme != "tcp" or not separator or not colon or not host:
        raise ValueError(f"{address!r} is no address: write tcp://HOST:PORT, e.g. tcp://192.0.2.7:4000")
    if port == "*":
        return host, 0
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{address!r} has no usable port: it is a number from 0 to 65535")
    return host, int(port)


def local_addresses() -> list[str]:
    """This machine's addresses, the one that its default route uses first, loopback last."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a datagram socket: nothing is sent, only the route is looked up
            found.append(probe.getsockname()[0])
        except OSError:
            pass
    try:
        found += [str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    except OSError:
        pass
    return list(dict.fromkeys([*found, "127.0.0.1"]))


def advertised(bound_host: str) -> str:
    """The host to tell others, for an inbox bound to `bound_host`, which may be all interfaces."""
    return local_addresses()[0] if bound_host in ("*", "0.0.0.0", "[::]") else bound_host
