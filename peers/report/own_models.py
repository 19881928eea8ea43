"""The charts of a run whose peers keep models of their own: each peer's loss and metrics, those of the mean model, and
the distance of the models from their mean. The last two are known in simulations alone."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from html import escape

from ..records.metrics import scale_of
from ..records.records import ExchangeRecord
from ..records.run import Run, natural
from ..records.units import (
    first_metrics,
    loss_text,
    metric_label,
    metric_text,
    moment_text,
    number_text,
    plain,
)
from .charts import MOST_POINTS, Axis, Figure, absence_marks, base_layout, value_axis, value_title
from .overview import Absence
from .quantities import Kind, is_wide, metric_kind, metric_title

MOST_LINES = 40
"""The most peers that are drawn. Of more, this many are drawn, evenly spaced in the order of their names."""
_OWN_INK, _MEAN_INK, _APART_INK = "rgba(102,120,138,0.45)", "#c05a2b", "#7a5ea8"
_Value = Callable[[ExchangeRecord], float | None]


def own_charts(run: Run, axis: Axis, missing: Sequence[Absence]) -> Mapping[str, tuple[str, Figure]]:
    """Name of a chart -> its heading and its figure, for a run whose peers keep models of their own. `axis`: of time;
    `missing`: lost peers, which are marked. Charts without any data are left out."""
    found: dict[str, tuple[str, Figure]] = {}
    loss = _chart(run, axis, missing, "training loss", _loss, loss_text, [], "loss")
    found["own loss-time"] = "Each peer's own loss", loss
    for name in first_metrics(dict.fromkeys(name for record in run.exchanges for name in record.metrics)):
        found[f"own {plain(name, 40)}-time"] = _of_metric(run, axis, missing, name)
    if run.scene and run.scene.consensus:
        points = [(point.time_s, point.distance, f"exchange {point.version}") for point in run.scene.consensus]
        text: Callable[[float], str] = number_text
        line = _line(axis, points, "distance of the models from their mean", text, _APART_INK, 2)
        layout = _layout(axis, missing, "share of the mean's norm", [distance for _, distance, _ in points], "metric")
        found["consensus-time"] = "Consensus distance", {"data": [line], "layout": layout}
    return {name: (heading, figure) for name, (heading, figure) in found.items() if figure["data"]}


def _of_metric(run: Run, axis: Axis, missing: Sequence[Absence], name: str) -> tuple[str, Figure]:
    scale, label = scale_of(name, run.scales), metric_label(name)
    mean = run.scene.consensus if run.scene else ()
    of_mean = [(one.time_s, one.metrics[name], f"exchange {one.version}") for one in mean if name in one.metrics]

    def text(value: float) -> str:
        return metric_text(value, scale)

    def of(record: ExchangeRecord) -> float | None:
        return record.metrics.get(name)

    figure = _chart(run, axis, missing, metric_title(name, scale), of, text, of_mean, metric_kind(scale))
    also = ", and the mean model's" if of_mean else ""
    return f"{label}: each peer's own{also}", figure


def _loss(record: ExchangeRecord) -> float | None:
    return None if record.caught_up else record.loss


def _chart(
    run: Run,
    axis: Axis,
    missing: Sequence[Absence],
    title: str,
    value: _Value,
    text: Callable[[float], str],
    of_mean: Sequence[tuple[float, float, str]],
    kind: Kind,
) -> Figure:
    """A thin line for each peer, and a thick one for the mean model."""
    points = defaultdict[str, list[tuple[float, float, str]]](list)
    for record in run.exchanges:
        if (found := value(record)) is not None and math.isfinite(found):
            points[record.peer].append((record.time_s, found, f"exchange {record.version}"))
    peers = sorted(points, key=natural)
    shown = [peers[number * len(peers) // MOST_LINES] for number in range(MOST_LINES)]
    drawn = peers if len(peers) <= MOST_LINES else shown
    data = [_line(axis, points[peer], f"peer {peer}", text, _OWN_INK, 1) for peer in drawn]
    if of_mean and data:
        data.append(_line(axis, of_mean, "the mean of all models", text, _MEAN_INK, 2.5))
    values = [*(value for told in points.values() for _, value, _ in told), *(value for _, value, _ in of_mean)]
    return {"data": data, "layout": _layout(axis, missing, title, values, kind)}


def _line(
    axis: Axis,
    points: Sequence[tuple[float, float, str]],
    name: str,
    text: Callable[[float], str],
    ink: str,
    width: float,
) -> Figure:
    points = points[:: math.ceil(len(points) / MOST_POINTS) or 1]
    who = escape(plain(name, 60))
    return {
        "type": "scatter",
        "x": [axis.at(time_s) for time_s, _, _ in points],
        "y": [value for _, value, _ in points],
        "mode": "lines" if len(points) > 40 else "lines+markers",
        "line": {"color": ink, "width": width},
        "marker": {"size": 3 + width},
        "customdata": [
            f"<b>{escape(text(value))}</b><br>{who} · {escape(what)} · {moment_text(time_s)}"
            for time_s, value, what in points
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _layout(axis: Axis, missing: Sequence[Absence], title: str, values: Sequence[float], kind: Kind) -> Figure:
    layout = base_layout(axis)
    layout["yaxis"] |= value_title(plain(title, 60))
    layout["yaxis"] |= value_axis(kind, values, wide=kind != "share" and is_wide(values)) if values else {}
    layout["shapes"], layout["annotations"] = absence_marks(axis, missing)
    return layout
