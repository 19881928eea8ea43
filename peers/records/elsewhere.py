"""Peers on other machines, as seen by the peers whose records are here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Elsewhere:
    """A peer whose records are not in this run folder, as the peers with records here saw it come and go. Times are in
    seconds since the run started."""

    peer: str
    """Its name."""
    exchanges: int
    """The number of exchanges, e.g. rounds, of which it was a member, since a peer with records here has known of it.
    In the first of them a peer that joins fetches the run's model and contributes nothing. Where exchanges are not
    rounds they are those of the peers here, which may make more or fewer than this one, and a server counts by the
    time: the results of one run's machines then differ by a few."""
    joined_s: float
    """When it joined; of a peer that was there before those with records here: when the first of these entered the
    run."""
    gone: str = ""
    """"left" or "lost"; empty: it was a member at the end."""
    gone_s: float | None = None
    """When it left or was lost; None: it was a member at the end."""
    why: str = ""
    """The reason for that."""
    role: str = ""
    """Its role in the run: 'server'; empty: it trains."""
