"""Peers that joined from other machines: what is known of them without their own records."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Elsewhere:
    """A peer that has no records here, as those that have saw it come and go. Times: seconds since the run started."""

    peer: str
    rounds: int
    """Of which it was a member. It brings nothing to the first, in which it comes into step with the others."""
    joined_s: float
    gone: str = ""
    """"left" or "lost"; empty: it was there as long as they were."""
    gone_s: float | None = None
    why: str = ""
