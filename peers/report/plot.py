"""The curves of a report as one plotly figure, for a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..records.run import Run
from .charts import Figure, curve_chart, time_axis, value_title
from .curves import curve
from .overview import absences
from .quantities import Quantity, quantities

_ROW_PX = 240
_GAP = 0.3
"""The share of a row between its curve and the next one."""


def plotted(run: Run, names: Sequence[str] = ()) -> Any:
    """The curves over time called `names` (empty: all that the report draws), one below the other, as a plotly figure.
    A name is that of a metric, of a column, "loss" or "members". Raises ValueError for another name, and
    ModuleNotFoundError, with one line for the user, without plotly."""
    try:
        from plotly.graph_objects import Figure as Plotted
    except ImportError:
        raise ModuleNotFoundError("a plot needs plotly: pip install 'samovar[report]'") from None
    points, missing = curve(run), absences(run)
    drawn = quantities(run, points)
    if unknown := [name for name in names if name not in drawn]:
        raise ValueError(f"there is no curve {unknown[0]!r} of this run, only {', '.join(drawn)}")
    last_s = run.exchanges[-1].time_s if run.exchanges else 0.0
    axis = time_axis(points, max(last_s, *(when for absence in missing for when in absence.lost_s), 0.0))
    wanted = [quantity for name, quantity in drawn.items() if not names or name in names]
    charts = [(chart, quantity) for quantity in wanted if (chart := curve_chart(quantity, axis, missing))]
    for chart, quantity in charts:
        chart["layout"]["yaxis"] |= value_title(*_title(quantity))
    return Plotted(_stacked([chart for chart, _ in charts]))


def _title(quantity: Quantity) -> tuple[str, ...]:
    """The lines of the title of the vertical axis of a chart that has no heading."""
    if quantity.kind != "count" or quantity.title.lower() in quantity.heading.lower():
        return (quantity.heading if quantity.kind == "count" else quantity.title,)
    return quantity.heading, quantity.title


def _stacked(charts: Sequence[Figure]) -> Figure:
    """The charts one below the other, over a common horizontal axis."""
    data: list[Figure] = []
    layout: Figure = {"shapes": [], "annotations": []}
    for number, chart in enumerate(charts):
        ending = "" if number == 0 else str(number + 1)
        x, y, own = f"x{ending}", f"y{ending}", chart["layout"]
        layout = {**own, **layout, "height": _ROW_PX * len(charts)}
        data += [trace | {"xaxis": x, "yaxis": y} for trace in chart["data"]]
        low, high = ((len(charts) - place) / len(charts) for place in (number + 1, number))
        layout[f"xaxis{ending}"] = own["xaxis"] | {"anchor": y, "matches": "x"}
        layout[f"yaxis{ending}"] = own["yaxis"] | {"anchor": x, "domain": [low + _GAP / len(charts), high]}
        for kind in ("shapes", "annotations"):
            layout[kind] = [*layout[kind], *(mark | {"xref": x, "yref": f"{y} domain"} for mark in own[kind])]
    if charts:
        layout["xaxis"].pop("matches")
    return {"data": data, "layout": layout}
