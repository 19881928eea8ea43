"""Random faults of links."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Random faults of frames, as probabilities: loss, duplication, overtaking, garbling.

    A garbled frame fails the transport's own check (CURVE's, or TCP's), which breaks the connection: the frames under
    way on it are lost, and it is made again.
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
