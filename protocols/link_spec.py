"""The bandwidth and latency of a peer's connection, which a simulation models and to which a real one can be slowed
down; and the bandwidth that packets take."""

from __future__ import annotations

from dataclasses import dataclass

_SEGMENT_BYTES, _SEGMENT_HEADERS_BYTES = 1448, 66
"""The payload of TCP in a packet of 1500 bytes, and the headers around it: Ethernet 14, IPv4 20, TCP 20,
timestamps 12."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpec:
    """One peer's connection. `bandwidth_Bps`: bytes a second that it sends, packet headers included; `down_Bps`: that
    it receives, None: the same; `latency_s`: one way; `jitter_s`: each message takes up to this much longer, drawn
    uniformly from 0 on."""

    bandwidth_Bps: float
    latency_s: float
    jitter_s: float = 0.0
    down_Bps: float | None = None

    @property
    def receives_Bps(self) -> float:
        """Bytes a second that the connection receives."""
        return self.bandwidth_Bps if self.down_Bps is None else self.down_Bps


def link_bytes(size: int) -> int:
    """Bytes of a link's bandwidth that `size` bytes of a TCP connection take: these, and 66 bytes of headers for each
    packet of up to 1448 of them. Acknowledgements are not counted: they take at most 2.3 % as much in the other
    direction, and far less on fast links, where one acknowledges many segments.
    """
    return size - size // -_SEGMENT_BYTES * _SEGMENT_HEADERS_BYTES


def acknowledgement_bytes(size: int) -> int:
    """The most bytes that the receiver's acknowledgements take in the other direction when `size` bytes of a TCP
    connection arrive: a packet without a payload, 66 bytes, for each packet of up to 1448."""
    return -(size // -_SEGMENT_BYTES) * _SEGMENT_HEADERS_BYTES
