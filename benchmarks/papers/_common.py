"""What the scripts of papers do alike: options, a claim beside what came out here, and the figure."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))  # its helpers are those of all benchmarks

from common import MISSED

Curve = Sequence[tuple[float, float]]

_INKS = ("#3f6fb0", "#c2412d", "#3d8b6e", "#7a5ea8", "#b07a2a", "#66788a", "#1d2633")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 860.0, 460.0, 70.0, 640.0, 60.0, 400.0
_TICKS = 5


@dataclass(frozen=True, slots=True)
class Claim:
    """`paper`: what it says; `ours`: what came out; `goal`: what was to come out here; None: it is only told."""

    paper: str
    goal: str
    ours: str
    held: bool | None = None


Row = dict[str, Any]
Found = tuple[list[Row], list[Claim]]
"""The rows of a study, and its claims."""


def arguments(description: str | None, name: str) -> argparse.Namespace:
    return parser(description, name).parse_args()


def parser(description: str | None, name: str) -> argparse.ArgumentParser:
    """--quick within a minute, --json FILE for machines, --figure FILE for people."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="a short run, within a minute; losses are not judged")
    made.add_argument("--json", type=Path, metavar="FILE", help="write rows and claims")
    made.add_argument("--figure", type=Path, metavar="FILE", default=Path(f"{name}.svg"), help="[default: %(default)s]")
    return made


def parsed_with_seeds(known: argparse.ArgumentParser, usual: int) -> argparse.Namespace:
    """The options, and as `seeds` those of all runs of each."""
    known.add_argument("--seeds", type=int, help=f"how many runs of each [default: {usual}, with --quick 1]")
    options = known.parse_args()
    options.seeds = range(options.seeds or (1 if options.quick else usual))
    return options


def studied(studies: Iterable[Callable[[bool], Found]], *, quick: bool) -> Found:
    """Make these studies, which are told whether to be `quick`, one after another, and print the rows of each."""
    rows, claims = list[Row](), list[Claim]()
    for study in studies:
        found, told = study(quick)
        for row in found:
            print("  " + ", ".join(f"{one:.6g}" if isinstance(one, float) else str(one) for one in row.values()))
        rows, claims = rows + found, claims + told
    return rows, claims


def conclude(
    options: argparse.Namespace, rows: Sequence[Mapping[str, Any]], claims: Sequence[Claim], figure: str | None
) -> int:
    """Print the claims, write the files, but for a figure where there is nothing to draw; the exit code: that a
    claim was not held, or 0."""
    print()
    for claim in claims:
        verdict = "" if claim.held is None else "held: " if claim.held else "MISSED: "
        print(f"paper: {claim.paper}\n  goal: {claim.goal}\n  {verdict}{claim.ours}")
    if figure is not None:
        options.figure.write_text(figure, encoding="utf-8")
        print(f"figure: {options.figure}")
    if options.json is not None:
        told = {"rows": [dict(row) for row in rows], "claims": [asdict(claim) for claim in claims]}
        options.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return MISSED if any(claim.held is False for claim in claims) else 0


def chart(
    title: str,
    across: str,
    up: str,
    curves: Mapping[str, Curve],
    *,
    dashed: Mapping[str, Curve] | None = None,
    log_x: bool = False,
) -> str:
    """Curves as an SVG file, as wide as all of them; what is not finite is left out. `dashed`: what belongs to the
    curve of the same name, in its ink."""
    kept, beside = (
        {name: [(x, y) for x, y in curve if math.isfinite(y)] for name, curve in some.items()}
        for some in (curves, dashed or {})
    )
    points = [point for some in (kept, beside) for curve in some.values() for point in curve]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    x_low, x_high, y_low, y_high = min(xs), max(xs), min(ys), max(ys)

    def at_x(x: float) -> float:
        share = math.log(x / x_low) / math.log(x_high / x_low) if log_x else (x - x_low) / ((x_high - x_low) or 1.0)
        return _LEFT + share * (_RIGHT - _LEFT)

    def at_y(y: float) -> float:
        return _BOTTOM - (y - y_low) / ((y_high - y_low) or 1.0) * (_BOTTOM - _TOP)

    parts = [_text(_LEFT, 30, title, "b"), _text(_LEFT, _BOTTOM + 45, across), _text(_LEFT - 50, _TOP - 12, up)]
    for tick in range(_TICKS + 1):
        share = tick / _TICKS
        x = x_low * (x_high / x_low) ** share if log_x else x_low + share * (x_high - x_low)
        y = y_low + share * (y_high - y_low)
        parts.append(f'<path class="g" d="M{_LEFT} {at_y(y):.1f}H{_RIGHT}"/>')
        parts += [_text(_LEFT - 50, at_y(y) + 4, f"{y:.3g}"), _text(at_x(x) - 10, _BOTTOM + 22, f"{x:.3g}")]
    for number, (name, curve) in enumerate(kept.items()):
        ink = _INKS[number % len(_INKS)]
        for line, look in ((curve, ""), (beside.get(name, ()), ' stroke-dasharray="6 4"')):
            path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in line)
            if path:
                parts.append(f'<polyline fill="none" stroke="{ink}" stroke-width="2"{look} points="{path}"/>')
        parts.append(_text(_RIGHT + 20, _TOP + 22 * number, name, ink=ink))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" font-family="sans-serif" '
        'font-size="13"><style>.g{stroke:#d5dae1}.b{font-weight:600}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _text(x: float, y: float, text: str, kind: str = "", ink: str = "#1d2633") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" fill="{ink}">{escape(text)}</text>'
