"""What a link's packets take of it, and what goes wrong on links."""

from __future__ import annotations

from dataclasses import dataclass

_SEGMENT_BYTES, _SEGMENT_HEADERS_BYTES = 1448, 66
"""What TCP puts into a packet of 1500 bytes, and the headers around it: Ethernet 14, IPv4 20, TCP 20, timestamps 12."""


def link_bytes(size: int) -> int:
    """Bytes that `size` bytes of a TCP connection take of a link's bandwidth. Its acknowledgements are left out: they
    take at most 2.3 % as much the other way, and far less on fast links, where one stands for many segments."""
    return size - size // -_SEGMENT_BYTES * _SEGMENT_HEADERS_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What happens to frames by chance, as probabilities: to be lost, to arrive twice, to be overtaken, to be garbled.

    A garbled frame fails the transport's own check (CURVE's, or TCP's), which breaks the connection: what was under way
    on it is lost, and it is made again.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate", "reorder", "corrupt"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a probability from 0 to 1, not {getattr(self, name)}")


QUIET = Noise()
