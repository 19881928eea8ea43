"""The style sheet of the report, and the script that draws its figures."""

from __future__ import annotations

from typing import Final

CSS: Final = """
:root { --page: #f7f8fa; --card: #ffffff; --ink: #1d2633; --soft: #5b6776; --line: #e3e7ec; --bad: #b23a28;
  color-scheme: light dark; }
@media (prefers-color-scheme: dark) {
  :root { --page: #12161c; --card: #1a2028; --ink: #e4e8ee; --soft: #9aa7b6; --line: #2b343f; --bad: #ec8272; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 32px 24px 48px; }
h1 { margin: 0; font-size: 28px; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin: 36px 0 4px; font-size: 18px; }
p.note { margin: 0 0 10px; color: var(--soft); max-width: 110ch; }
.eyebrow { color: var(--soft); font-size: 13px; letter-spacing: .04em; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 20px 0 14px; }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
.tile { padding: 12px 14px; }
.tile b { display: block; font-size: 22px; font-weight: 600; line-height: 1.3;
  font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 13px; }
.tile .bad { color: var(--bad); }
.card { padding: 12px 12px 4px; min-width: 0; }
.card h3 { margin: 0 0 0 6px; font-size: 14px; font-weight: 600; }
.grid { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 14px; }
@media (max-width: 860px) { .grid { grid-template-columns: minmax(0, 1fr); } main { padding: 20px 12px; } }
.command { display: grid; grid-template-columns: max-content 1fr; gap: 4px 14px; align-items: baseline;
  padding: 10px 16px; }
.command span { color: var(--soft); font-size: 13px; }
code { font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere;
  white-space: pre-wrap; }
code i { display: inline-block; max-width: 100%; font-style: normal; }
.scroll { overflow: auto; max-height: 560px; padding: 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 14px; }
th { position: sticky; top: 0; background: var(--card); color: var(--soft); font-weight: 500; font-size: 13px;
  box-shadow: inset 0 -1px var(--line); }
th, td { padding: 7px 10px; text-align: right; white-space: nowrap; }
th { white-space: normal; vertical-align: bottom; }
th.text, td.text { text-align: left; }
td.name { white-space: normal; min-width: 80px; max-width: 240px; overflow-wrap: anywhere; }
td.wide { white-space: normal; min-width: 180px; overflow-wrap: anywhere; }
tbody tr + tr td { border-top: 1px solid var(--line); }
@media (max-width: 1240px) { th, td { padding: 7px 5px; } table { font-size: 13px; } }
.bad { color: var(--bad); }
.share { display: flex; height: 8px; border-radius: 4px; overflow: hidden; min-width: 60px; background: var(--line); }
p.broken { border: 1px solid var(--bad); border-radius: 8px; padding: 10px 16px; color: var(--bad); }
svg.map { display: block; width: 100%; height: auto; font-size: 12px; }
svg.map text { fill: var(--soft); paint-order: stroke; stroke: var(--card); stroke-width: 3px; }
svg.map .strong { fill: var(--ink); font-weight: 600; font-size: 13px; }
svg.map .island { fill: var(--page); stroke: var(--line); }
svg.map .wire { stroke-opacity: .55; stroke-linecap: round; }
svg.map .cable { stroke: #5fa58c; stroke-opacity: .8; }
svg.map .open { stroke-dasharray: 6 6; stroke-opacity: .5; }
svg.map .hub { fill: var(--card); stroke: #5fa58c; stroke-width: 3; }
svg.map .peer { fill: var(--card); stroke-width: 2; }
svg.map .peer.bad { stroke: var(--bad); stroke-dasharray: 3 3; }
svg.map .who { fill: var(--ink); text-anchor: middle; pointer-events: none; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 22px; justify-content: center; padding: 2px 12px 8px;
  font-size: 13px; color: var(--soft); }
.legend i { display: inline-block; width: 16px; height: 5px; border-radius: 3px; margin: 0 7px 3px 0; }
details.card { padding: 10px 16px; }
.card + details.card, .grid + details.card { margin-top: 14px; }
details .scroll { margin-top: 10px; }
summary { cursor: pointer; }
footer { margin-top: 28px; color: var(--soft); font-size: 13px; }
"""

SCRIPT: Final = """
(function () {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const inks = () => dark.matches
    ? { "font.color": "#9aa7b6", "hoverlabel.bgcolor": "#262f3a", "hoverlabel.font.color": "#e4e8ee",
        "hoverlabel.bordercolor": "#3a4654", "modebar.color": "#5b6776", "modebar.activecolor": "#9aa7b6" }
    : { "font.color": "#5b6776", "hoverlabel.bgcolor": "#ffffff", "hoverlabel.font.color": "#1d2633",
        "hoverlabel.bordercolor": "#ccd3db", "modebar.color": "#b4bcc6", "modebar.activecolor": "#5b6776" };
  // Only these buttons: among plotly's own is one that sends the data of a chart to a web site.
  const config = { responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
    modeBarButtons: [["toImage"], ["zoom2d", "pan2d", "resetScale2d"]] };
  const drawn = Object.keys(figures).map((name) => [name, document.getElementById(name)]);
  for (const [name, div] of drawn) {
    const layout = figures[name].layout;
    layout.hoverlabel = { align: "left", font: { ...layout.font } };
    layout.modebar = { bgcolor: "rgba(0,0,0,0)" };
    Plotly.newPlot(div, figures[name].data, layout, config).then(() => Plotly.relayout(div, inks()));
  }
  dark.addEventListener("change", () => drawn.forEach(([, div]) => Plotly.relayout(div, inks())));
  // Zooming one chart over time zooms the others with it.
  const timed = drawn.filter(([name]) => name.endsWith("-time")).map(([, div]) => div);
  for (const div of timed) {
    div.on("plotly_relayout", () => {
      const [low, high] = div.layout.xaxis.range;
      for (const other of timed) {
        const range = other.layout.xaxis.range;
        if (range[0] !== low || range[1] !== high) Plotly.relayout(other, { "xaxis.range": [low, high] });
      }
    });
  }
})();
"""
