"""The report of a run: one self-contained HTML file, which can be opened years later on a machine without a network.

The file loads nothing from elsewhere. Its content security policy allows only the two scripts whose hashes stand in its
head. Text from peers is escaped, and could not run as a script even if it were not.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

from ..records.result import PeerSummary
from ..records.run import Run
from ..records.scene import Scene
from ..records.tally import elsewhere_in, of_servers
from ..records.units import count_text, plain
from ..whole_file import write_whole
from .charts import Figure, bytes_axis, curve_chart, differ, time_axis
from .gantt import MOST_ROWS, MOST_SLOTS, gantt_chart, rows
from .headline import broken, command, ending, run_name, tiles
from .overview import Absence, Point, absences, curve, standstills, totals
from .own_models import own_charts
from .page import CSS, SCRIPT
from .quantities import Quantity, evaluators, quantities
from .scene_charts import bytes_chart, presence_chart
from .scene_map import network_map
from .server_charts import range_table, served, server_charts
from .tables import elsewhere_table, event_table, missing_table, peer_table, shares, standstill_table
from .talk_map import edge_table, talk_map, talked
from .worker_charts import worker_charts

MOST_NAMES: Final = 8
"""The most peers that the note on a mean names."""


def write_report(run: Run, target: Path) -> Path:
    """Write the report of a run, finished or not, as an HTML page to `target`, and return `target`. Makes missing
    folders and overwrites an older file. Raises ModuleNotFoundError, with one line for the user, when plotly is not
    installed, and OSError."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ModuleNotFoundError("a report needs plotly: pip install 'samovar[report]'") from None
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, page(run, get_plotlyjs()))
    return target


def page(run: Run, plotly_js: str) -> str:
    """The report as HTML text. `plotly_js`: the source of plotly.js, which is put into the page."""
    missing, peers, points = absences(run), totals(run), curve(run)
    drawn = quantities(run, points)
    charts = _charts(run, drawn, peers, points, missing)
    time = time_axis(points, _end_s(run, missing))
    served_ = {**worker_charts(run, time, missing), **server_charts(run)} if served(run) else {}
    own = own_charts(run, time, missing) if talked(run) and not served_ else {}
    charts |= {name: figure for name, (_, figure) in {**served_, **own}.items()}
    policy = f"default-src 'none'; script-src {_hash(plotly_js)} {_hash(SCRIPT)}"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}; style-src 'unsafe-inline'; img-src data: blob:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{run_name(run)} - Samovar</title>
<style>{CSS}</style>
</head>
<body>
<main>
<div class="eyebrow">Samovar run</div>
<h1>{run_name(run)}</h1>
{tiles(run, peers, points, missing)}
{ending(run)}
{command(run)}{broken(run)}
{_sections(run, drawn, charts, peers, points)}
{_servers(run, served_) if served_ else ""}
{_own_models(own) if own else ""}
{_messages(run) if talked(run) else ""}
{_world(run.scene) if run.scene else ""}
<h2>Lost and missing</h2>
{missing_table(run, missing)}
{standstill_table(standstills(run))}
<h2>Peers</h2>
{peer_table(run, peers)}
{elsewhere_table(run)}
{event_table(run)}
<footer>Made by Samovar from the records in the run folder. This file loads nothing from anywhere.</footer>
</main>
<script type="application/json" id="figures">{_json(charts)}</script>
<script>{plotly_js}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _charts(
    run: Run,
    quantities: Mapping[str, Quantity],
    peers: Sequence[PeerSummary],
    points: Sequence[Point],
    missing: Sequence[Absence],
) -> dict[str, Figure]:
    end = _end_s(run, missing)
    found: dict[str, Figure | None] = {}
    if run.scene:
        drawn = rows(peers, missing)
        found["presence-time"] = presence_chart(run.scene, drawn, time_axis(points, end))
        found["bytes"] = bytes_chart(run.scene, drawn)
    if not points:
        return {name: figure for name, figure in found.items() if figure}
    time, sent = time_axis(points, end), bytes_axis(points, points[-1].bytes_sent)
    for name, quantity in quantities.items():
        found[f"{name}-time"] = curve_chart(quantity, time, missing)
        if quantity.kind != "count":
            found[f"{name}-bytes"] = curve_chart(quantity, sent, missing)
    if shares(run, peers):
        found["timeline-time"] = gantt_chart(run, rows(peers, missing), time, missing)
    return {name: figure for name, figure in found.items() if figure}


def _end_s(run: Run, missing: Sequence[Absence]) -> float:
    lasted_s = run.scene.lasted_s if run.scene else 0.0
    last_s = run.exchanges[-1].time_s if run.exchanges else 0.0
    return max(last_s, *(when for absence in missing for when in absence.lost_s), lasted_s)


def _sections(
    run: Run,
    quantities: Mapping[str, Quantity],
    charts: Mapping[str, Figure],
    peers: Sequence[PeerSummary],
    points: Sequence[Point],
) -> str:
    if not points:
        done = "round was committed" if run.noun == "round" else "exchange was made"
        return f'<p class="note">No {done}.</p>'
    cards = [
        f'<div class="card"><h3>{escape(title)}</h3><div id="{escape(name)}"></div></div>'
        for name, title in _titles(quantities).items()
        if name in charts
    ]
    exchanges, spent = sum(peer.exchanges for peer in peers), shares(run, peers)
    chosen = f" The {MOST_ROWS} peers that were missing or slowest are drawn." if len(peers) > MOST_ROWS else ""
    chosen += f" A bar is the sum of several {run.noun}s." if exchanges > MOST_SLOTS else ""
    time = f"""<h2>Where the time went</h2>
<p class="note">{spent}{chosen}</p>
<div class="card"><div id="timeline-time"></div></div>"""
    served = of_servers(peers)
    told = "Losses and metrics are in the reports of the workers. " if served else _means(run, points)
    return f"""<h2>{"Over time" if served else "Learning"}</h2>
<p class="note">{told}A dotted line: a peer was lost. Zooming one chart over time zooms them all, a
double click zooms out.</p>
<div class="grid">{"".join(cards)}</div>
{time if spent else ""}"""


def _means(run: Run, points: Sequence[Point]) -> str:
    """The sentences on the curves that put several peers together, as HTML."""
    told = "Where the peers' losses differ, a band reaches from the lowest to the highest. " if differ(points) else ""
    if len(who := evaluators(run)) > 1:
        named = f"peers {', '.join(plain(name, 40) for name in who)}"
        names = named if len(who) <= MOST_NAMES else count_text(len(who), "peer")
        told += f"A point of a metric is the mean of the evaluations about that time, by {names}. "
    return escape(told)


def _cards(charts: Mapping[str, tuple[str, Figure]]) -> str:
    cards = [
        f'<div class="card"><h3>{escape(heading)}</h3><div id="{escape(name)}"></div></div>'
        for name, (heading, _) in charts.items()
    ]
    return f'<div class="grid">{"".join(cards)}</div>'


def _servers(run: Run, charts: Mapping[str, tuple[str, Figure]]) -> str:
    """The section on a run with a parameter server, as HTML."""
    others = any(one.role for one in elsewhere_in(run))
    elsewhere = " The bytes of servers elsewhere are in their own reports." if others else ""
    return f"""<h2>Workers and servers</h2>
<p class="note">A worker's clock is the number of its pushes. The staleness of a push: the updates of a range since the
values that its worker had pulled. A worker that waited for itself waited until the servers had its own push; one that
waited for nobody waited for servers and messages, not for a push. A wait for a sum of pushes counts for the worker
whose push came last to it. Bytes are those of values, without headers; copied: between the servers of a chain. A clock
is drawn at the time of the worker's push.{elsewhere}</p>
{_cards(charts)}
{range_table(run)}"""


def _own_models(charts: Mapping[str, tuple[str, Figure]]) -> str:
    """The section on a run whose peers keep models of their own, as HTML."""
    known = (
        "Consensus distance: the root of the models' mean squared distance from their mean, as a share of its norm."
        if "consensus-time" in charts
        else "No peer has the mean of all models. A peer's change by a mix tells its distance from its neighbours."
    )
    return f"""<h2>Each peer's own model</h2>
<p class="note">{known}</p>
{_cards(charts)}"""


def _messages(run: Run) -> str:
    """The section on who gave models to whom, as HTML."""
    return f"""<h2>Messages between peers</h2>
<div class="card">{talk_map(run)}</div>
{edge_table(run)}"""


def _titles(quantities: Mapping[str, Quantity]) -> dict[str, str]:
    """Name of a chart -> its heading, in the order of the report."""
    titles = {}
    for name, quantity in quantities.items():
        titles[f"{name}-time"] = quantity.heading
        if quantity.kind != "count":
            titles |= {f"{name}-{over}": f"{quantity.heading} over {over}" for over in ("time", "bytes")}
    return titles


def _world(scene: Scene) -> str:
    """The sections on a simulation's network and faults, as HTML."""
    return f"""<h2>The network</h2>
<p class="note">Each peer's connection and what went over it, both ways: the wider the line, the more bytes. Point at a
line for more.</p>
<div class="card">{network_map(scene)}</div>
<h2>Peers over time</h2>
<p class="note">The thin bars over a peer's own are what was done to it; a cross: it went before
its work was done.</p>
<div class="card"><div id="presence-time"></div></div>
<h2>Bytes on each connection</h2>
<div class="card"><div id="bytes"></div></div>"""


def _json(charts: Mapping[str, Figure]) -> str:
    """JSON that is safe inside HTML: characters with a meaning in HTML are escaped."""
    text = json.dumps(charts, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode('utf-8')).digest()).decode('ascii')}'"
