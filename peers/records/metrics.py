"""The scale of a metric: whether lower or higher values are better, and its unit.

A task declares its metrics in this form: ``METRICS = {"perplexity": "lower", "accuracy": "higher %"}``. The text is
"lower" or "higher", and a unit may follow. The unit % means shares from 0 to 1, which are shown in percent. The first
metric is the headline: it is shown where there is room for one, and early stopping and the choice of the best model go
by it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import Final, Literal, SupportsFloat

from .columns import ACCURACY

_SCALE = re.compile(r"(lower|higher)(?: (\S{1,12}))?")
Measured = SupportsFloat | Mapping[str, SupportsFloat]
"""The result of an evaluation: a number, or numbers by name. A tensor of one element is a number."""
_EXACT: Final = 2**53
"""The largest magnitude of an integer that a float holds exactly."""
_DEFAULT: Final = {ACCURACY: "higher %"}
"""The scales of a task that declares none."""


@dataclass(frozen=True, slots=True)
class Scale:
    """`better`: which values of the metric are better, the lower or the higher ones; "": the task does not say. `unit`:
    "": none; "%": shares from 0 to 1."""

    better: Literal["lower", "higher", ""] = ""
    unit: str = ""

    def improves(self, value: float, best: float | None) -> bool:
        """Whether `value` is better than `best`, the best one so far; None or NaN: there is none, and any number is
        better. False for a `value` of NaN, and where the task does not say which values are better."""
        if math.isnan(value) or not self.better:
            return False
        return best is None or math.isnan(best) or (value < best if self.better == "lower" else value > best)


def scale_of(name: str, scales: Mapping[str, str]) -> Scale:
    """The scale of the metric `name`, from the declared `scales` by name. Records of earlier versions declare none;
    there each metric with "accuracy" in its name counts as a share, and any other has neither a unit nor a better
    side."""
    text = scales.get(name)
    if text is None:
        text = _DEFAULT[ACCURACY] if ACCURACY in name else ""
    return _read(text) or Scale()


def scales_told(names: Mapping[str, float], declared: Mapping[str, str]) -> dict[str, str]:
    """Name -> declared scale, for a record of the metrics with these `names`; their values do not matter. Without a
    declaration, the metric `accuracy` has "higher %", and any other ""."""
    return {name: declared.get(name, _DEFAULT.get(name, "")) for name in names}


def fault(value: object) -> str:
    """The fault in the METRICS that a task declares, as the words that follow "must be"; "": there is none."""
    wanted = (
        'a dict of scales by name, as in {"perplexity": "lower", "accuracy": "higher %"}, each lower or higher'
        " and perhaps a unit, one word"
    )
    if not isinstance(value, Mapping) or not value:
        return wanted
    names = all(isinstance(name, str) and 0 < len(name) <= 60 and name.isprintable() for name in value)
    return "" if names and all(isinstance(text, str) and _read(text) for text in value.values()) else wanted


def numbers_of(measured: Measured, declared: Mapping[str, str] | None, said: str) -> dict[str, float]:
    """The metrics in `measured`, by name, in the order in which they are `declared`, or as they are given where none
    are. A plain number is the only declared metric; where none is declared, the accuracy. Raises ValueError for other
    names than the declared ones, for values that are no numbers, and for none at all. `said`: the words with which its
    text begins, e.g. "evaluate() returned"."""
    known = ", ".join(declared or ())
    if isinstance(measured, Mapping):
        told = measured
    elif declared is not None and len(declared) > 1:
        raise ValueError(f"{said} one number, and the declared metrics are {known}: give a dict")
    else:
        told = {next(iter(declared or _DEFAULT)): measured}
    names = list(told if declared is None else declared)
    if not told or {*names} != {*told} or not all(isinstance(name, str) for name in told):
        due = f"the declared metrics are {known}" if declared else "a number, or a dict of numbers by name, is due"
        raise ValueError(f"{said} {', '.join(map(str, told)) or 'nothing'}; {due}")
    try:
        return {name: _number(told[name]) for name in names}
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of several elements
        raise ValueError(f"{said} {measured!r:.60}; a number, or a dict of numbers by name, is due") from None


def _number(value: SupportsFloat) -> float:
    """The number; an int, which is shown without decimals, where the task gives an integer that a float holds exactly,
    and no bool."""
    try:
        whole = index(value)  # type: ignore[arg-type]  # an int, or an integer of NumPy or in a tensor
    except TypeError:
        return float(value)
    return float(value) if isinstance(value, bool) or abs(whole) > _EXACT else whole


def _read(text: str) -> Scale | None:
    found = _SCALE.fullmatch(text)
    if found is None:
        return None
    return Scale("lower" if found[1] == "lower" else "higher", found[2] or "")
