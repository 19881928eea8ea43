"""The quantities that a report draws as curves: loss, the task's metrics, the conversation's columns, and peers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Literal

from ..records.columns import Noun, heading, shown, unit
from ..records.metrics import Scale, scale_of
from ..records.run import Run
from ..records.units import capital, first_metrics, loss_text, metric_label, metric_text, number_text, plain
from .overview import Point

MOST_COLUMNS: Final = 6
"""More columns of a conversation than these are not drawn."""
_SHARE_INK, _METRIC_INK = "#3d8b6e", "#b07a3f"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Quantity:
    """The quantity of a curve. `heading`: heading of its chart; `title`: title of its axis; `ink`: colour of its curve;
    `of`: its value at a point, None: not measured; `text`: formats a value; `noun`: the word for an exchange. A
    quantity of kind `count` is drawn in steps: a point's value held since the point before."""

    heading: str
    title: str
    ink: str
    kind: Literal["loss", "metric", "share", "count"]
    of: Callable[[Point], float | None]
    text: Callable[[float], str]
    noun: Noun


def quantities(run: Run, points: Sequence[Point]) -> Mapping[str, Quantity]:
    """Name of a chart -> the quantity that it draws, for the report of this run."""
    found = {
        "loss": Quantity(
            heading="Loss",
            title="training loss",
            ink="#3f6fb0",
            kind="loss",
            of=lambda point: point.loss,
            text=loss_text,
            noun=run.noun,
        )
    }
    scales = run.scales
    for name in first_metrics(dict.fromkeys(name for point in points for name in point.metrics)):
        found[_free(metric_label(name), found)] = _metric(name, scale_of(name, scales), run.noun)
    for name, title in [*shown(run.columns).items()][:MOST_COLUMNS]:
        found[_free(plain(name, 40), found)] = _column(name, plain(title, 80), run.noun)
    found[_free("members", found)] = Quantity(
        heading=f"Peers in {'a round' if run.noun == 'round' else 'an exchange'}",
        title="peers",
        ink="#66788a",
        kind="count",
        of=lambda point: point.members,
        text="{:g} peers".format,
        noun=run.noun,
    )
    return found


def metric_title(name: str, scale: Scale) -> str:
    """The title of a metric's axis: 'speed (words/s)'. The numbers of a share have the unit % themselves."""
    unit_ = f" ({plain(scale.unit, 12)})" if scale.unit and scale.unit != "%" else ""
    return metric_label(name) + unit_


def _metric(name: str, scale: Scale, noun: Noun) -> Quantity:
    share = scale.unit == "%"
    return Quantity(
        heading=capital(metric_label(name)),
        title=metric_title(name, scale),
        ink=_SHARE_INK if share else _METRIC_INK,
        kind="share" if share else "metric",
        of=partial(_metric_of, name),
        text=partial(metric_text, scale=scale),
        noun=noun,
    )


def _column(name: str, title: str, noun: Noun) -> Quantity:
    return Quantity(
        heading=heading(title),
        title=unit(title) or heading(title),
        ink="#7a5ea8",
        kind="count",
        of=partial(_detail_of, name),
        text=partial(_with_unit, unit(title)),
        noun=noun,
    )


def _metric_of(name: str, point: Point) -> float | None:
    return point.metrics.get(name)


def _detail_of(name: str, point: Point) -> float | None:
    return point.details.get(name)


def _with_unit(unit_: str, value: float) -> str:
    return f"{number_text(value)} {unit_}".rstrip()


def _free(name: str, taken: Mapping[str, Quantity]) -> str:
    """`name`, followed by as many marks (') as make it differ from the names of all other charts."""
    while name in taken:
        name += "'"
    return name
