"""Random faults of frames on links."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Random faults of frames, each with its probability for one frame: `loss`, `duplicate`, `reorder` (a frame is
    overtaken by later ones), `corrupt`.

    A corrupted frame fails the check of CURVE or TCP, which breaks the connection. The frames in flight on it are lost,
    and the connection is made again. Raises ValueError on a probability outside of 0 to 1.
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
