"""The timing of SWIM: how often a peer probes, and how long it waits and suspects."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The timing of SWIM, equal on all peers. `period_s`: seconds between two probes that a peer sends. `direct`: share
    of a period after which a probe without an answer is repeated through `helpers` other peers. `suspicion`: periods
    from the first failed probe of a peer until it is declared dead. `extra`: the most probes of suspects in a period,
    beside the regular one. `eager`: to how many peers fresh words are pushed at once; 0: words travel on probes and
    their answers alone. `dial_limit`: the most new connections a minute, where a peer has links to a few others
    only."""

    period_s: float
    direct: float = 1 / 3
    helpers: int = 3
    suspicion: int = 3
    extra: int = 4
    eager: int = 3
    dial_limit: int = 60
