"""Goals: a comparison of a metric with a number, by which a run may end."""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_GOAL = re.compile(
    r"\s*([^\s<>=](?:[^<>=]{0,58}[^\s<>=])?)\s*(>=|<=|>|<)\s*([-+]?[\d.]+(?:e[-+]?\d+)?)\s*", re.ASCII | re.I
)


@dataclass(frozen=True, slots=True)
class Goal:
    """``metric`` is to be ``sign`` (one of >=, <=, > and <) ``value``."""

    metric: str
    sign: str
    value: float

    def met(self, value: float) -> bool:
        """Whether this value of the metric reaches the goal."""
        return _COMPARE[self.sign](value, self.value)

    def __str__(self) -> str:
        return f"{self.metric} {self.sign} {self.value:g}"


def parse_goal(text: str) -> Goal:
    """The goal in a text such as ``accuracy >= 0.97``. Raises ValueError."""
    found = _GOAL.fullmatch(text)
    if found is None or not math.isfinite(value := float(found[3])):
        raise ValueError(f"a goal is a metric, one of {', '.join(_COMPARE)}, and a number, got {text!r:.80}")
    return Goal(found[1], found[2], value)
