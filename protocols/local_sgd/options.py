"""The options of local SGD on one peer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings of local SGD on one peer.

    `parameters`: number of elements at the start of the vector that local steps change; None: all. `evaluate_every`:
    rounds between two evaluations; 0: this peer cannot evaluate. `gradients`: gradients are averaged in place of
    models. `fresh_optimizer`: the optimizer's state is cleared with each mean. `site_period`: local steps between two
    averages of a site; None: sites do not average. `meanwhile`: local steps behind which a round is averaged; None: no
    overlap. `overlap_share`: see `Behind`. `own_pace`: each peer takes its own number of local steps (`fednova`).
    `corrected`: local steps are corrected for the peer's own data (`scaffold`). `period_stays` returns why the period
    policy cannot use a loss and a learning rate; "": it can. `leaves_within_s`: the most seconds that a peer whose
    script ends before the run waits for the others; infinite: no limit. `grows`: parameters may be unfrozen
    (`growth`).
    """

    parameters: int | None = None
    evaluate_every: int = 0
    gradients: bool = False
    fresh_optimizer: bool = False
    site_period: int | None = None
    meanwhile: int | None = None
    overlap_share: float | None = None
    own_pace: bool = False
    corrected: bool = False
    period_stays: Callable[[float, float], str] = lambda loss, learning_rate: ""
    leaves_within_s: float = math.inf
    grows: bool = False
