"""The chart of `samovar plan`, an SVG file: the time of each schedule, and each peer's messages under the fastest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

from ...aggregation.schedules.cost import Sent
from ..records.units import count_text, seconds_text

STYLE: Final = """
svg { --page: #f7f8fa; --ink: #1d2633; --soft: #5b6776; --line: #e3e7ec; color-scheme: light dark;
  font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
@media (prefers-color-scheme: dark) { svg { --page: #12161c; --ink: #e4e8ee; --soft: #9aa7b6; --line: #2b343f; } }
text { fill: var(--soft); } .strong { fill: var(--ink); font-weight: 600; } .right { text-anchor: end; }
.page { fill: var(--page); } .bar { fill: #8a94a3; } .best { fill: #4a78b5; } .line { stroke: var(--line); }
.cut { stroke: var(--page); stroke-width: 3; } .sum { stroke: #d08a3c; } .spread { stroke: #5fa58c; }
"""
_WIDTH, _LEFT, _RIGHT, _EDGE = 900.0, 160.0, 770.0, 24.0
_BAR = 26.0
_ROWS_MOST, _ROWS_FEW = 32, 12
_LONGEST: Final = 8.0
"""The longest bar, as a multiple of the shortest; longer bars are cut off."""
_TICKS: Final = 4
_APART: Final = 3.0
"""Strokes closer or shorter than this, in pixels, are merged with their neighbours."""


class Bar(NamedTuple):
    """The bar of one schedule: its name and its predicted seconds."""

    name: str
    seconds: float


def plan_chart(title: str, bars: Sequence[Bar], peers: int, sent: Iterable[Sent]) -> str:
    """The chart as the text of an SVG file. `bars`: the fastest first; `peers`: the number of peers, of which the first
    32 are drawn; `sent`: the messages of the fastest schedule."""
    shapes = [*_bars(bars, 64.0)]
    top = 64.0 + len(bars) * _BAR + 40.0
    rows = min(peers, _ROWS_MOST)
    row_height = 18.0 if rows <= _ROWS_FEW else 12.0
    shapes += _timeline(bars[0], rows, row_height, sent, top)
    height = top + rows * row_height + 60.0
    if peers > rows:
        shapes.append(_text(_LEFT, height - 12.0, f"and {count_text(peers - rows, 'more peer')}"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:.0f} {height:.0f}" role="img">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
        f'<rect class="page" width="{_WIDTH:.0f}" height="{height:.0f}"/>'
        f"{_text(_EDGE, 36.0, title, 'strong')}{''.join(shapes)}</svg>\n"
    )


def _bars(bars: Sequence[Bar], top: float) -> Iterator[str]:
    longest_s = min(bars[-1].seconds, _LONGEST * bars[0].seconds)
    for row, bar in enumerate(bars):
        y, kind = top + row * _BAR, "best" if row == 0 else "bar"
        share = min(1.0, bar.seconds / longest_s) if longest_s else 0.0
        end = _LEFT + share * (_RIGHT - _LEFT)
        yield _text(_LEFT - 12.0, y + 13.0, bar.name, "strong right" if row == 0 else "right")
        yield f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{end - _LEFT:.1f}" height="{_BAR - 8.0}" rx="2"/>'
        if bar.seconds > longest_s:
            yield f'<path class="cut" d="M{end - 22:.1f} {y + 22}l8 -26"/>'
        yield _text(end + 8.0, y + 13.0, seconds_text(bar.seconds), "strong" if row == 0 else "")


def _timeline(best: Bar, rows: int, row_height: float, sent: Iterable[Sent], top: float) -> Iterator[str]:
    yield _text(_EDGE, top, f"{best.name}: what each peer sends, and when", "strong")
    yield _text(_RIGHT - 130.0, top, "to be added", "right") + _swatch(_RIGHT - 124.0, top, "sum")
    yield _text(_RIGHT - 40.0, top, "sums", "right") + _swatch(_RIGHT - 34.0, top, "spread")
    top, bottom = top + 12.0, top + 12.0 + rows * row_height
    for tick in range(_TICKS + 1):
        x = _LEFT + tick / _TICKS * (_RIGHT - _LEFT)
        yield f'<path class="line" d="M{x:.1f} {top}V{bottom + 4.0}"/>'
        label = _text(x, bottom + 18.0, seconds_text(tick / _TICKS * best.seconds))
        yield label.replace("<text", '<text text-anchor="middle"')
    for row in range(rows):
        if rows <= _ROWS_FEW or row % 4 == 0:
            yield _text(_LEFT - 12.0, top + (row + 0.75) * row_height, f"peer {row}", "right")
    strokes: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for one in sent:
        if one.sender < rows:
            strokes.setdefault((one.sender, "sum" if one.adds else "spread"), []).append((one.start_s, one.end_s))
    scale = (_RIGHT - _LEFT) / best.seconds if best.seconds else 0.0
    for (row, kind), times in sorted(strokes.items()):
        y = top + (row + (0.32 if kind == "sum" else 0.68)) * row_height
        drawn = "".join(f"M{_LEFT + x:.1f} {y:.1f}h{width:.1f}" for x, width in _strokes(times, scale))
        yield f'<path class="{kind}" stroke-width="{row_height * 0.34:.1f}" d="{drawn}"/>'


def _strokes(times: list[tuple[float, float]], scale: float) -> Iterator[tuple[float, float]]:
    """The start and the length of each stroke. Strokes that overlap, or are too short to be seen apart, are merged."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted((start_s * scale, end_s * scale) for start_s, end_s in times):
        if merged and (start < merged[-1][1] - 1.0 or start < merged[-1][0] + _APART):
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return ((start, max(end - start - 1.0, 1.0)) for start, end in merged)


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named}>{escape(text)}</text>'


def _swatch(x: float, y: float, kind: str) -> str:
    return f'<path class="{kind}" stroke-width="5" d="M{x:.1f} {y - 4:.1f}h18"/>'
