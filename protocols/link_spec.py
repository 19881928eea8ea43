"""A peer's connection to all others, as a simulation models it or a real one is shaped to it, and the bandwidth that
packets take.
"""

from __future__ import annotations

from dataclasses import dataclass

_SEGMENT_BYTES, _SEGMENT_HEADERS_BYTES = 1448, 66
"""The payload of TCP in a packet of 1500 bytes, and the headers around it: Ethernet 14, IPv4 20, TCP 20,
timestamps 12."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpec:
    """One peer's connection: bytes a second that it sends and receives, packet headers included (`down_Bps` None:
    receives as many as it sends), one-way latency and its jitter in seconds."""

    bandwidth_Bps: float
    latency_s: float
    jitter_s: float = 0.0
    down_Bps: float | None = None

    @property
    def receives_Bps(self) -> float:
        return self.bandwidth_Bps if self.down_Bps is None else self.down_Bps


def link_bytes(size: int) -> int:
    """Bytes of a link's bandwidth that `size` bytes of a TCP connection take. Acknowledgements are not counted: they
    take at most 2.3 % as much in the other direction, and far less on fast links, where one acknowledges many segments.
    """
    return size - size // -_SEGMENT_BYTES * _SEGMENT_HEADERS_BYTES


def acknowledgement_bytes(size: int) -> int:
    """Bytes that take the other direction because `size` bytes of a TCP connection arrive, at most: a packet without a
    payload for each of their packets."""
    return -(size // -_SEGMENT_BYTES) * _SEGMENT_HEADERS_BYTES
