"""The scale of a metric: which way is better, and its unit.

A task declares its metrics in this form: ``METRICS = {"perplexity": "lower", "accuracy": "higher %"}``. The text is
"lower" or "higher", and a unit may follow. Of the unit % are shares from 0 to 1, which are shown in percent. The first
metric is the headline: it is the one in narrow places, and the one that early stopping and the best model go by.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from .columns import ACCURACY

_SCALE = re.compile(r"(lower|higher)(?: (\S{1,12}))?")
_DEFAULT: Final = {ACCURACY: "higher %"}
"""The scales of a task that declares none."""


@dataclass(frozen=True, slots=True)
class Scale:
    """`better`: the better values are the lower or the higher ones; "": the task does not say. `unit`: "": none; "%":
    shares from 0 to 1."""

    better: Literal["lower", "higher", ""] = ""
    unit: str = ""

    def improves(self, value: float, best: float | None) -> bool:
        """Whether `value` is better than the best one so far, None: there is none. False where it is not known which
        way is better, and for NaN."""
        if math.isnan(value) or not self.better:
            return False
        return best is None or math.isnan(best) or (value < best if self.better == "lower" else value > best)


def scale_of(name: str, scales: Mapping[str, str]) -> Scale:
    """The scale of the metric `name` in declared `scales`. Records of before have none: there the metrics with
    "accuracy" in their names are shares."""
    text = scales.get(name)
    if text is None:
        text = _DEFAULT[ACCURACY] if ACCURACY in name else ""
    return _read(text) or Scale()


def scales_told(names: Mapping[str, float], declared: Mapping[str, str]) -> dict[str, str]:
    """Name -> scale of these metrics, for a record."""
    return {name: declared.get(name, _DEFAULT.get(name, "")) for name in names}


def fault(value: object) -> str:
    """What is wrong with the declared METRICS of a task, as the words that follow "must be"; "": nothing."""
    wanted = 'a dict of scales by name, as in {"perplexity": "lower", "accuracy": "higher %"}'
    if not isinstance(value, Mapping) or not value:
        return wanted
    names = all(isinstance(name, str) and 0 < len(name) <= 60 and name.isprintable() for name in value)
    return "" if names and all(isinstance(text, str) and _read(text) for text in value.values()) else wanted


def _read(text: str) -> Scale | None:
    found = _SCALE.fullmatch(text)
    if found is None:
        return None
    return Scale("lower" if found[1] == "lower" else "higher", found[2] or "")
