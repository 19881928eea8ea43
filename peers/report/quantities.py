"""The quantities that a report draws as curves: loss, the task's metrics, the conversation's columns, and peers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Literal

from ..records.columns import Noun, heading, shown, unit
from ..records.metrics import Scale, scale_of
from ..records.run import Run, natural
from ..records.units import first_metrics, loss_text, metric_label, metric_text, number_text, plain
from .overview import Point

MOST_COLUMNS: Final = 6
"""More columns of a conversation than these are not drawn."""
Kind = Literal["loss", "metric", "share", "count"]
_SHARE_INK, _METRIC_INK = "#3d8b6e", "#b07a3f"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Quantity:
    """The quantity of a curve. `heading`: heading of its chart; `title`: title of its axis; `ink`: colour of its curve;
    `of`: its value at a point, None: not measured; `text`: formats a value; `noun`: the word for an exchange. A
    quantity of kind `count` is drawn in steps: a point's value held since the point before. `wide`: its axis is
    logarithmic."""

    heading: str
    title: str
    ink: str
    kind: Kind
    of: Callable[[Point], float | None]
    text: Callable[[float], str]
    noun: Noun
    wide: bool = False


def is_wide(values: Iterable[float]) -> bool:
    """Whether a logarithmic axis suits these values: all of them are positive, and they span more than two powers of
    ten. Those that are not finite do not count."""
    finite = [value for value in values if math.isfinite(value)]
    return bool(finite) and min(finite) > 0 and max(finite) > 100 * min(finite)


def quantities(run: Run, points: Sequence[Point]) -> Mapping[str, Quantity]:
    """Name of a chart -> the quantity that it draws, for the report of this run: the loss, the first metrics, at most
    `MOST_COLUMNS` columns, and the number of peers ("members"). `points`: of the run's curve."""
    found = {
        "loss": Quantity(
            heading="Loss",
            title="training loss",
            ink="#3f6fb0",
            kind="loss",
            of=lambda point: point.loss,
            text=loss_text,
            noun=run.noun,
            wide=is_wide(record.loss for record in run.exchanges if not record.caught_up),
        )
    }
    scales = run.scales
    for name in first_metrics(dict.fromkeys(name for point in points for name in point.metrics)):
        found[_free(metric_label(name), found)] = _metric(run, name, scale_of(name, scales))
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


def metric_kind(scale: Scale) -> Kind:
    """The kind of a metric as a quantity: "share" for the unit %, else "metric"."""
    return "share" if scale.unit == "%" else "metric"


def evaluators(run: Run) -> list[str]:
    """The peers whose evaluations a metric's curve puts together, in natural order: where exchanges are not rounds, all
    that have evaluated; else none, as they have one model."""
    told = {record.peer for record in run.exchanges if record.metrics}
    return sorted(told, key=natural) if run.noun != "round" else []


def _metric(run: Run, name: str, scale: Scale) -> Quantity:
    kind, peers = metric_kind(scale), len(evaluators(run))
    mean = f", mean of {peers:,} peers" if peers > 1 else ""
    return Quantity(
        heading=metric_label(name),
        title=metric_title(name, scale) + mean,
        ink=_SHARE_INK if kind == "share" else _METRIC_INK,
        kind=kind,
        of=partial(_metric_of, name),
        text=partial(metric_text, scale=scale),
        noun=run.noun,
        wide=kind == "metric" and is_wide(one.metrics[name] for one in run.exchanges if name in one.metrics),
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
