"""Peers that joined from other machines, as seen by the peers whose records are here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Elsewhere:
    """A peer without records here, as the peers with records saw it come and go. Times: seconds since the run
    started."""

    peer: str
    rounds: int
    """The number of rounds of which it was a member. In the first of them it only comes into step and contributes
    nothing."""
    joined_s: float
    gone: str = ""
    """"left" or "lost"; empty: it stayed to the end."""
    gone_s: float | None = None
    why: str = ""
