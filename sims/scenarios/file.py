"""Scenario files: a whole simulated run in TOML. What cannot be is told in one line that names file, line and key.

task = "digits.py"            settings, with the keys of ``samovar train --config``, under [settings]
faults_until = "60s"          [[groups]]    peers, site, link, step_time or speed, memory
buggify = false               [[trunks]]    between, link
                              [[arrivals]]  peer, at
                              [[faults]]    kind, who, at | at_event | at_step, for, and what the kind needs
                              [[traces]]    file: who comes, goes and changes links, as CSV
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from ...peers import toml_rows as read
from ...peers.fields import SettingsError
from ...peers.links import parse_duration, parse_link
from ...peers.rules import MEASURED, shown
from ...peers.settings import Settings
from ...peers.toml_file import TomlFile, read_toml
from ...peers.toml_rows import Row, TableError, near, rows
from ...protocols.link_spec import LinkSpec
from ..links import Noise
from .scenario import AIMLESS, AT_ONCE, ROLES, TOY_SIZE, TOY_SIZE_MAX, Fault, Group, Kind, Scenario, usual_link
from .traces import Trace, read_trace

PEERS_MAX = 1_000_000
_NOISE = ("loss", "duplicate", "reorder", "corrupt")
_ONLY = {
    "factor": Kind.SLOW,
    "jump": Kind.CLOCK,
    "drift": Kind.CLOCK,
    "link": Kind.LINK,
    **dict.fromkeys(_NOISE, Kind.NOISE),
}
"""Keys of a fault that one kind alone has a use for."""
_FAULT = ("kind", "who", "at", "at_event", "at_step", "for", *_ONLY)
_GROUP = ("peers", "site", "link", "step_time", "speed", "memory")
_TOP = ("task", "settings", "groups", "trunks", "arrivals", "faults", "traces", "faults_until", "buggify", "toy_size")


@dataclass(frozen=True, slots=True)
class ScenarioFile:
    """`task`: what is trained; None: the toy task."""

    scenario: Scenario
    task: Path | None


def read_scenario(path: Path, flags: Mapping[str, object] | None = None) -> ScenarioFile:
    """`flags` win over ``[settings]``. Raises TableError."""
    try:
        file = read_toml(path, "scenario")
    except ValueError as error:
        raise TableError(str(error)) from None
    top = Row(file, (), _TOP)
    kinds = rows(file, "groups", _GROUP)
    counted = sum(map(_count, kinds))
    peers = counted or _settings(file, flags or {}).peers
    if peers > PEERS_MAX:
        raise TableError(f"{file.place('groups')}: groups: {peers} peers together, at most {PEERS_MAX} can be")
    trace = _traces(rows(file, "traces", ("file",)), path.parent, peers)
    arrivals = _arrivals(rows(file, "arrivals", ("peer", "at")), trace, peers)
    settings = _settings(file, flags or {}, founders=max(1, peers - len(arrivals)) if counted else None, kinds=kinds)
    if settings.peers > peers:
        place = file.place("settings", "peers")
        raise TableError(f"{place}: peers: {settings.peers} are to found the run, the groups have {peers}")
    groups = tuple(_group(row, settings, number) for number, row in enumerate(kinds)) or Scenario.plain(settings).groups
    until = top.take("faults_until", read.duration, None)
    task = top.take("task", read.file_name, None)
    scenario = Scenario(
        settings=settings,
        groups=groups,
        trunks=_trunks(rows(file, "trunks", ("between", "link")), [group.site for group in groups]),
        arrivals=arrivals,
        faults=(*_faults(rows(file, "faults", _FAULT), groups, heals=until is not None), *trace.faults),
        faults_until_s=until,
        buggify=top.take("buggify", read.flag, False),
        toy_size=top.take("toy_size", read.whole(1, TOY_SIZE_MAX), TOY_SIZE),
    )
    return ScenarioFile(scenario, None if task is None else path.parent / task)


def _settings(
    file: TomlFile, flags: Mapping[str, object], founders: int | None = None, kinds: Sequence[Row] = ()
) -> Settings:
    """`founders`: how many found the run when nothing says so; `kinds`: groups, which may say who is where."""
    if not isinstance(table := file.table.get("settings", {}), dict):
        raise TableError(f"{file.place('settings')}: settings must be a table, got {shown(table)}")
    given = {**flags, "device": "cpu"} | ({} if "peers" in table else {"peers": founders})
    hierarchical = given.get("site_period") is not None or {"site_period", "site-period"} & {*table}
    if hierarchical and "site" not in table and all("site" in row for row in kinds):
        given["site"] = ";".join(row.take("site", _site) for row in kinds for _ in range(_count(row))) or None
    try:
        settings = Settings.from_entries(file.entries("settings") if table else [], given)
    except SettingsError as error:
        raise TableError(str(error)) from None
    if settings.step_time == MEASURED:
        why = f"a scenario says how long: write what `simulate TASK --step-time {MEASURED}` tells"
        raise TableError(f"{file.place('settings')}: step_time: {why}")
    return settings


def _group(row: Row, settings: Settings, number: int) -> Group:
    if "speed" in row and "step_time" in row:
        raise row.wrong("speed", "goes by the step_time of the settings: give one of the two")
    step_s = row.take("step_time", read.some_time, parse_duration(settings.step_time))
    return Group(
        peers=_count(row),
        site=row.take("site", _site, ""),
        link=row.take("link", read.link, parse_link(usual_link(settings, number))),
        step_s=step_s / row.take("speed", read.factor, 1.0),
        memory_bytes=row.take("memory", read.size, 0),
    )


def _count(row: Row) -> int:
    return row.take("peers", read.whole(1, PEERS_MAX))


def _site(value: object) -> str:
    if value in ROLES:
        raise ValueError(f"{value} is a role, which a fault may be aimed at: call the site something else")
    return read.site(value)


def _trunks(found: list[Row], sites: list[str]) -> tuple[tuple[str, str, LinkSpec], ...]:
    def ends(value: object) -> tuple[str, str]:
        if not isinstance(value, list) or len(value) != 2 or value[0] == value[1]:
            raise ValueError(f'must be two sites, such as ["east", "west"], got {shown(value)}')
        for site in value:
            if site not in sites or not site:
                raise ValueError(f"nobody is at {shown(site)}; {near(site, [site for site in sites if site] or ['-'])}")
        return value[0], value[1]

    def cable(value: object) -> LinkSpec:
        link = read.link(value)
        if link.down_Bps is not None:
            raise ValueError("a trunk is the same in both directions")
        return link

    trunks = [(row, row.take("between", ends), row.take("link", cable)) for row in found]
    known: set[frozenset[str]] = set()
    for row, between, _ in trunks:
        if frozenset(between) in known:
            raise row.wrong("between", "these two sites have a trunk already")
        known.add(frozenset(between))
    return tuple((*between, link) for _, between, link in trunks)


def _arrivals(found: list[Row], trace: Trace, peers: int) -> tuple[tuple[int, float], ...]:
    late = dict(trace.arrivals)
    for row in found:
        peer = row.take("peer", lambda value: _peer(value, peers))
        if peer in late:
            raise row.wrong("peer", f"peer {peer} comes twice")
        late[peer] = row.take("at", read.duration)
    return tuple(late.items())


def _traces(found: list[Row], folder: Path, peers: int) -> Trace:
    arrivals: dict[int, float] = {}
    faults: list[Fault] = []
    for row in found:
        try:
            trace = read_trace(folder / row.take("file", read.file_name), peers)
        except TableError:
            raise
        except ValueError as error:
            raise TableError(str(error)) from None
        if twice := sorted(arrivals.keys() & dict(trace.arrivals).keys()):
            raise row.wrong("file", f"peer {twice[0]} comes twice")
        arrivals |= trace.arrivals
        faults += trace.faults
    return Trace(arrivals, faults)


def _faults(found: list[Row], groups: Sequence[Group], *, heals: bool) -> list[Fault]:
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
    when = [key for key in ("at", "at_event", "at_step") if key in row]
    if len(when) != 1:
        raise row.wrong("".join(when[1:2]), "say when with one of at, at_event and at_step")
    if when == ["at_step"] and not (who and isinstance(who[0], int)):
        raise row.wrong("at_step", "a step is that of the first in who, which must be the number of a peer")
    for key, only in _ONLY.items():
        if key in row and kind is not only:
            raise row.wrong(key, f"{kind} has no use for it")
    if "for" in row and kind in AT_ONCE:
        raise row.wrong("for", f"{kind} does not last")
    if kind in (Kind.PAUSE, Kind.RESTART, Kind.REPLACE, Kind.CLOG) and not ("for" in row or heals):
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
        factor=row.take("factor", read.factor) if kind is Kind.SLOW else row.take("jump", read.jump, 0.0),
        drift=row.take("drift", _drift, 0.0),
        noise=Noise(**{key: row.take(key, _probability, 0.0) for key in _NOISE}),
        link=row.take("link", read.link) if kind is Kind.LINK else None,
    )


def _kind(value: object) -> Kind:
    if not isinstance(value, str) or value not in list(Kind):
        raise ValueError(f"{shown(value)} is no fault; {near(value, [*Kind])}")
    return Kind(value)


def _probability(value: object) -> float:
    if not 0 <= (chance := read.number(value)) <= 1:
        raise ValueError(f"is a probability from 0 to 1, got {shown(value)}")
    return chance


def _drift(value: object) -> float:
    if not -1 <= (drift := read.number(value)) <= 1:
        raise ValueError(f"is seconds a second, from -1 to 1, got {shown(value)}")
    return drift


def _peer(value: object, peers: int) -> int:
    if type(value) is not int or not 0 <= value < peers:
        raise ValueError(f"there is no peer {shown(value)}, only 0 to {peers - 1}")
    return value


def _who(value: object, groups: Sequence[Group]) -> tuple[int | str, ...]:
    """Numbers, roles and sites; a site is all the peers there."""
    ones, peers = value if isinstance(value, list) else [value], sum(group.peers for group in groups)
    if len(ones) > peers:
        raise ValueError(f"more faults than peers: {len(ones)} are meant, there are {peers}")
    found: list[int | str] = []
    for one in ones:
        if isinstance(one, str) and one not in ROLES:
            found += _at_site(one, groups)
        else:
            found.append(one if isinstance(one, str) else _peer(one, peers))
    return tuple(found)


def _at_site(site: str, groups: Sequence[Group]) -> list[int]:
    ends = list(accumulate(group.peers for group in groups))
    there = [range(end - group.peers, end) for end, group in zip(ends, groups, strict=True) if group.site == site]
    if not site or not there:
        sites = dict.fromkeys(group.site for group in groups if group.site)
        raise ValueError(f"{shown(site)} is nobody; {near(site, [*ROLES, *sites])}")
    return [peer for peers in there for peer in peers]
