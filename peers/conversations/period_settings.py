"""The settings of the period, the number of local steps between two averages, which local SGD and gossip have in
common. Gossip replaces the default and the help text of `period`. The parameter server has no such settings: there the
algorithm has a period."""

from __future__ import annotations

import dataclasses

from ...aggregation.periods.adacomm import AdaComm
from ...aggregation.periods.policy import PeriodPolicy
from ..settings import validators as rules
from ..settings.fields import OwnSettings, setting
from ..settings.validators import Parsed


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PeriodSettings(OwnSettings):
    """The settings of the period. `period` holds the policy that decides it. If it is "adaptive", the policy is made
    of `period_initial` and `period_block_s`; any other policy has no use for these two."""

    period: Parsed[PeriodPolicy] = setting("adaptive", rules.period(), "Local steps between two averages.", agreed=True)
    period_initial: int = setting(16, rules.whole(1, AdaComm().period_max), "The first adaptive period.", agreed=True)
    period_block_s: float = setting(2.0, rules.seconds(1e6), "Seconds between its changes, at least.", agreed=True)

    def __post_init__(self) -> None:
        OwnSettings.__post_init__(self)
        if self.period.text == "adaptive":
            adaptive = AdaComm(initial=self.period_initial, block_s=self.period_block_s)
            object.__setattr__(self, "period", Parsed(self.period.text, adaptive))
