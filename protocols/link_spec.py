"""A peer's connection to all others, as it is simulated or a real one is shaped, and what packets take of it."""

from __future__ import annotations

from dataclasses import dataclass

_SEGMENT_BYTES, _SEGMENT_HEADERS_BYTES = 1448, 66
"""What TCP puts into a packet of 1500 bytes, and the headers around it: Ethernet 14, IPv4 20, TCP 20, timestamps 12."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpec:
    """One peer's connection: bytes a second it sends and receives (`down_Bps`: None for the same), packet headers and
    all, one-way latency and its jitter in seconds."""

    bandwidth_Bps: float
    latency_s: float
    jitter_s: float = 0.0
    down_Bps: float | None = None

    @property
    def receives_Bps(self) -> float:
        return self.bandwidth_Bps if self.down_Bps is None else self.down_Bps


def link_bytes(size: int) -> int:
    """Bytes that `size` bytes of a TCP connection take of a link's bandwidth. Its acknowledgements are left out: they
    take at most 2.3 % as much the other way, and far less on fast links, where one stands for many segments."""
    return size - size // -_SEGMENT_BYTES * _SEGMENT_HEADERS_BYTES
