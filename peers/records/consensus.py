"""How close the models of all peers were to each other, in a run whose peers keep models of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from .json_lines import FloatOrNaN


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Consensus:
    """The models of all peers at one time."""

    time_s: float
    """Seconds since the run started."""
    version: int
    """Number of the exchange that at least half of them had made: the median of their last ones."""
    peers: int
    """Number of models."""
    distance: FloatOrNaN
    """The root of their mean squared distance from their mean, as a share of the norm of the mean."""
    metrics: Mapping[str, FloatOrNaN] = dataclasses.field(default_factory=dict)
    """Metrics of the mean of all models, by name; empty: it was not evaluated then."""
