"""The charts of a simulated world: the times at which each peer was up, the faults, and the bytes on each link."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from ..records.scene import BAD_ENDINGS, Scene, Stay, Trouble
from ..records.units import bytes_text, moment_text, plain, seconds_text, span_text
from .charts import LOST_INK, Axis, Figure, base_layout, size_axis
from .scene_map import OTHER_INK, link_words

UP_INK: Final = "#8fb8a8"
TROUBLE_INK: Final = {
    "pause": "#57606d",
    "slow": "#b98ad0",
    "cut off": "#c2412d",
    "deafen": "#dd7f53",
    "ring": "#c2412d",
    "clog": "#e2b35c",
    "noise": "#b6924a",
    "other link": "#4a78b5",
    "full disk": "#7a5ea8",
}
EVERYBODY: Final = "all"
MOST_STAYS: Final = 4000
MOST_TROUBLES: Final = 2000
SENT_INK: Final = "#4a78b5"
RECEIVED_INK: Final = "#5fa58c"


def presence_chart(scene: Scene, names: Sequence[str], axis: Axis) -> Figure:
    """A row for each peer in `names`: the times at which it was up, with its faults drawn over them. Faults that
    concern all peers have a row of their own."""
    all_row = [EVERYBODY] if any(not trouble.who for trouble in scene.troubles) else []
    row = {name: number for number, name in enumerate([*all_row, *names])}
    layout = base_layout(axis)
    layout["margin"] |= {"t": 60}
    layout |= {"height": round(118 + len(row) * max(15, min(30, 640 / max(1, len(row)))))}
    layout |= {"barmode": "overlay", "showlegend": True}
    layout["legend"] = {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "itemsizing": "constant"}
    layout["yaxis"] |= name_axis(list(row))
    ups = [stay for stay in scene.stays if stay.peer in row][:MOST_STAYS]
    bars = [_bars("up", UP_INK, 0.72, axis, [(row[stay.peer], stay.from_s, stay.until_s, _stay(stay)) for stay in ups])]
    ends = {stay.peer: stay.until_s for stay in ups}
    kinds: dict[str, list[tuple[int, float, float, str]]] = {}
    for trouble in scene.troubles[:MOST_TROUBLES]:
        until_s = scene.lasted_s if trouble.until_s is None else min(trouble.until_s, scene.lasted_s)
        kind = "other link" if trouble.kind == "link" else trouble.kind.replace("_", " ")
        if kind in TROUBLE_INK:
            for peer in trouble.who or (EVERYBODY,):
                if peer in row:
                    found = kinds.setdefault(kind, [])
                    end_s = min(until_s, ends.get(peer, until_s))
                    found.append((row[peer], trouble.at_s, end_s, _trouble(trouble, kind, until_s)))
    bars += [_bars(kind, TROUBLE_INK[kind], 0.34, axis, found) for kind, found in kinds.items()]
    bad = [stay for stay in ups if stay.ending in BAD_ENDINGS]
    signs = _signs("gone", "x", LOST_INK, axis, [(row[stay.peer], stay.until_s, _stay(stay)) for stay in bad])
    jumps = [trouble for trouble in scene.troubles if trouble.kind == "clock"]
    clocks = _signs("clock jumps", "diamond", OTHER_INK, axis, [(0, jump.at_s, "the clock jumps") for jump in jumps])
    return {"data": [*bars, *(sign for sign in (signs, clocks) if sign["x"])], "layout": layout}


def bytes_chart(scene: Scene, names: Sequence[str]) -> Figure:
    """The bytes on each link in both directions: the links between sites, then those of the peers in `names`."""
    shown = set(names)
    rows = [
        (f"{one.a} - {one.b}", one.link, ((one.Bps, one.bytes_ab), (one.Bps, one.bytes_ba))) for one in scene.cables
    ] + [
        (f"peer {one.peer}", one.link, ((one.up_Bps, one.bytes_up), (one.down_Bps, one.bytes_down)))
        for one in scene.places
        if one.peer in shown
    ]
    axis = size_axis(max((size for *_, ways in rows for _, size in ways), default=0))
    layout = base_layout(axis)
    layout |= {"barmode": "group", "bargap": 0.25, "showlegend": True}
    layout |= {"height": round(96 + len(rows) * max(15, min(34, 900 / max(1, len(rows)))))}
    layout["legend"] = {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"}
    layout["yaxis"] |= name_axis([name for name, *_ in rows])
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": label,
            "y": list(range(len(rows))),
            "x": [axis.scaled(ways[way][1]) for *_, ways in rows],
            "customdata": [_carried(name, link, *ways[way], scene.lasted_s) for name, link, ways in rows],
            "hovertemplate": "%{customdata}<extra></extra>",
            "marker": {"color": ink, "line": {"width": 0}},
        }
        for way, (label, ink) in enumerate((("sent, or there", SENT_INK), ("received, or back", RECEIVED_INK)))
    ]
    return {"data": data, "layout": layout}


def name_axis(names: Sequence[str]) -> Figure:
    """The plotly settings of a vertical axis with a row for each of these names, the first at the top."""
    return {
        "range": [len(names) - 0.45, -0.55],
        "tickvals": list(range(len(names))),
        "ticktext": [escape(plain(name, 28)) for name in names],
        "showgrid": False,
        "ticks": "",
        "ticklabelstandoff": 6,
        "automargin": True,
        "fixedrange": True,
    }


def _bars(name: str, ink: str, width: float, axis: Axis, found: Iterable[tuple[int, float, float, str]]) -> Figure:
    shown = [(row, max(0.0, start), end, text) for row, start, end, text in found if end > 0]
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [row for row, *_ in shown],
        "base": [axis.at(start) for _, start, _, _ in shown],
        "x": [axis.at(max(0.0, end - start)) for _, start, end, _ in shown],
        "customdata": [text for *_, text in shown],
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {"color": ink, "line": {"width": 0}},
        "width": width,
    }


def _signs(name: str, symbol: str, ink: str, axis: Axis, found: Iterable[tuple[int, float, str]]) -> Figure:
    shown = list(found)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [axis.at(max(0.0, when)) for _, when, _ in shown],
        "y": [row for row, *_ in shown],
        "customdata": [text for *_, text in shown],
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {"color": ink, "symbol": symbol, "size": 10, "line": {"width": 1, "color": "white"}},
        "cliponaxis": False,
    }


def _stay(stay: Stay) -> str:
    span = span_text(max(0.0, stay.from_s), max(0.0, stay.until_s))
    why = f"<br>{escape(plain(stay.why, 120))}" if stay.why else ""
    return f"<b>{escape(plain(stay.peer, 40))}</b> up from {span}: {stay.ending}{why}"


def _trouble(trouble: Trouble, kind: str, until_s: float) -> str:
    end = "for good" if trouble.until_s is None else f"for {seconds_text(until_s - trouble.at_s)}"
    return f"<b>{escape(kind)}</b> from {moment_text(max(0.0, trouble.at_s))}, {end}"


def _carried(name: str, link: str, rate_Bps: float, size: int, lasted_s: float) -> str:
    text = f"<b>{escape(plain(name, 60))}</b> {escape(plain(link_words(link), 60))}<br>{bytes_text(size)}"
    return f"{text}, {size / (rate_Bps * lasted_s):.1%} of what it could carry" if rate_Bps and lasted_s > 0 else text
