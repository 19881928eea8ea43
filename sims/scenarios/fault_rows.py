"""Reading the tables under ``[[faults]]`` of a scenario file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from itertools import accumulate

from ...peers.settings import toml_rows as read
from ...peers.settings.toml_rows import Row, near
from ...peers.settings.validators import shown
from ..frames import names
from .lies import Lie
from .noise import Noise
from .scenario import AIMLESS, AT_ONCE, ROLES, SPEAKERS, Fault, Group, Kind, Moment

_NOISE = ("loss", "duplicate", "reorder", "corrupt")
_ONLY = {
    "factor": Kind.SLOW,
    "jump": Kind.CLOCK,
    "drift": Kind.CLOCK,
    "value": Kind.SPOIL,
    "link": Kind.LINK,
    "lie": Kind.HOSTILE,
    **dict.fromkeys(_NOISE, Kind.NOISE),
}
"""Key of a fault -> the only kind of fault that uses this key."""
FAULT = ("kind", "who", "at", "at_event", "at_step", "at_message", "for", *_ONLY)
_WHEN = ("at", "at_event", "at_step", "at_message")
_WAYS = ("sent", "received")
_MOMENT = re.compile(rf"(\w+) ([1-9]\d{{0,11}}) ({'|'.join(_WAYS)})(?: after (\w+))?", re.ASCII)


def faults_in(found: list[Row], groups: Sequence[Group], *, heals: bool) -> list[Fault]:
    """The faults in these rows, in their order. `heals`: the scenario heals all faults at some time, and a fault
    without a duration ends then. Raises TableError, also where more peers are to crash for good than there are."""
    faults, peers, crashed = [], sum(group.peers for group in groups), 0
    for row in found:
        faults.append(fault := _fault(row, groups, heals=heals))
        crashed += len(fault.who) if fault.kind is Kind.CRASH else 0
        if crashed > peers:
            raise row.wrong("who", f"more faults than peers: {crashed} are to crash for good, there are {peers}")
    return faults


def _fault(row: Row, groups: Sequence[Group], *, heals: bool) -> Fault:
    kind = row.take("kind", _kind)
    who = row.take("who", lambda value: _who(value, groups), ())
    if not who and kind not in AIMLESS:
        raise row.wrong("kind", f"{kind} whom? who is missing")
    when = [key for key in _WHEN if key in row]
    if len(when) != 1 and when != ["at", "at_message"]:
        raise row.wrong("".join(when[1:2]), f"say when with one of {', '.join(_WHEN)}")
    if when == ["at_step"] and not (who and isinstance(who[0], int)):
        raise row.wrong("at_step", "a step is that of the first in who, which must be the number of a peer")
    if "at_message" not in when and not {*SPEAKERS}.isdisjoint(who):
        raise row.wrong("who", f"only at_message has a {' and a '.join(SPEAKERS)}")
    if kind is Kind.SEPARATE and len(who) < 2:
        raise row.wrong("who", "part whom from whom? name two at least")
    for key, only in _ONLY.items():
        if key in row and kind is not only:
            raise row.wrong(key, f"{kind} has no use for it")
    if "lie" in row and not who:
        raise row.wrong("lie", "a lie of whom? who is missing")
    if "for" in row and kind in AT_ONCE:
        raise row.wrong("for", f"{kind} does not last")
    if kind in (Kind.PAUSE, Kind.RESTART, Kind.REPLACE, Kind.CLOG, Kind.OUTAGE) and not ("for" in row or heals):
        raise row.wrong("kind", f"{kind} for how long? for is missing")
    if kind is Kind.NOISE and not any(key in row for key in _NOISE):
        raise row.wrong("kind", f"noise needs one of {', '.join(_NOISE)}")
    if kind is Kind.CLOCK and not ("jump" in row or "drift" in row):
        raise row.wrong("kind", "clock needs one of jump, drift")
    return Fault(
        kind=kind,
        who=who,
        at_s=row.take("at", read.duration, None),
        at_event=row.take("at_event", read.whole(1, 10**12), None),
        at_step=row.take("at_step", read.whole(1, 10**12), None),
        for_s=row.take("for", read.some_time, 0.0),
        at_message=row.take("at_message", _moment, None),
        factor=_FACTOR[kind](row) if kind in _FACTOR else 1.0,
        drift=row.take("drift", _drift, 0.0),
        noise=Noise(**{key: row.take(key, _probability, 0.0) for key in _NOISE}),
        link=row.take("link", read.link) if kind is Kind.LINK else None,
        lie=row.take("lie", _lie, None),
    )


_FACTOR: dict[Kind, Callable[[Row], float]] = {
    Kind.SLOW: lambda row: row.take("factor", read.factor),
    Kind.CLOCK: lambda row: row.take("jump", read.jump, 0.0),
    Kind.SPOIL: lambda row: row.take("value", _element),
}


def _element(value: object) -> float:
    """The value that a spoiled element of a contribution gets: any number, or infinity."""
    return math.inf if value == math.inf else read.number(value)


def _moment(value: object) -> Moment:
    found = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        such = 'such as "Install 3 sent", or "Install 3 sent after Commit"'
        raise ValueError(f"must be a kind of message, its number and {' or '.join(_WAYS)}, {such}, got {shown(value)}")
    message, number, way, after = found.groups(default="")
    for kind in filter(None, (message, after)):
        if kind not in names():
            raise ValueError(f"{shown(kind)} is no kind of message; {near(kind, names())}")
    return Moment(message, int(number), way == "sent", after)


def _kind(value: object) -> Kind:
    if not isinstance(value, str) or value not in list(Kind):
        raise ValueError(f"{shown(value)} is no fault; {near(value, [*Kind])}")
    return Kind(value)


def _lie(value: object) -> Lie:
    if not isinstance(value, str) or value not in list(Lie):
        raise ValueError(f"{shown(value)} is no lie; {near(value, [*Lie])}")
    return Lie(value)


def _probability(value: object) -> float:
    if not 0 <= (chance := read.number(value)) <= 1:
        raise ValueError(f"is a probability from 0 to 1, got {shown(value)}")
    return chance


def _drift(value: object) -> float:
    if not -1 <= (drift := read.number(value)) <= 1:
        raise ValueError(f"is seconds a second, from -1 to 1, got {shown(value)}")
    return drift


def peer_number(value: object, peers: int) -> int:
    """`value`, if it is the number of one of `peers` peers, from 0 to `peers` - 1. Raises ValueError if it is not."""
    if type(value) is not int or not 0 <= value < peers:
        raise ValueError(f"there is no peer {shown(value)}, only 0 to {peers - 1}")
    return value


def _who(value: object, groups: Sequence[Group]) -> tuple[int | str, ...]:
    """The targets of a fault: numbers of peers, and roles. A site stands for the numbers of all peers there."""
    ones, peers = value if isinstance(value, list) else [value], sum(group.peers for group in groups)
    if len(ones) > peers:
        raise ValueError(f"more faults than peers: {len(ones)} are meant, there are {peers}")
    found: list[int | str] = []
    for one in ones:
        if isinstance(one, str) and one not in (*ROLES, *SPEAKERS):
            found += _at_site(one, groups)
        else:
            found.append(one if isinstance(one, str) else peer_number(one, peers))
    return tuple(found)


def _at_site(site: str, groups: Sequence[Group]) -> list[int]:
    ends = list(accumulate(group.peers for group in groups))
    there = [range(end - group.peers, end) for end, group in zip(ends, groups, strict=True) if group.site == site]
    if not site or not there:
        sites = dict.fromkeys(group.site for group in groups if group.site)
        raise ValueError(f"{shown(site)} is nobody; {near(site, [*ROLES, *sites])}")
    return [peer for peers in there for peer in peers]
