"""Goals: a comparison of a metric with a number, by which a run may end."""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_NAME_LETTERS_MAX = 60


@dataclass(frozen=True, slots=True)
class Goal:
    """The condition that the value of ``metric`` is ``sign`` (one of >=, <=, > and <) ``value``. ``percent``: it was
    written in percent; the value is the share, 0.97 for 97%."""

    metric: str
    sign: str
    value: float
    percent: bool = False

    def met(self, value: float) -> bool:
        """Whether this value of the metric reaches the goal."""
        return _COMPARE[self.sign](value, self.value)

    def __str__(self) -> str:
        return self.told(self.percent)

    def told(self, share: bool) -> str:
        """The goal as text, as in ``accuracy >= 0.97``. ``share``: write its number in percent instead, as ``97%``."""
        number = f"{100 * self.value:.10g}%" if share else f"{self.value:g}"
        return f"{self.metric} {self.sign} {number}"


def parse_goal(text: str) -> Goal:
    """The goal in a text such as ``accuracy >= 0.97``, ``accuracy ≥ 0.97`` or ``accuracy >= 97%``. Raises ValueError on
    any other text, and on a metric's name of more than 60 letters."""
    text = text.replace("≥", ">=").replace("≤", "<=")
    sign = next((sign for sign in _COMPARE if sign in text), "")
    metric, _, value = text.rstrip().partition(sign) if sign else (text, "", "")
    percent = value.endswith("%")
    metric, number = metric.strip(), float(value.strip().removesuffix("%") or math.nan)
    if not (0 < len(metric) <= _NAME_LETTERS_MAX and metric.isprintable() and math.isfinite(number)):
        raise ValueError(f"a goal is a metric, one of {', '.join(_COMPARE)}, and a number, got {text!r:.80}")
    return Goal(metric, sign, number / 100 if percent else number, percent)
