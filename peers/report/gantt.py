"""The timeline of a report: a row for each peer, with bars for compute, wait, transfer and evaluation in order of time.

To keep a browser fast, at most `MOST_ROWS` peers and `MOST_SLOTS` slots of four bars are drawn, and at most
`MOST_IN_ROW` slots a row, so that each bar is visible. In a longer run a slot sums up several exchanges. In a run of
more peers, those that were never lost and have the fastest steps are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

from ..records.columns import shown
from ..records.result import PeerSummary
from ..records.run import Run
from ..records.units import loss_text, moment_text, number_text, plain, seconds_text
from .charts import LOST_INK, Axis, Figure, absence_marks, base_layout
from .overview import Absence
from .timeline import PHASES, Slot, slots

MOST_ROWS: Final = 64
MOST_SLOTS: Final = 2000
MOST_IN_ROW: Final = 160
PHASE_INK: Final = {"compute": "#4a78b5", "wait": "#e2b35c", "transfer": "#5fa58c", "evaluate": "#a0628f"}
BACK_INK: Final = "#2f7d5f"


def rows(peers: Sequence[PeerSummary], missing: Sequence[Absence]) -> list[str]:
    """The names of the peers that get a row, in the order of `peers`: all, or of more than `MOST_ROWS` those that were
    missing, then those with the slowest steps."""
    names = [peer.peer for peer in peers]
    if len(names) <= MOST_ROWS:
        return names
    absent = {absence.peer for absence in missing}
    by_need = sorted(peers, key=lambda peer: (peer.peer not in absent, -peer.compute_s / max(1, peer.steps)))
    chosen = {peer.peer for peer in by_need[:MOST_ROWS]}
    return [name for name in names if name in chosen]


def gantt_chart(run: Run, names: Sequence[str], axis: Axis, missing: Sequence[Absence]) -> Figure:
    """The timeline of the peers in `names`, as a plotly figure with a row for each. A cross marks a peer's loss, a
    triangle its joining or its return."""
    row = {name: index for index, name in enumerate(names)}
    most = min(MOST_SLOTS, MOST_IN_ROW * len(names))
    drawn = slots((record for record in run.exchanges if record.peer in row), most=most)
    came = [(event.subject, event.time_s, event.why) for event in run.events if event.event in ("joined", "back")]
    lost = [(absence.peer, when, absence.why) for absence in missing for when in absence.lost_s]
    layout = base_layout(axis)
    layout["margin"] |= {"t": 54}
    layout |= {"height": round(112 + len(names) * max(15, min(36, 640 / max(1, len(names)))))}
    layout |= {"barmode": "overlay", "showlegend": True}
    layout["legend"] = {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "itemsizing": "constant"}
    layout["yaxis"] |= {
        "range": [len(names) - 0.45, -0.55],
        "tickvals": list(range(len(names))),
        "ticktext": [escape(plain(name, 18)) for name in names],
        "showgrid": False,
        "ticks": "",
        "ticklabelstandoff": 6,
        "automargin": True,
        "fixedrange": True,
    }
    layout["shapes"], _ = absence_marks(axis, missing, labels=False)
    signs = [
        _signs("lost", LOST_INK, "x", axis, row, lost),
        _signs("joined or back", BACK_INK, "triangle-up", axis, row, came),
    ]
    return {"data": [*_bars(run, drawn, row, axis), *(sign for sign in signs if sign["x"])], "layout": layout}


def _bars(run: Run, drawn: Iterable[Slot], row: Mapping[str, int], axis: Axis) -> list[Figure]:
    bars: dict[str, list[tuple[int, float, float, str]]] = {phase: [] for phase in PHASES}
    for slot in drawn:
        for phase, start, length, spent in slot.phases():
            bars[phase].append((row[slot.peer], axis.at(start), axis.at(length), _slot_text(run, slot, phase, spent)))
    return [
        {
            "type": "bar",
            "orientation": "h",
            "name": phase,
            "y": [bar[0] for bar in found],
            "base": [bar[1] for bar in found],
            "x": [bar[2] for bar in found],
            "customdata": [bar[3] for bar in found],
            "hovertemplate": "%{customdata}<extra></extra>",
            "marker": {"color": PHASE_INK[phase], "line": {"width": 0}},
            "width": 0.74,
        }
        for phase, found in bars.items()
        if found or phase != "evaluate"
    ]


def _signs(
    name: str, ink: str, symbol: str, axis: Axis, row: Mapping[str, int], events: Iterable[tuple[str, float, str]]
) -> Figure:
    shown = [(peer, when, why) for peer, when, why in events if peer in row]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [axis.at(when) for _, when, _ in shown],
        "y": [row[peer] for peer, _, _ in shown],
        "customdata": [_sign_text(name, peer, when, why) for peer, when, why in shown],
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {"color": ink, "symbol": symbol, "size": 10, "line": {"width": 1, "color": "white"}},
        "cliponaxis": False,
    }


def _sign_text(name: str, peer: str, when: float, why: str) -> str:
    return f"<b>{escape(plain(peer, 40))}</b> {name} at {moment_text(when)}<br>{escape(plain(why, 120))}"


def _slot_text(run: Run, slot: Slot, phase: str, spent: float) -> str:
    which = f"{run.noun} {slot.last.version:,}"
    if slot.first is not slot.last:
        which = f"{run.noun}s {slot.first.version:,} to {slot.last.version:,}"
    awaited = _awaited(slot) if phase == "wait" else ""
    hidden = f" · {seconds_text(slot.hidden_s)} of averaging behind local steps" if slot.hidden_s else ""
    known = [name for name in shown(run.columns) if name in slot.last.details]
    details = (f" · {escape(plain(name, 40))} {number_text(slot.last.details[name])}" for name in known)
    return (
        f"<b>{escape(plain(slot.peer, 40))}</b> · {which} · {moment_text(slot.end_s)}"
        f"<br>{phase} {seconds_text(spent)}{awaited}{hidden}"
        f"<br>loss {loss_text(slot.last.loss)}{''.join(details)}"
    )


def _awaited(slot: Slot) -> str:
    """The name of the peer that was waited for in the slot's longest wait, as text; "" if there is none."""
    record = slot.longest
    name = record.waited_for
    longest = "" if slot.first is slot.last else "longest "
    evaluates = ", which evaluates" if 2 * record.evaluation_wait_s > record.wait_s else ""
    return f", {longest}for {escape(plain(name, 40))}{evaluates}" if name else ""
