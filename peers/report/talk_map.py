"""The graph of the peers that gave each other models, of the whole run and of stretches of it. The peers stand on a
circle. The width of an edge shows the bytes that went along it, both ways together."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from statistics import median
from typing import Final, NamedTuple

from ..records.run import Run, natural
from ..records.tally import elsewhere_in
from ..records.units import bytes_text, count_text, plain, span_text
from .scene_charts import RECEIVED_INK

STRETCHES: Final = 6
MOST_DRAWN: Final = 200
MOST_EDGES: Final = 500
_NAMED: Final = 24
"""The most peers of a graph whose names are written."""
_LETTERS: Final = 3
"""The most characters of a label that stands in its peer's circle. Where one is longer, all stand beside theirs."""
_LETTERS_BESIDE: Final = 14
"""The most characters of a label beside its circle."""
_LETTER_WIDE: Final = 8.0
"""The width of a letter or digit in the widest of the usual fonts, in the units of the drawing."""
_NAMELESS: Final = re.compile("[0-9a-f]{12}")
"""The form of a peer in records where its name is not known: the first letters of its key. In a simulation, whose peers
all have records, every other name is such a one. A newcomer's folder has records of its own alone."""
_WIDTH, _BIG, _SMALL = 1160.0, 460.0, 228.0
_DOT_MOST: Final = 13.0
_FAINT: Final = 300
"""Graphs of more edges are drawn in a fainter ink."""

Ways = Counter[tuple[str, str]]
"""Bytes by (giver, taker)."""


class _Talk(NamedTuple):
    """The models exchanged in a stretch of time. `ways`: bytes by (giver, taker); `there`: the peers that made an
    exchange in it."""

    title: str
    ways: Ways
    there: set[str]


def talked(run: Run) -> bool:
    """Whether the run's records tell which peers gave models to which."""
    return any(record.received_from for record in run.exchanges)


def talk_map(run: Run) -> str:
    """The graphs as HTML: one of the whole run, and one each of up to `STRETCHES` stretches of equal time, in each of
    which most peers make two exchanges or more. Only for a run with an exchange."""
    whole, stretches = _talks(run)
    names = _names(whole)
    shown = names[:MOST_DRAWN]
    room = _LETTER_WIDE * max(map(len, labels_of(shown).values()), default=0) if len(shown) <= _NAMED else 0.0
    shapes = [*_graph(whole, shown, _BIG / 2, _BIG / 2 + 18, _BIG / 2 - max(62.0, 20.0 + room), whole=True)]
    most = max((size for talk in stretches for size in _edges(talk.ways).values()), default=1)
    across = _BIG + 8
    for number, talk in enumerate(stretches):
        x = across + (number % 3 + 0.5) * (_WIDTH - across) / 3
        y = (number // 3 + 0.5) * (_SMALL + 16) + 6
        shapes += _graph(talk, shown, x, y, _SMALL / 2 - 38, most=most)
    height = _BIG + 20
    notes = ["the wider an edge, the more bytes of models went along it; point at it for more"]
    if len(names) > len(shown):
        notes.append(f"{count_text(len(names) - len(shown), 'more peer')} not drawn")
    if any(len(_names(talk)) < len(names) for talk in stretches):
        notes.append("dashed: a peer that made no exchange in that time")
    if elsewhere_in(run):
        notes.append("what peers elsewhere got is in the reports there")
    return (
        f'<svg class="map" viewBox="0 0 {_WIDTH:.0f} {height:.0f}" role="img" aria-label="messages between peers">'
        f'{"".join(shapes)}</svg><div class="legend">{"".join(f"<span>{_said(note)}</span>" for note in notes)}</div>'
    )


def edge_table(run: Run) -> str:
    """The table of the bytes on each edge, the most first and `MOST_EDGES` at most, as HTML in a block that the reader
    unfolds. Only for a run with an exchange."""
    ways = _talks(run)[0].ways
    edges = _edges(ways)
    rows = "".join(
        f'<tr><td class="text name">{_said(a)}</td><td class="text name">{_said(b)}</td>'
        f"<td>{bytes_text(ways[a, b])}</td><td>{bytes_text(ways[b, a])}</td><td>{bytes_text(size)}</td></tr>"
        for (a, b), size in edges.most_common(MOST_EDGES)
    )
    heads = '<th class="text">Peer</th><th class="text">and peer</th><th>Gave it</th><th>Got from it</th><th>Both</th>'
    left = len(edges) - MOST_EDGES
    cut = f'<p class="note">{count_text(left, "more edge")}.</p>' if left > 0 else ""
    return (
        f'<details class="card"><summary>Bytes on each of {count_text(len(edges), "edge")}</summary>'
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>{cut}</details>'
    )


def _talks(run: Run) -> tuple[_Talk, list[_Talk]]:
    first_s, last_s = run.exchanges[0].time_s, run.exchanges[-1].time_s
    each = Counter(record.peer for record in run.exchanges)
    count = max(1, min(STRETCHES, round(median(each.values())) // 2))
    ends = [first_s + (last_s - first_s) * number / count for number in range(1, count)]
    spans = zip([0.0, *ends], [*ends, last_s], strict=True)
    stretches = [_Talk(span_text(a, b, last_s), Ways(), set()) for a, b in spans]
    whole = _Talk("the whole run", Ways(), set())
    for record in run.exchanges:
        for talk in (whole, stretches[bisect_left(ends, record.time_s)]):
            talk.there.add(record.peer)
            for giver, size in record.received_from.items():
                talk.ways[giver, record.peer] += size
    known = {*run.peers, *(peer.peer for peer in elsewhere_in(run))}
    for talk in (whole, *stretches):
        for way in [way for way in talk.ways if way[0] not in known and (run.scene or _NAMELESS.fullmatch(way[0]))]:
            del talk.ways[way]  # it had left before its name was known
    return whole, stretches


def _names(talk: _Talk) -> list[str]:
    return sorted({*talk.there, *(name for way in talk.ways for name in way)}, key=natural)


def _edges(ways: Ways) -> Counter[tuple[str, str]]:
    """Bytes both ways, by the two peers in natural order."""
    found = Counter[tuple[str, str]]()
    for (giver, taker), size in ways.items():
        first, second = sorted((giver, taker), key=natural)
        found[first, second] += size
    return found


def _graph(
    talk: _Talk, names: Sequence[str], x: float, y: float, radius: float, *, most: int = 0, whole: bool = False
) -> Iterator[str]:
    spots = {name: _spot(number, len(names), x, y, radius) for number, name in enumerate(names)}
    edges = {ends: size for ends, size in _edges(talk.ways).items() if spots.keys() >= {*ends}}
    most, widest = most or max(edges.values(), default=1), 7.0 if whole else 4.0
    widest *= min(1.0, 12 / max(1, len(names)) + 0.25)
    faint = 0.75 if len(edges) <= _FAINT else 0.25
    for (a, b), size in sorted(edges.items(), key=lambda item: item[1]):
        told = f"{a} to {b}: {bytes_text(talk.ways[a, b])}, back: {bytes_text(talk.ways[b, a])}"
        (ax, ay), (bx, by) = spots[a], spots[b]
        width = 0.6 + (widest - 0.6) * size / most
        yield (
            f'<line stroke="{RECEIVED_INK}" stroke-opacity="{faint}" stroke-width="{width:.1f}" '
            f'x1="{ax:.1f}" y1="{ay:.1f}" x2="{bx:.1f}" y2="{by:.1f}"><title>{_said(told)}</title></line>'
        )
    yield from _dots(talk, spots, x, y, radius, whole=whole)
    style, above = (' class="strong"', y - radius - 42) if whole else ("", y - radius - 16)
    told = f"{talk.title}: {bytes_text(sum(talk.ways.values()))}"
    yield f'<text{style} x="{x:.1f}" y="{above:.1f}" text-anchor="middle">{_said(told)}</text>'


def _dots(
    talk: _Talk, spots: Mapping[str, tuple[float, float]], x: float, y: float, radius: float, *, whole: bool
) -> Iterator[str]:
    dot = min(_DOT_MOST if whole else 5.0, 2.2 * radius / max(1, len(spots)))
    taken, given = Counter[str](), Counter[str]()
    for (giver, taker), size in talk.ways.items():
        given[giver] += size
        taken[taker] += size
    labels = labels_of([*spots]) if whole and len(spots) <= _NAMED else {}
    beside = any(len(label) > _LETTERS for label in labels.values())
    for name, (at_x, at_y) in spots.items():
        told = f"peer {name}: gave {bytes_text(given[name])}, took {bytes_text(taken[name])}"
        absent = "" if name in talk.there or taken[name] or given[name] else " bad"
        yield (
            f'<circle class="peer{absent}" stroke="{RECEIVED_INK}" cx="{at_x:.1f}" cy="{at_y:.1f}" r="{dot:.1f}">'
            f"<title>{_said(told)}</title></circle>"
        )
        if name in labels:
            yield _label(labels[name], at_x, at_y, (at_x - x) / radius, (at_y - y) / radius, beside=beside)


def _label(label: str, x: float, y: float, right: float, down: float, *, beside: bool) -> str:
    """The label of the dot at `x`, `y`: in it, or, `beside` it, outside of the circle of all dots, whose centre lies in
    the direction opposite to `right`, `down`, a vector of length 1."""
    anchor = "middle" if not beside or abs(right) < 0.1 else "start" if right > 0 else "end"
    if beside:
        x, y = x + _DOT_MOST * 1.4 * right, y + _DOT_MOST * 1.6 * down
    return f'<text class="who" style="text-anchor:{anchor}" x="{x:.1f}" y="{y + 4:.1f}">{_said(label)}</text>'


def labels_of(names: Sequence[str]) -> dict[str, str]:
    """Name -> a label of at most `_LETTERS_BESIDE` characters that no other of the `names` has: the name, or its
    beginning, or its end, in which peers that joined from one machine differ, or else its number among the names."""
    forms = {
        name: (plain(name, _LETTERS_BESIDE), plain(name, 160)[-_LETTERS_BESIDE:], f"#{number}")
        for number, name in enumerate(names, 1)
    }
    held = Counter(form for one in forms.values() for form in {*one})
    return {name: next((form for form in one if held[form] == 1), one[-1]) for name, one in forms.items()}


def _spot(number: int, count: int, x: float, y: float, radius: float) -> tuple[float, float]:
    angle = 2 * math.pi * number / max(1, count)
    return x + radius * math.sin(angle), y - radius * math.cos(angle)


def _said(text: str) -> str:
    return escape(plain(text, 160))
