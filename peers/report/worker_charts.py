"""The charts of the workers of a parameter server: their clocks over time, and who waited for whom.

Each worker's times begin when it enters the run, some ms before or after the others. A worker would seem ahead of
others by more than the consistency allows, so clocks are drawn by the machine's monotonic clock where records tell it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from ..records.records import ExchangeRecord
from ..records.run import Run, natural
from ..records.units import moment_text, plain, seconds_text
from .charts import (
    LOST_INK,
    MOST_POINTS,
    NOWHERE,
    Axis,
    Figure,
    absence_marks,
    base_layout,
    legend,
    numbers,
    plain_layout,
    value_title,
)
from .overview import Absence
from .scene_charts import name_axis

MOST_WORKERS: Final = 40
"""The most workers that are drawn: of more, so many, evenly spaced in the order of their names."""
MOST_AWAITED: Final = 24
_TOGETHER_S: Final = 10.0
"""The most seconds between the beginnings of two clocks of one start of the run. A resumed run has others."""
NOBODY: Final = "nobody"
"""The name of a column in the chart of who waited for whom: the waits for servers and messages, and not for a worker's
push."""
_INKS: Final = ("#3f6fb0", "#c05a2b", "#3d8b6e", "#7a5ea8", "#b07a3f", "#66788a", "#a8487a", "#4f9aa8")


def worker_charts(run: Run, axis: Axis, missing: Sequence[Absence]) -> Mapping[str, tuple[str, Figure]]:
    """Name of a chart -> its heading and its figure. `axis`: of time; `missing`: lost peers, which are marked. Charts
    without any data are left out."""
    turns = defaultdict[str, list[ExchangeRecord]](list)
    for record in run.exchanges:
        if not record.counts:  # those with counts are a server's
            turns[record.peer].append(record)
    later = _later(run)
    clocks = {
        worker: [(_made_s(one) + _at(later.get(worker, ()), one.time_s), one.version) for one in turns[worker]]
        for worker in turns
    }
    # The folder of a worker that joined does not have the others' clocks.
    lead = _ahead(clocks) if len(turns) > 1 else {}
    drawn = _some(sorted(turns, key=natural), MOST_WORKERS)
    found = {
        "worker clocks-time": (
            "Clocks of the workers",
            _lines(axis, missing, {one: clocks[one] for one in drawn}, "pushes"),
        ),
        "worker lead-time": (
            "Clocks ahead of the slowest worker",
            _lines(axis, missing, {one: lead[one] for one in drawn if lead}, "clocks ahead"),
        ),
        "awaited": ("Who waited for whom", _waits(turns)),
    }
    return {name: (heading, figure) for name, (heading, figure) in found.items() if figure["data"]}


def _made_s(record: ExchangeRecord) -> float:
    """When the worker pushed. After an evaluation its record comes later, when others may have pushed again."""
    return record.time_s if record.made_s is None else record.made_s


def _later(run: Run) -> dict[str, list[tuple[float, float]]]:
    """By peer, its entries into the run: the time of each, and by how many seconds the peer's clock began later there
    than the first of those that began with it; its own former lives did not. Empty for peers whose records do not
    tell."""
    entries = [(one.peer, one.time_s, one.clock_s) for one in run.events if one.is_entry]
    zeros = [(peer, clock_s - time_s) for peer, time_s, clock_s in entries if clock_s is not None]
    found = defaultdict[str, list[tuple[float, float]]](list)
    for peer, time_s, clock_s in entries:
        if clock_s is not None:
            zero_s = clock_s - time_s
            others = [one for name, one in zeros if name != peer and abs(one - zero_s) < _TOGETHER_S]
            found[peer].append((time_s, zero_s - min([zero_s, *others])))
    return found


def _at(entries: Sequence[tuple[float, float]], time_s: float) -> float:
    """Of `_later`, the seconds at `time_s`."""
    return next((later_s for entry_s, later_s in reversed(entries) if entry_s <= time_s), 0.0)


def _ahead(clocks: Mapping[str, Sequence[tuple[float, int]]]) -> dict[str, list[tuple[float, int]]]:
    """By worker, at each of its clocks, how far it was ahead of the slowest worker. A worker counts from its first
    record to its last."""
    moments = sorted((time_s, clock, worker) for worker, told in clocks.items() for time_s, clock in told)
    last = {worker: told[-1][0] for worker, told in clocks.items() if told}
    now, found = dict[str, int](), {worker: list[tuple[float, int]]() for worker in clocks}
    for time_s, clock, worker in moments:
        now[worker] = clock
        found[worker].append((time_s, clock - min(now.values())))
        if time_s >= last[worker]:
            del now[worker]
    return found


def _lines(
    axis: Axis, missing: Sequence[Absence], points: Mapping[str, Sequence[tuple[float, int]]], title: str
) -> Figure:
    data = []
    for number, (worker, told) in enumerate(points.items()):
        some = told[:: math.ceil(len(told) / MOST_POINTS) or 1]
        who = _said(f"peer {worker}")
        texts = [f"<b>{value:,} {title}</b><br>{who} · {moment_text(time_s)}" for time_s, value in some]
        data.append(
            {
                "type": "scatter",
                "x": [axis.at(time_s) for time_s, _ in some],
                "y": [value for _, value in some],
                "mode": "lines" if len(some) > 40 else "lines+markers",
                "line": {"color": _INKS[number % len(_INKS)], "width": 1.5, "shape": "hv"},
                "marker": {"size": 4},
                "name": who,
                "customdata": texts,
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        )
    layout = base_layout(axis)
    values = [value for told in points.values() for _, value in told]
    layout["yaxis"] |= value_title(title) | {"rangemode": "tozero"}
    layout["yaxis"] |= numbers(values) | ({"dtick": 1} if max(values, default=0) <= 8 else {})
    layout["shapes"], layout["annotations"] = absence_marks(axis, missing)
    if 1 < len(data) <= len(_INKS) and not layout["annotations"]:
        layout |= {"showlegend": True, "legend": legend()}
    return {"data": data if values else [], "layout": layout}


def _waits(turns: Mapping[str, Sequence[ExchangeRecord]]) -> Figure:
    """The seconds that each worker (a row) waited for each other one (a column)."""
    waited, lasted = defaultdict[tuple[str, str], float](float), 0.0
    for worker, records in turns.items():
        for record in records:
            waited[worker, record.waited_for] += record.wait_s
            lasted = max(lasted, record.time_s)
    rows = _some(sorted(turns, key=natural), MOST_AWAITED)
    columns = [*_some(sorted({late for _, late in waited if late}, key=natural), MOST_AWAITED), ""]
    layout = plain_layout("the awaited worker")
    layout["height"] = max(280, 110 + 22 * len(rows))
    layout["yaxis"] |= name_axis(rows) | value_title("the waiting worker")
    layout["xaxis"] |= {"tickvals": [*range(len(columns))], "showgrid": False, "ticks": "", "fixedrange": True}
    layout["xaxis"] |= {"ticktext": [_said(name or NOBODY) for name in columns], "automargin": True}
    heat = {
        "type": "heatmap",
        "x": [*range(len(columns))],
        "y": [*range(len(rows))],
        "z": [[waited[row, column] for column in columns] for row in rows],
        "text": [[_short(waited[row, column]) for column in columns] for row in rows],
        "texttemplate": "%{text}" if len(rows) * len(columns) <= 144 else "",
        "customdata": [[_wait(row, column, waited[row, column], lasted) for column in columns] for row in rows],
        "hovertemplate": "%{customdata}<extra></extra>",
        "colorscale": [[0, NOWHERE], [1, LOST_INK]],
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
    }
    return {"data": [heat] if any(waited.values()) else [], "layout": layout}


def _wait(worker: str, late: str, waited_s: float, lasted_s: float) -> str:
    what = f"a push of {'its own' if late == worker else f'peer {late}'}" if late else "servers, and no worker's push"
    share = f", {waited_s / lasted_s:.1%} of the run" if lasted_s > 0 else ""
    return f"<b>{seconds_text(waited_s)}</b>{share}<br>{_said(f'peer {worker} waited for {what}')}"


def _short(waited_s: float) -> str:
    return seconds_text(waited_s) if waited_s > 0 else ""


def _some(names: Sequence[str], most: int) -> list[str]:
    return list(names) if len(names) <= most else [names[number * len(names) // most] for number in range(most)]


def _said(text: str) -> str:
    return escape(plain(text, 60))
