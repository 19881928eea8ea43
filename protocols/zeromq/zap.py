"""ZAP (ZeroMQ RFC 27): ZeroMQ asks this peer whether a connection is let in before it decodes any of its data."""

from __future__ import annotations

from collections.abc import Container, Sequence

from ..wire.frames import Buffer


def verdict(request: Sequence[Buffer], domain: bytes, admitted: Container[str]) -> list[bytes]:
    """The reply to ZeroMQ's `request`. It lets a connection in if the connection uses CURVE, for this `domain`, with a
    public key in `admitted`, which holds keys in hexadecimal. The key in hexadecimal becomes the connection's user id.
    Any other connection is refused with status 400."""
    version, number, asked, _, _, mechanism, *credentials = map(bytes, request)
    user = credentials[0].hex() if len(credentials) == 1 else ""
    if mechanism == b"CURVE" and asked == domain and user in admitted:
        return [version, number, b"200", b"OK", user.encode(), b""]
    return [version, number, b"400", b"unknown key", b"", b""]
