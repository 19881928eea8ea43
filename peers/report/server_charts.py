"""The charts of the servers of a parameter server: how stale pushes were, and the bytes by range and server."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from ..records.run import Run, natural
from ..records.units import bytes_text, count_text, plain
from .charts import Figure, base_layout, legend, plain_layout, size_axis
from .scene_charts import RECEIVED_INK, SENT_INK, name_axis
from .talk_map import talked

MOST_BARS: Final = 60
"""Bars of the histogram: more values of staleness are drawn together, some to a bar."""
MOST_HOT: Final = 16
MOST_RANGES: Final = 500
_STALE_INK, _COPIED_INK = "#7a5ea8", "#b6924a"


def served(run: Run) -> bool:
    """Whether the run had a parameter server. The folder of a worker that joined has no records of servers: there the
    columns tell it, and the values that the worker pulled."""
    return any("pushed" in record.counts for record in run.exchanges) or ("updates" in run.columns and talked(run))


def server_charts(run: Run) -> Mapping[str, tuple[str, Figure]]:
    """Name of a chart -> its heading and its figure. Charts without any data are left out."""
    found = {
        "push staleness": ("Staleness of the pushes", _histogram(_summed(run, "staleness"))),
        "server bytes": ("Bytes of each server", _by_server(run)),
        "range bytes": ("The hottest ranges", _hottest(run)),
    }
    return {name: (heading, figure) for name, (heading, figure) in found.items() if figure["data"]}


def range_table(run: Run) -> str:
    """The table of the bytes of each range, the most first and at most `MOST_RANGES`, as HTML in a block that the
    reader unfolds; "" when no bytes were pushed or pulled."""
    pushed, pulled, where = _summed(run, "pushed"), _summed(run, "pulled"), _where(run)
    both = Counter({name: pushed[name] + pulled[name] for name in {*pushed, *pulled}})
    if not both.total():
        return ""
    rows = "".join(
        f'<tr><td class="text name">{_said(_range_label(name))}</td><td class="text name">'
        f"{_said(', '.join(where[name]))}</td><td>{bytes_text(pushed[name])}</td><td>{bytes_text(pulled[name])}</td>"
        f"<td>{size / both.total():.1%}</td></tr>"
        for name, size in both.most_common(MOST_RANGES)
    )
    heads = '<th class="text">Range</th><th class="text">Servers that told of it</th><th>Pushed</th><th>Pulled</th>'
    heads += "<th>Share</th>"
    left = len(both) - MOST_RANGES
    cut = f'<p class="note">{count_text(left, "more range")}.</p>' if left > 0 else ""
    return (
        f'<details class="card"><summary>Bytes of each of {count_text(len(both), "range")}</summary>'
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>{cut}</details>'
    )


def _summed(run: Run, name: str) -> Counter[str]:
    """The run's counts of this name, by key."""
    found = Counter[str]()
    for record in run.exchanges:
        found.update(record.counts.get(name, {}))
    return found


def _range_label(name: str) -> str:
    """'3' -> 'range 3', 'words/5' -> 'words/5', of a table's block, and '' -> 'all others'."""
    return f"range {name}" if name.isdecimal() else name or "all others"


def _where(run: Run) -> dict[str, list[str]]:
    """By range, the servers whose records tell of it."""
    found = defaultdict[str, dict[str, None]](dict)
    for record in run.exchanges:
        for kind in ("pushed", "pulled"):
            for name, size in record.counts.get(kind, {}).items():
                if size:
                    found[name][record.peer] = None
    return defaultdict(list, {name: sorted(peers, key=natural) for name, peers in found.items()})


def _histogram(counted: Mapping[str, int]) -> Figure:
    """The share of the pushes by their staleness."""
    told = {int(name): count for name, count in counted.items() if name.isdecimal()}
    width = max(1, math.ceil((max(told, default=0) + 1) / MOST_BARS))
    bars, total = Counter[int](), sum(told.values())
    for staleness, count in told.items():
        bars[staleness // width] += count
    layout = plain_layout("staleness (updates between pull and push)")
    layout["xaxis"] |= {"dtick": 1} if len(told) and max(told) <= 12 else {}
    layout["yaxis"] |= {"title": {"text": "of all pushes", "standoff": 12}, "tickformat": ".0%", "automargin": True}
    layout |= {"bargap": 0.12}
    texts = []
    for bar, count in sorted(bars.items()):
        span = f"{bar * width:,}" if width == 1 else f"{bar * width:,} to {bar * width + width - 1:,}"
        texts.append(f"<b>staleness {span}</b><br>{count:,} pushes to a range, {count / total:.1%}")
    bar_chart = {
        "type": "bar",
        "x": [bar * width + (width - 1) / 2 for bar in sorted(bars)],
        "y": [count / total for _, count in sorted(bars.items())],
        "width": [0.8 * width] * len(bars),
        "marker": {"color": _STALE_INK, "line": {"width": 0}},
        "customdata": texts,
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    return {"data": [bar_chart] if total else [], "layout": layout}


def _by_server(run: Run) -> Figure:
    sizes = defaultdict[str, Counter[str]](Counter)
    for record in run.exchanges:
        for kind in ("pushed", "pulled"):
            sizes[record.peer][kind] += sum(record.counts.get(kind, {}).values())
        if record.counts:
            pushed = sum(record.counts.get("pushed", {}).values())
            sizes[record.peer]["copied"] += max(0, sum(record.received_from.values()) - pushed)
    servers = sorted((name for name, of in sizes.items() if of.total()), key=natural)
    return _stacked(
        [f"server {name}" for name in servers],
        {
            "pushed to it": (RECEIVED_INK, [sizes[name]["pushed"] for name in servers]),
            "pulled from it": (SENT_INK, [sizes[name]["pulled"] for name in servers]),
            "copied to it": (_COPIED_INK, [sizes[name]["copied"] for name in servers]),
        },
    )


def _hottest(run: Run) -> Figure:
    pushed, pulled = _summed(run, "pushed"), _summed(run, "pulled")
    both = Counter({name: pushed[name] + pulled[name] for name in {*pushed, *pulled} if name})
    names = [name for name, _ in sorted(both.most_common(MOST_HOT), key=lambda one: (-one[1], natural(one[0])))]
    return _stacked(
        [_range_label(name) for name in names],
        {
            "pushed": (RECEIVED_INK, [pushed[name] for name in names]),
            "pulled": (SENT_INK, [pulled[name] for name in names]),
        },
    )


def _stacked(names: Sequence[str], kinds: Mapping[str, tuple[str, Sequence[int]]]) -> Figure:
    """A bar for each name, of bytes of each kind, each with its ink."""
    totals = [sum(sizes) for sizes in zip(*(sizes for _, sizes in kinds.values()), strict=True)]
    axis = size_axis(max(totals, default=0))
    layout = base_layout(axis)
    layout |= {"barmode": "stack", "bargap": 0.25, "showlegend": True, "legend": legend()}
    layout |= {"height": max(280, 96 + 18 * len(names))}
    layout["yaxis"] |= name_axis(names)
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": kind,
            "y": [*range(len(names))],
            "x": [axis.scaled(size) for size in sizes],
            "customdata": [
                f"<b>{bytes_text(size)}</b> {kind}<br>{_said(name)}" for name, size in zip(names, sizes, strict=True)
            ],
            "hovertemplate": "%{customdata}<extra></extra>",
            "marker": {"color": ink, "line": {"width": 0}},
        }
        for kind, (ink, sizes) in kinds.items()
        if any(sizes)
    ]
    return {"data": data, "layout": layout}


def _said(text: str) -> str:
    return escape(plain(text, 60))
