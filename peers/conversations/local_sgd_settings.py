"""The settings of local SGD, and the checks of which values go together."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping
from typing import ClassVar

from ...aggregation.codecs.codec import Codec
from ...aggregation.goals import Goal
from ...aggregation.outer import OuterStep
from ...aggregation.periods.fixed import Fixed
from ...aggregation.periods.policy import PERIOD_LIMIT
from ...aggregation.schedules.schedule import Schedule
from ...protocols.collectives.bound import NORM_LIMIT
from ..records.metrics import scale_of
from ..settings import validators as rules
from ..settings.common import CommonSettings
from ..settings.fields import SettingsError, setting
from ..settings.link_text import one_of
from ..settings.names import flag_of
from ..settings.validators import Parsed
from .period_settings import PeriodSettings

_ENDS = ("samples", "epochs", "stop", "stop_patience")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LocalSGDSettings(PeriodSettings):
    """The settings of local SGD over allreduce (``--protocol allreduce``). Where gradients are averaged, a period of
    "adaptive" becomes 1."""

    first: ClassVar[tuple[str, ...]] = ("period",)
    groups: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "When peers average": ("period", "period_initial", "period_block_s", "overlap", "overlap_share"),
        "When the run ends, beside --steps": _ENDS,
        "What they average": ("average", "outer", "inner", "fragments"),
        "Peers that differ": ("pace", "drift", "site_period"),
        "Connections": ("schedule", "codec"),
        "Faults, in seconds": ("norm_limit",),
    }

    schedule: Parsed[Schedule | None] = setting(
        "auto", rules.schedule(), "Allreduce schedule; see samovar plan.", agreed=True
    )
    codec: Parsed[Codec | None] = setting("none", rules.codec(), "Encoding of what is sent, e.g. int8.", agreed=True)
    outer: Parsed[OuterStep] = setting("plain", rules.outer(), "Outer step, as nesterov.", agreed=True)
    fragments: int = setting(1, rules.whole(1, 1000), "Average one of N parts a round.", agreed=True)
    inner: str = setting(
        "kept", rules.one_of("kept", "averaged", "reset"), "Optimizer state at an average.", agreed=True
    )
    overlap: bool = setting(False, rules.flag(), "Take local steps while the last ones are averaged.", agreed=True)
    overlap_share: float | None = setting(
        None,
        rules.share(),
        "With --overlap: the share of a peer's own model.",
        agreed=True,
        former="mixing",
    )
    average: str = setting(
        "model", rules.one_of("model", "gradients"), "Gradients: for scripts only.", agreed=True, verbs="train"
    )
    pace: str = setting("equal", rules.one_of("equal", "own"), "Local steps: alike, or by speed.", agreed=True)
    site_period: int | None = setting(
        None,
        rules.whole(1, PERIOD_LIMIT),
        "Local steps between two averages within a site.",
        agreed=True,
    )
    drift: str = setting("left", rules.one_of("left", "corrected"), "SCAFFOLD's correction, or none.", agreed=True)
    norm_limit: float = setting(
        NORM_LIMIT,
        rules.times(10, 1e30),
        "Largest growth of a model's norm.",
        agreed=True,
    )

    samples: int | None = setting(None, rules.whole(1, 10**15), "End after N samples of all peers.", agreed=True)
    epochs: float | None = setting(
        None, rules.passes(), "End after E passes of a peer over its data, as 2.5.", agreed=True
    )
    stop: Parsed[Goal] | None = setting(None, rules.goal(), "End at a metric, as in 'accuracy >= 0.97'.", agreed=True)
    stop_patience: int | None = setting(
        None, rules.whole(1, 10**9, "ROUNDS"), "End after ROUNDS without a better metric.", agreed=True
    )

    def __post_init__(self) -> None:
        PeriodSettings.__post_init__(self)
        if self.average == "gradients" and self.period.text == "adaptive":
            object.__setattr__(self, "period", Parsed("1", Fixed(1)))

    def check(self, common: CommonSettings) -> None:
        watched = self.period.value.watches
        if (self.outer.text, self.fragments) != ("plain", 1) and watched:
            why = "looks at means of whole models: leave out --outer, --fragments"
            raise SettingsError(f"{self.period.text} {why}", "period")
        if self.drift == "corrected":
            whole = {"codec": "none", "outer": "plain", "fragments": 1, "overlap": False}
            self._as_usual(whole, "does not go with corrected drift, which is seen in the mean of whole models")
        if self.pace == "own" and (watched or self.fragments > 1):
            other = f"period {self.period.text}" if watched else "fragments"
            raise SettingsError(f"own lets peers go differently far, and {other} compares them: leave out one", "pace")
        if self.inner == "averaged":
            whole = {"codec": "none", "fragments": 1}
            self._as_usual(whole, "does not go with an averaged inner state, whose squares must come whole")
        if self.average == "gradients":
            self._check_synchronous()
        if self.site_period is not None:
            self._check_hierarchical(self.site_period, common.site)
        if self.overlap:
            self._check_overlapped()
        elif self.overlap_share is not None:
            raise SettingsError("is for --overlap, where local steps go on before a mean is there", "overlap_share")
        codec = self.codec.value
        if self.fragments > 1 and codec is not None and codec.family == "sketch":
            why = f"cannot be with {self.codec.text}, which needs the whole model: leave out one"
            raise SettingsError(why, "fragments")

    def scripts_only(self) -> str:
        why = "a task's peers average its model; gradients are for a script's own loop"
        return why if self.brings_gradients() else ""

    def tasks_only(self) -> str:
        given = next((name for name in _ENDS if getattr(self, name) is not None), None)
        return "" if given is None else f"leave out {flag_of(given)}: a script ends where its own loop does"

    def has_an_end(self) -> bool:
        return self.samples is not None or self.epochs is not None

    def check_metrics(self, names: Collection[str], headline: str, scales: Mapping[str, str]) -> None:
        if self.stop is not None and (metric := self.stop.value.metric) not in names:
            raise SettingsError(f"names the metric {metric!r}; evaluate() returns {', '.join(names)}", "stop", "--stop")
        if self.stop is not None and (fault := _fault_of(self.stop.value, scales)):
            raise SettingsError(fault, "stop", "--stop")
        if self.stop_patience is not None and headline not in names:
            lacks = f"needs the metric {headline!r}; evaluate() returns {', '.join(names)}: name the first in METRICS"
            raise SettingsError(lacks, "stop_patience", "--stop-patience")

    def goal(self) -> Goal | None:
        return None if self.stop is None else self.stop.value

    def brings_gradients(self) -> bool:
        return self.average == "gradients"

    def optimizer_state(self) -> str:
        return self.inner

    def sites_need(self) -> str:
        return "--site-period" if self.site_period is None else ""

    def idle_here(self, common: CommonSettings) -> str:
        if common.site is None:
            return ""
        if self.site_period is None:
            return "--site does nothing without --site-period"
        sites = Counter(one_of(common.site, index) for index in range(common.peers))
        if len(sites) == 1:
            (site,) = sites
            return f'all {common.peers} peers are at one site, "{site}": each average of a site is one of all peers'
        alone = max(sites.values()) == 1
        return "no two peers are at one site: --site-period does nothing" if alone else ""

    def _as_usual(self, usual: Mapping[str, object], why: str) -> None:
        values = self.values()
        for name, value in usual.items():
            if values[name] != value:
                raise SettingsError(f"{why}, got {values[name]}; leave it out", name)

    def _check_synchronous(self) -> None:
        """Refuse settings that do not go with averaging gradients. Gradients are averaged in every step and without
        encoding."""
        if self.period.text != "1":
            raise SettingsError(f"must be 1 when gradients are averaged, got {self.period.text}", "period")
        if self.codec.text != "none":
            why = f"cannot carry gradients, only changes of models, got {self.codec.text}"
            raise SettingsError(why, "codec")
        usual = {"outer": "plain", "fragments": 1, "inner": "kept", "overlap": False, "pace": "equal", "drift": "left",
                 "site_period": None}  # fmt: skip
        self._as_usual(usual, "is for averages of models, not of gradients")

    def _check_hierarchical(self, site_period: int, site: str | None) -> None:
        """Refuse settings that do not go with averages within sites. Such averages need peers of a site to take equal
        numbers of steps and to average whole models."""
        policy = self.period.value
        if site is None:
            raise SettingsError("needs to know who is where: say so with --site or in [[groups]]", "site_period")
        if isinstance(policy, Fixed) and site_period >= policy.steps:
            raise SettingsError(f"must be below the period, {policy.steps}, got {site_period}", "site_period")
        refused = {
            f"period {self.period.text}, which looks at how far single peers go": policy.watches,
            "fragments": self.fragments > 1,
            "overlap": self.overlap,
            "pace own": self.pace == "own",
            "drift corrected, whose mean is that of all": self.drift == "corrected",
        }
        for what, is_wished in refused.items():
            if is_wished:
                raise SettingsError(f"cannot be with {what}: leave out one of the two", "site_period")

    def _check_overlapped(self) -> None:
        """Refuse settings that do not go with overlap. When a round ends, the local steps of the next one are under
        way, so their number must be known before."""
        if not isinstance(self.period.value, Fixed):
            why = f"must be a number of local steps with --overlap, got {self.period.text}; as in --period 16"
            raise SettingsError(why, "period")
        if self.inner != "kept":
            why = f"cannot be {self.inner} with --overlap: a round ends amid the next local steps"
            raise SettingsError(why, "inner")
        if self.pace == "own":
            raise SettingsError("cannot be own with --overlap: how many steps are next is agreed on too late", "pace")


def _fault_of(goal: Goal, scales: Mapping[str, str]) -> str:
    """The reason why a metric of these declared scales cannot reach the goal as it was meant; "": there is none."""
    name = goal.metric
    if scale_of(name, scales).unit != "%":
        return f"is in percent, and {name!r} is not a share: METRICS gives it no unit %" if goal.percent else ""
    if goal.percent or abs(goal.value) <= 1:
        return ""
    return f"must be a share from 0 to 1, or in percent, as in '{goal.told(False)}%': {name!r} is a share, got {goal}"
