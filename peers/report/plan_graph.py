"""The chart of `samovar plan --protocol gossip`, an SVG file: the graph of each topology, its vertices on a circle."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from html import escape

from ...aggregation.mixing.topology import Neighbours
from .plan_chart import STYLE

_ACROSS, _CELL, _TOP, _EDGE, _RADIUS = 4, 220.0, 64.0, 24.0, 80.0
_FAINT = 600
"""Graphs of more edges are drawn in a fainter ink."""


def graph_chart(title: str, graphs: Mapping[str, Neighbours]) -> str:
    """The chart as the text of an SVG file. `graphs`: by their captions, the in-neighbours of each vertex. An edge is a
    line without an arrow, and one line in both directions."""
    rows = -(-len(graphs) // _ACROSS)
    width, height = 2 * _EDGE + _ACROSS * _CELL, _TOP + rows * (_CELL + 24.0)
    shapes = []
    for number, (caption, graph) in enumerate(graphs.items()):
        x = _EDGE + (number % _ACROSS + 0.5) * _CELL
        y = _TOP + number // _ACROSS * (_CELL + 24.0) + _CELL / 2
        shapes += [*_graph(graph, x, y)]
        shapes.append(f'<text text-anchor="middle" x="{x:.1f}" y="{y + _CELL / 2:.1f}">{escape(caption)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
        f'<rect class="page" width="{width:.0f}" height="{height:.0f}"/>'
        f'<text class="strong" x="{_EDGE}" y="36">{escape(title)}</text>{"".join(shapes)}</svg>\n'
    )


def _graph(graph: Neighbours, x: float, y: float) -> Iterator[str]:
    places = [_place(vertex, len(graph), x, y) for vertex in range(len(graph))]
    edges = {(min(vertex, other), max(vertex, other)) for vertex, of in enumerate(graph) for other in of}
    lines = "".join("M{:.1f} {:.1f}L{:.1f} {:.1f}".format(*places[one], *places[other]) for one, other in sorted(edges))
    yield f'<path fill="none" class="spread" opacity="{0.7 if len(edges) <= _FAINT else 0.2}" d="{lines}"/>'
    for at_x, at_y in places:
        yield f'<circle class="best" cx="{at_x:.1f}" cy="{at_y:.1f}" r="{3.0 if len(places) <= 64 else 1.5}"/>'


def _place(vertex: int, count: int, x: float, y: float) -> tuple[float, float]:
    angle = 2 * math.pi * vertex / count
    return x + _RADIUS * math.sin(angle), y - _RADIUS * math.cos(angle)
