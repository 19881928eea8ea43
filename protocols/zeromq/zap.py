"""ZAP (ZeroMQ RFC 27): how ZeroMQ asks, before it decodes a byte of a stranger's, whether it may come in."""

from __future__ import annotations

from collections.abc import Container, Sequence

from ..wire.frames import Buffer


def verdict(request: Sequence[Buffer], domain: bytes, admitted: Container[str]) -> list[bytes]:
    """The reply to a request: only a key that was `admitted`, over CURVE, gets in, and is known by it from then on."""
    version, number, asked, _, _, mechanism, *credentials = map(bytes, request)
    user = credentials[0].hex() if len(credentials) == 1 else ""
    if mechanism == b"CURVE" and asked == domain and user in admitted:
        return [version, number, b"200", b"OK", user.encode(), b""]
    return [version, number, b"400", b"unknown key", b"", b""]
