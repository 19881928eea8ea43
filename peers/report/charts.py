"""The curves of a report, as plotly figures in plain dictionaries, so that plotly is not needed to make them.

A curve has at most `MOST_POINTS` points, whatever the size of the run. Text from peers is escaped, because plotly
interprets HTML tags.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final, Literal

from ..records.units import bytes_text, moment_text, plain
from .overview import Absence, Point
from .quantities import Kind, Quantity

Figure = dict[str, Any]

MOST_POINTS: Final = 1500
MOST_LOUD: Final = 12
"""If peers were lost more often than this, the marks are drawn faintly, so that they do not cover the curves."""
GRID: Final = "rgba(128,140,155,0.18)"
LOST_INK: Final = "#c2412d"
NOWHERE: Final = "rgba(0,0,0,0)"
LOG: Final[Figure] = {"type": "log", "dtick": 1, "exponentformat": "power"}
"""An axis of powers of ten. Without a format plotly would write 0.0001 as 100μ."""
_SIZES: Final = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """The horizontal axis of a chart, of time or of bytes, in a unit that suits the size of the run. `points`: of the
    run's curve, in order of time, by which `at` converts times to bytes sent; empty where the bytes are other sizes
    (`size_axis`)."""

    over: Literal["time", "bytes"]
    title: str
    unit: float
    """Seconds or bytes in one unit of the axis."""
    end: float
    """The end of the run, or the greatest size (`size_axis`), in the axis' unit."""
    points: Sequence[Point]

    def scaled(self, value: float) -> float:
        """Convert seconds or bytes to the axis' unit."""
        return _round(value / self.unit)

    def of(self, point: Point) -> float:
        """The position of a curve's point, in the axis' unit."""
        return self.scaled(point.time_s if self.over == "time" else point.bytes_sent)

    def at(self, time_s: float) -> float:
        """The position, in the axis' unit, of a time in seconds since the run started. On an axis of bytes that is the
        position of the last of `points` at or before that time; 0 if there is none."""
        if self.over == "time":
            return self.scaled(time_s)
        before = bisect_right(self.points, time_s, key=lambda point: point.time_s)
        return self.of(self.points[before - 1]) if before else 0.0


def time_axis(points: Sequence[Point], end_s: float) -> Axis:
    """An axis of the time since the run started, up to `end_s`, in seconds, minutes, hours or days."""
    unit, name = _unit(end_s, ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds")))
    return Axis(over="time", title=f"time ({name})", unit=unit, end=end_s / unit, points=points)


def bytes_axis(points: Sequence[Point], end: float) -> Axis:
    """An axis of the bytes that all peers together have sent since the run started, up to `end` bytes."""
    unit, name = _unit(end, _SIZES)
    return Axis(over="bytes", title=f"sent by all peers ({name})", unit=unit, end=end / unit, points=points)


def size_axis(end: float) -> Axis:
    """An axis of sizes up to `end` bytes. It has no points, so `at` has no meaning."""
    unit, name = _unit(end, _SIZES)
    return Axis(over="bytes", title=name, unit=unit, end=end / unit, points=())


def curve_chart(quantity: Quantity, axis: Axis, missing: Sequence[Absence]) -> Figure | None:
    """The chart of a quantity at the points of `axis`, as a plotly figure, with a dotted line where a peer was lost,
    and for a loss with the band between the peers; None when no point has a finite value."""
    stepped = quantity.kind == "count"
    points = [point for point in axis.points if quantity.of(point) is not None]
    points = points[:: math.ceil(len(points) / MOST_POINTS) or 1]
    values = [value if value is not None and math.isfinite(value) else None for value in map(quantity.of, points)]
    finite = [value for value in values if value is not None]
    if not finite:
        return None
    line = {
        "type": "scatter",
        "x": [axis.of(point) for point in points],
        "y": values,
        "mode": "lines" if len(points) > (1 if stepped else 40) else "lines+markers",
        "line": {"color": quantity.ink, "width": 2, "shape": "vh" if stepped else "linear"},
        "marker": {"size": 5},
        "customdata": [_hover(quantity, point) for point in points],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    layout = base_layout(axis)
    title = {"text": escape(quantity.title), "standoff": 12}
    layout["yaxis"] |= {"title": title, "automargin": True} | value_axis(quantity.kind, finite, wide=quantity.wide)
    layout["shapes"], layout["annotations"] = absence_marks(axis, missing)
    return {"data": [*(_band(axis, points, quantity.ink) if quantity.kind == "loss" else ()), line], "layout": layout}


def base_layout(axis: Axis) -> Figure:
    """The plotly layout common to all charts. The page's script sets the text colour, by the reader's colour scheme."""
    lines = {"gridcolor": GRID, "linecolor": GRID, "zeroline": False, "ticks": "outside", "tickcolor": GRID}
    return {
        "height": 280,
        "margin": {"l": 64, "r": 18, "t": 42, "b": 46},
        "paper_bgcolor": NOWHERE,
        "plot_bgcolor": NOWHERE,
        "font": {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 12},
        "hovermode": "closest",
        "showlegend": False,
        "xaxis": lines | {"title": {"text": axis.title, "standoff": 8}, "range": [0, (axis.end or 1) * 1.015]},
        "yaxis": dict(lines),
    }


def plain_layout(title: str) -> Figure:
    """The plotly layout of a chart whose horizontal axis, called `title`, is neither of time nor of bytes."""
    layout = base_layout(size_axis(1.0))
    layout["xaxis"] = {**layout["xaxis"], "title": {"text": title, "standoff": 8}}
    del layout["xaxis"]["range"]
    return layout


def legend() -> Figure:
    """The plotly settings of a legend in a row above a chart."""
    return {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"}


def numbers(values: Iterable[float]) -> Figure:
    """The plotly settings of an axis that shows these `values`, which have no unit: as 12k if one of them is 1000 or
    more, else with plain digits, because the format with k would write 0.2 as 200m."""
    return {"tickformat": "~s" if max(map(abs, values), default=0.0) >= 1000 else "~g"}


def absence_marks(axis: Axis, missing: Sequence[Absence], *, labels: bool = True) -> tuple[list[Figure], list[Figure]]:
    """The plotly shapes and annotations that mark lost peers: a dotted line at each such time, and with `labels` a
    label above with the peer's name. Lines close to each other share a label, which tells the number of peers."""
    places = sorted((axis.at(when), absence.peer) for absence in missing for when in absence.lost_s)
    faint = 1.0 if len(places) <= MOST_LOUD else 0.3
    dotted = {"color": LOST_INK, "width": 1, "dash": "dot"}
    lines = [
        {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": dotted, "opacity": faint}
        for x in sorted({x for x, _ in places})
    ]
    groups: list[tuple[float, list[str]]] = []
    for x, peer in places if labels else ():
        if groups and x - groups[-1][0] < axis.end / 5:
            groups[-1][1].append(peer)
        else:
            groups.append((x, [peer]))
    return lines, [_label(axis, x, peers) for x, peers in groups]


def _label(axis: Axis, x: float, peers: Sequence[str]) -> Figure:
    text = f"peer {escape(plain(peers[0], 12))} lost" if len(peers) == 1 else f"{len(peers)} peers lost"
    place = {"x": x, "yref": "paper", "y": 1, "yanchor": "bottom", "xanchor": "right" if x > axis.end / 2 else "left"}
    hover = "lost: " + ", ".join(escape(plain(peer, 30)) for peer in peers[:12]) + (" …" if len(peers) > 12 else "")
    return place | {"text": text, "hovertext": hover, "showarrow": False, "font": {"size": 11, "color": LOST_INK}}


def differ(points: Sequence[Point]) -> bool:
    """Whether the peers' losses differ at one of the points, so that a band is drawn about their mean."""
    return any(point.high - point.low > 1e-6 * abs(point.high) for point in points)


def _band(axis: Axis, points: Sequence[Point], ink: str) -> list[Figure]:
    """The band from the lowest to the highest loss among the peers, where they differ."""
    if not differ(points):
        return []
    points = [point for point in points if math.isfinite(point.loss)]
    edge: Figure = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    edge["x"] = [axis.of(point) for point in points]
    fill = {"fill": "tonexty", "fillcolor": f"rgba({', '.join(str(int(ink[i : i + 2], 16)) for i in (1, 3, 5))}, 0.16)"}
    return [edge | {"y": [p.low for p in points]}, edge | fill | {"y": [p.high for p in points]}]


def value_axis(kind: Kind, values: Sequence[float], *, wide: bool) -> Figure:
    """The plotly settings of a vertical axis that shows these finite `values`, at least one, of a quantity of that
    kind, a logarithmic one if it is `wide`."""
    low, high = min(values), max(values)
    if wide:
        return LOG
    if kind == "share":
        room = max(0.06 * (high - low), 0.01)  # plotly's own margin would exceed 100 %
        within = {"range": [max(low - room, 0), min(high + room, 1.01)]} if low >= 0 and high <= 1 else {}
        return {"tickformat": ".0%" if high - low > 0.05 else ".2%"} | within
    if kind != "count":
        return numbers(values)
    whole = {"dtick": 1} if 1 <= high <= 8 else {}
    return numbers(values) | whole | ({"range": [0, high * 1.12 or 1]} if low >= 0 else {})


def _hover(quantity: Quantity, point: Point) -> str:
    value = quantity.of(point)
    shown = "-" if value is None else quantity.text(value)
    sent = bytes_text(point.bytes_sent)
    return f"<b>{escape(shown)}</b><br>{quantity.noun} {point.version:,} · {moment_text(point.time_s)} · {sent} sent"


def _unit(end: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The largest unit in which `end` is at least 3, so that the axis has whole numbers."""
    return next((choice for choice in units if end >= 3 * choice[0]), units[-1])


def _round(value: float) -> float:
    """Seven significant digits: more than a screen shows, fewer than a double prints."""
    return float(f"{value:.7g}")
