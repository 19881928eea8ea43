"""A map of a simulated network: sites, the peers at each, their connections and the cables between the sites.

The width of a line shows the bytes that a connection carried, its colour the kind of link. If there are too many peers
at a site to be readable, some are drawn and the others are counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

from ..records.scene import BAD_ENDINGS, Cable, Place, Scene
from ..records.units import bytes_text, count_text, plain

MOST_SITES: Final = 12
LINK_INKS: Final = ("#4a78b5", "#d08a3c", "#7a5ea8", "#3d8b6e", "#b5536b", "#57808f", "#9a8a3f")
OTHER_INK: Final = "#8a94a3"
"""The colour of all further kinds of links, once `LINK_INKS` are used up."""
_WIDTH: Final = 1160.0
_PEER_R: Final = 13.0
_WIDEST: Final = 15.0
_WIDEST_OPEN: Final = 6.0
"""The width in pixels of the widest line between sites without a trunk."""
_APART: Final = 50.0
"""Distance between the centres of two neighbouring peers."""
_ISLAND: Final = 44.0
"""Margin of a site's ground around its peers."""
_BESIDE: Final = 70.0
"""Room for the labels beside a site."""


class _Spot(NamedTuple):
    x: float
    y: float

    def towards(self, angle: float, distance: float) -> _Spot:
        return _Spot(self.x + math.cos(angle) * distance, self.y + math.sin(angle) * distance)


class _Site(NamedTuple):
    """A site on the map. Its peers stand on an arc around `middle`. `radius`: the arc's radius in pixels; `outward`:
    the angle of the arc's middle; `arc`: the arc's extent; both in radians."""

    name: str
    places: Sequence[Place]
    middle: _Spot
    radius: float
    outward: float
    arc: float


class _Scale(NamedTuple):
    """The meaning of colours and widths in this map. `inks`: link -> colour; `most`: most bytes of a peer in one
    direction; `most_cabled`: most bytes between two sites; `lasted_s`: duration of the run; `endings`: peer -> how it
    ended."""

    inks: Mapping[str, str]
    most: int
    most_cabled: int
    lasted_s: float
    endings: Mapping[str, str]


def network_map(scene: Scene) -> str:
    """The map as an SVG element, followed by its legend in HTML. The page's style sheet sets its colours."""
    sites, height = _laid_out(scene)
    kinds = Counter(place.link for place in scene.places)
    scale = _Scale(
        inks={link: LINK_INKS[number] for number, link in enumerate(list(kinds)[: len(LINK_INKS)])},
        most=max((*(max(place.bytes_up, place.bytes_down) for place in scene.places), 1)),
        most_cabled=max((*(cable.bytes_ab + cable.bytes_ba for cable in scene.cables), 1)),
        lasted_s=scene.lasted_s,
        endings={stay.peer: stay.ending for stay in scene.stays},
    )
    where, shapes = {site.name: site for site in sites}, list[str]()
    for site in sites:
        x, y = site.middle
        shapes.append(f'<circle class="island" cx="{x:.1f}" cy="{y:.1f}" r="{site.radius + _ISLAND:.1f}"/>')
    for cable in scene.cables:
        if cable.a in where and cable.b in where:
            shapes += _cable(cable, where[cable.a].middle, where[cable.b].middle, scale)
    for site in sites:
        shapes += _site(site, scale, most_at(len(sites)))
    drawn = f'<svg class="map" viewBox="0 0 {_WIDTH:.0f} {height:.0f}" role="img">{"".join(shapes)}</svg>'
    hidden = len({place.site for place in scene.places}) - len(sites)
    more = [f"and {count_text(hidden, 'more site')}"] if hidden > 0 else []
    return drawn + _legend(kinds, scale, more)


def link_words(link: str) -> str:
    """``16mbit/1mbit,30ms,10ms`` -> '16mbit down, 1mbit up, 30ms, jitter 10ms'; ``10mbit,40ms`` -> '10mbit, 40ms'."""
    rate, *times = link.split(",")
    down, _, up = rate.partition("/")
    words = [f"{down} down, {up} up" if up else rate, *times[:1], *(f"jitter {jitter}" for jitter in times[1:2])]
    return ", ".join(words)


def most_at(sites: int) -> int:
    """The greatest number of peers that are drawn at each site, on a map of `sites` sites."""
    return 24 if sites <= 2 else 8 if sites <= 6 else 4


def _laid_out(scene: Scene) -> tuple[list[_Site], float]:
    """The sites with their places on the map, and the map's height in pixels. Sites stand on an ellipse, a single site
    in the middle. A site's peers stand on the side away from the other sites."""
    by_site: dict[str, list[Place]] = {}
    for place in scene.places:
        by_site.setdefault(place.site, []).append(place)
    names = list(by_site)[:MOST_SITES]
    count = len(names)
    arc = 2 * math.pi if count == 1 else 1.4 * math.pi if count == 2 else 1.1 * math.pi
    least = 84.0 if count <= 6 else 56.0
    radii = [max(least, min(len(by_site[name]), most_at(count)) * _APART / arc) for name in names]
    widest = max(radii, default=0.0)
    far_x = max(0.0, _WIDTH / 2 - widest - _ISLAND - _BESIDE) if count > 1 else 0.0
    angles = [math.pi + 2 * math.pi * number / count for number in range(count)]
    far_y = 0.0
    while count > 2 and not _apart([_Spot(math.cos(a) * far_x, math.sin(a) * far_y) for a in angles], radii):
        far_y += 20.0
    height = 2 * (far_y + widest + _ISLAND + 26.0)
    sites = []
    for name, angle, radius in zip(names, angles, radii, strict=True):
        middle = _Spot(_WIDTH / 2 + math.cos(angle) * far_x, height / 2 + 8 + math.sin(angle) * far_y)
        sites.append(_Site(name, by_site[name], middle, radius, angle, arc))
    return sites, height


def _apart(spots: Sequence[_Spot], radii: Sequence[float]) -> bool:
    """Whether no two sites, with their labels, overlap."""
    sites = list(zip(spots, radii, strict=True))
    return all(
        math.dist(one, other) >= reach + others + 2 * _ISLAND + 30
        for number, (one, reach) in enumerate(sites)
        for other, others in sites[number + 1 :]
    )


def _cable(cable: Cable, a: _Spot, b: _Spot, scale: _Scale) -> Iterator[str]:
    size = cable.bytes_ab + cable.bytes_ba
    told = [f"{cable.a} to {cable.b}: {bytes_text(cable.bytes_ab)}", f"back: {bytes_text(cable.bytes_ba)}"]
    told += [] if cable.link else ["no cable of their own: by the peers' connections alone"]
    if cable.Bps and scale.lasted_s > 0:
        busiest = max(cable.bytes_ab, cable.bytes_ba) / (cable.Bps * scale.lasted_s)
        told.append(f"{busiest:.1%} of what it could carry")
    style, widest = ("cable", 2 * _WIDEST) if cable.link else ("cable open", _WIDEST_OPEN)
    width = _wide(size, scale.most_cabled, widest)
    yield _line(a, b, width, f'class="{style}"', "; ".join(told))
    if cable.link:
        lines = [link_words(cable.link), bytes_text(size)]
        above = -3 if abs(a.y - b.y) > 60 else -22 - width / 2
        yield from _text((a.x + b.x) / 2, (a.y + b.y) / 2 + above, lines, "middle")


def _site(site: _Site, scale: _Scale, most: int) -> Iterator[str]:
    x, y = site.middle
    shown = site.places[:most]
    round_about = site.arc > 6
    step = site.arc / max(1, len(shown) - (not round_about))
    first = site.outward if round_about or len(shown) == 1 else site.outward - site.arc / 2
    spots = [site.middle.towards(first + step * number, site.radius) for number in range(len(shown))]
    for place, spot in zip(shown, spots, strict=True):
        sent, got = bytes_text(place.bytes_up), bytes_text(place.bytes_down)
        told = [f"peer {place.peer}: {link_words(place.link)}", f"sent {sent}", f"received {got}"]
        if scale.lasted_s > 0:
            busy = max(place.bytes_up / place.up_Bps, place.bytes_down / place.down_Bps) / scale.lasted_s
            told.append(f"its busier way carried {busy:.1%} of what it could")
        width = _wide(max(place.bytes_up, place.bytes_down), scale.most, _WIDEST)
        ink = scale.inks.get(place.link, OTHER_INK)
        yield _line(site.middle, spot, width, f'class="wire" stroke="{ink}"', "; ".join(told))
    yield f'<circle class="hub" cx="{x:.1f}" cy="{y:.1f}" r="7"/>'
    for place, spot in zip(shown, spots, strict=True):
        yield from _peer(place, spot, site, scale)
    left = len(site.places) - len(shown)
    lines = [*([site.name] if site.name else []), *([f"and {count_text(left, 'more peer')}"] if left else [])]
    above = y - site.radius - _ISLAND - 7 - 14 * (len(lines) - 1)
    yield from _text(x, above, lines, "middle", strong=bool(site.name))


def _peer(place: Place, spot: _Spot, site: _Site, scale: _Scale) -> Iterator[str]:
    ending = scale.endings.get(place.peer, "")
    bad = ending in BAD_ENDINGS
    ink = scale.inks.get(place.link, OTHER_INK)
    yield (
        f'<circle class="peer{" bad" if bad else ""}" stroke="{ink}" cx="{spot.x:.1f}" cy="{spot.y:.1f}" r="{_PEER_R}">'
        f"<title>{_said(f'peer {place.peer}: {ending}')}</title></circle>"
    )
    yield f'<text class="who" x="{spot.x:.1f}" y="{spot.y + 4:.1f}">{_said(plain(place.peer, 4))}</text>'
    angle = math.atan2(spot.y - site.middle.y, spot.x - site.middle.x)
    beside = spot.towards(angle, _PEER_R + 6)
    lines = [bytes_text(place.bytes_up + place.bytes_down), *([ending] if bad else [])]
    anchor = "middle" if abs(math.cos(angle)) < 0.3 else "start" if math.cos(angle) > 0 else "end"
    drop = 4 - 7 * (len(lines) - 1)
    if anchor == "middle":
        drop = 10 if math.sin(angle) > 0 else -14 * (len(lines) - 1)
    else:  # right beside its circle, whatever the angle
        beside = _Spot(spot.x + math.copysign(_PEER_R + 6, math.cos(angle)), spot.y + math.sin(angle) * _PEER_R)
    yield from _text(beside.x, beside.y + drop, lines, anchor)


def _legend(kinds: Mapping[str, int], scale: _Scale, more: Sequence[str]) -> str:
    rows = [(ink, f"{link_words(link)}: {count_text(kinds[link], 'peer')}") for link, ink in scale.inks.items()]
    left = sum(count for link, count in kinds.items() if link not in scale.inks)
    rows += [(OTHER_INK, f"other connections: {count_text(left, 'peer')}")] if left else []
    entries = [f'<span><i style="background:{ink}"></i>{_said(text)}</span>' for ink, text in rows]
    return f'<div class="legend">{"".join([*entries, *(f"<span>{_said(text)}</span>" for text in more)])}</div>'


def _wide(size: int, most: int, widest: float) -> float:
    return 1.2 + (widest - 1.2) * math.sqrt(size / most)


def _line(a: _Spot, b: _Spot, width: float, style: str, told: str) -> str:
    return (
        f'<line {style} x1="{a.x:.1f}" y1="{a.y:.1f}" x2="{b.x:.1f}" y2="{b.y:.1f}" stroke-width="{width:.1f}">'
        f"<title>{_said(told)}</title></line>"
    )


def _text(x: float, y: float, lines: Sequence[str], anchor: str, *, strong: bool = False) -> Iterator[str]:
    for number, line in enumerate(lines):
        style = ' class="strong"' if strong and number == 0 else ""
        yield f'<text{style} x="{x:.1f}" y="{y + 14 * number:.1f}" text-anchor="{anchor}">{_said(line)}</text>'


def _said(text: str) -> str:
    return escape(plain(text, 160))
