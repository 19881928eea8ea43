"""The report of a run: one self-contained HTML file, to open years later on a machine without a network.

It loads nothing from elsewhere, and its content security policy allows only the two scripts that are hashed in its
head: peers' text is escaped, and could not run even if it were not.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ..records.records import PeerSummary, Run
from ..records.scene import Scene
from .charts import Figure, bytes_axis, curve_chart, time_axis
from .gantt import MOST_ROWS, MOST_SLOTS, gantt_chart, rows
from .overview import Absence, Point, absences, curve, standstills, totals
from .page import CSS, SCRIPT
from .scene_charts import bytes_chart, presence_chart
from .scene_map import network_map
from .tables import (
    broken,
    command,
    elsewhere_table,
    event_table,
    missing_table,
    peer_table,
    run_name,
    shares,
    standstill_table,
    tiles,
)

TITLES: Final = {
    "loss-time": "Loss over time",
    "loss-bytes": "Loss over bytes",
    "accuracy-time": "Accuracy over time",
    "accuracy-bytes": "Accuracy over bytes",
    "period-time": "Averaging period",
    "members-time": "Peers in a round",
}


def write_report(run: Run, target: Path) -> Path:
    """Write the report of a run, finished or not, to `target`, and return it."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ModuleNotFoundError("a report needs plotly: pip install 'samovar[report]'") from None
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(run, get_plotlyjs()), encoding="utf-8", newline="\n")
    return target


def page(run: Run, plotly_js: str) -> str:
    """The report as HTML text, with the given plotly.js inside."""
    missing, peers, points = absences(run), totals(run), curve(run)
    charts = _charts(run, peers, points, missing)
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
{command(run)}{broken(run)}
{_sections(run, charts, peers)}
{_world(run.scene) if run.scene else ""}
<h2>Lost and missing</h2>
{missing_table(missing)}
{standstill_table(standstills(run))}
<h2>Peers</h2>
{peer_table(peers)}
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
    run: Run, peers: Sequence[PeerSummary], points: Sequence[Point], missing: Sequence[Absence]
) -> dict[str, Figure]:
    lasted_s = run.scene.lasted_s if run.scene else 0.0
    last_s = run.rounds[-1].time_s if run.rounds else 0.0
    end = max(last_s, *(when for absence in missing for when in absence.lost_s), lasted_s)
    found: dict[str, Figure | None] = {}
    if run.scene:
        drawn = rows(peers, missing)
        found["presence-time"] = presence_chart(run.scene, drawn, time_axis(points, end))
        found["bytes"] = bytes_chart(run.scene, drawn)
    if not points:
        return {name: figure for name, figure in found.items() if figure}
    time, sent = time_axis(points, end), bytes_axis(points, points[-1].bytes_sent)
    for name in TITLES:
        quantity, over = name.split("-")
        found[name] = curve_chart(quantity, time if over == "time" else sent, missing)
    found["timeline-time"] = gantt_chart(run, rows(peers, missing), time, missing)
    return {name: figure for name, figure in found.items() if figure}


def _sections(run: Run, charts: Mapping[str, Figure], peers: Sequence[PeerSummary]) -> str:
    if "timeline-time" not in charts:
        return '<p class="note">No round was committed.</p>'
    cards = [
        f'<div class="card"><h3>{title}</h3><div id="{name}"></div></div>'
        for name, title in TITLES.items()
        if name in charts
    ]
    rounds = sum(peer.rounds for peer in peers)
    chosen = f" The {MOST_ROWS} peers that were missing or slowest are drawn." if len(peers) > MOST_ROWS else ""
    chosen += " A bar is the sum of several rounds." if rounds > MOST_SLOTS else ""
    return f"""<h2>Learning</h2>
<p class="note">Where the peers' losses differ, a band reaches from the lowest to the highest. A dotted line: a peer was
lost. Zooming one chart over time zooms them all, a double click zooms out.</p>
<div class="grid">{"".join(cards)}</div>
<h2>Where the time went</h2>
<p class="note">{shares(run, peers)}{chosen}</p>
<div class="card"><div id="timeline-time"></div></div>"""


def _world(scene: Scene) -> str:
    """The sections on a simulated world."""
    return f"""<h2>The network</h2>
<p class="note">Each peer's connection and what went over it, both ways: the wider the line, the more bytes. Point at a
line for more.</p>
<div class="card">{network_map(scene)}</div>
<h2>Who was up when</h2>
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
