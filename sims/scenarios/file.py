"""Scenario files: a whole simulated run in TOML. An error in one is a line of text that names file, line and key.

task = "digits.py"            settings, with the keys of ``samovar train --config``, under [settings]
faults_until = "60s"          [[groups]]    peers, site, link, step_time or speed, memory, role, dialable,
                                            budget, budget_per_day
buggify = false               [[trunks]]    between, link
                              [[arrivals]]  peer, at
                              [[faults]]    kind, who, at | at_event | at_step | at_message, for, and more
                              [[traces]]    file: arrivals, departures and changes of links, as CSV
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...peers.run_settings.settings import Settings, Tell, aloud, silently
from ...peers.settings import toml_rows as read
from ...peers.settings.fields import SettingsError
from ...peers.settings.link_text import parse_duration, parse_link
from ...peers.settings.toml_file import TomlFile, read_toml
from ...peers.settings.toml_rows import Row, TableError, near, rows
from ...peers.settings.unit_rules import MEASURED
from ...peers.settings.validators import shown
from ...protocols.limits import BEYOND_VIEWS, PEERS_MAX
from ...protocols.link_spec import LinkSpec
from ...protocols.members.attributes import SERVER
from .fault_rows import FAULT, faults_in, peer_number
from .scenario import PRIORITIES_MAX, ROLES, SPEAKERS, TOY_SIZE, TOY_SIZE_MAX, Fault, Group, Scenario, usual_link
from .traces import Trace, read_trace

_GROUP = ("peers", "site", "link", "step_time", "speed", "memory", "role", "dialable", "budget", "budget_per_day")
_TOP = (
    "task",
    "settings",
    "groups",
    "trunks",
    "arrivals",
    "faults",
    "traces",
    "faults_until",
    "buggify",
    "toy_size",
    "thaws",
    "evaluates",
    "priorities",
)


@dataclass(frozen=True, slots=True)
class ScenarioFile:
    """A parsed scenario file. `task`: path of the task to train; None: the toy task."""

    scenario: Scenario
    task: Path | None


def read_scenario(path: Path, flags: Mapping[str, object] | None = None, tell: Tell = aloud) -> ScenarioFile:
    """Read a scenario file. `flags` (None: none) override ``[settings]``; `tell` receives a line for each setting given
    by its former name. Raises TableError."""
    try:
        file = read_toml(path, "scenario")
    except ValueError as error:
        raise TableError(str(error)) from None
    top = Row(file, (), _TOP)
    kinds = rows(file, "groups", _GROUP)
    counted = sum(map(_count, kinds))
    peers = counted or _settings(file, flags or {}, silently).peers
    if peers > PEERS_MAX:
        raise TableError(f"{file.place('groups')}: groups: {peers} peers together, at most {PEERS_MAX} can be")
    trace = _traces(rows(file, "traces", ("file",)), path.parent, peers)
    arrivals = _arrivals(rows(file, "arrivals", ("peer", "at")), trace, peers)
    roles = [row.take("role", read.role, "") for row in kinds for _ in range(_count(row))]
    late = {peer for peer, _ in arrivals}
    servers = sum(role == SERVER for index, role in enumerate(roles) if index not in late)
    founders = max(1, peers - len(arrivals) - servers) if counted else None
    settings = _settings(file, flags or {}, tell, founders, kinds, servers)
    if peers > (most := settings.own.membership_kind().peers_max):
        why = f"at most {most} can be, all named in one message; {BEYOND_VIEWS}"
        raise TableError(f"{file.place('groups')}: groups: {peers} peers together, {why}")
    if settings.founders > peers:
        place = file.place("settings", "peers")
        raise TableError(f"{place}: peers: {settings.founders} are to found the run, the groups have {peers}")
    if counted and (wanted := settings.own.server_count()) > servers:
        row = f'a group with role = "{SERVER}"'
        raise TableError(f"{file.place('groups')}: groups: {wanted} servers found the run: add {row}")
    groups = tuple(_group(row, settings, number) for number, row in enumerate(kinds)) or Scenario.plain(settings).groups
    if not any(group.dialable for group in groups):
        raise TableError(f"{file.place('groups')}: groups: nobody can be dialled, so nobody can join")
    until = top.take("faults_until", read.duration, None)
    task = top.take("task", read.file_name, None)
    scenario = Scenario(
        settings=settings,
        groups=groups,
        trunks=_trunks(rows(file, "trunks", ("between", "link")), [group.site for group in groups]),
        arrivals=arrivals,
        faults=(*faults_in(rows(file, "faults", FAULT), groups, heals=until is not None), *trace.faults),
        faults_until_s=until,
        buggify=top.take("buggify", read.flag, False),
        toy_size=top.take("toy_size", read.whole(1, TOY_SIZE_MAX), TOY_SIZE),
        thaws=top.take("thaws", read.flag, False),
        evaluates=top.take("evaluates", read.flag, False),
        priorities=top.take("priorities", read.whole(0, PRIORITIES_MAX), None),
    )
    return ScenarioFile(scenario, None if task is None else path.parent / task)


def _settings(
    file: TomlFile,
    flags: Mapping[str, object],
    tell: Tell,
    founders: int | None = None,
    kinds: Sequence[Row] = (),
    servers: int = 0,
) -> Settings:
    """The settings of the run. `founders`: the number of founders that train, if the settings do not give `peers`, and
    `servers` of the others; `kinds`: the rows of the groups, which may give sites. Raises TableError."""
    if not isinstance(table := file.table.get("settings", {}), dict):
        raise TableError(f"{file.place('settings')}: settings must be a table, got {shown(table)}")
    given = {**flags, "device": "cpu"} | ({} if "peers" in table else {"peers": founders})
    given |= {"servers": servers} if servers and "servers" not in table else {}
    hierarchical = given.get("site_period") is not None or {"site_period", "site-period"} & {*table}
    if hierarchical and "site" not in table and all("site" in row for row in kinds):
        given["site"] = ";".join(row.take("site", _site) for row in kinds for _ in range(_count(row))) or None
    try:
        settings = Settings.from_entries(file.entries("settings") if table else [], given, tell)
    except SettingsError as error:
        of_groups = error.name == "peers" and "peers" not in table and kinds
        where = f"{file.place('groups')}: groups: all peers together {error.problem}"
        raise TableError(where if of_groups else str(error)) from None
    if settings.step_time == MEASURED:
        why = f"a scenario says how long: write what `simulate TASK --step-time {MEASURED}` tells"
        raise TableError(f"{file.place('settings')}: step_time: {why}")
    return settings


def _group(row: Row, settings: Settings, number: int) -> Group:
    if "speed" in row and "step_time" in row:
        raise row.wrong("speed", "goes by the step_time of the settings: give one of the two")
    step_s = row.take("step_time", read.duration, parse_duration(settings.step_time))
    return Group(
        peers=_count(row),
        site=row.take("site", _site, ""),
        link=row.take("link", read.link, parse_link(usual_link(settings, number))),
        step_s=step_s / row.take("speed", read.factor, 1.0),
        memory_bytes=row.take("memory", read.size, 0),
        dialable=row.take("dialable", read.flag, True),
        budget_Bps=row.take("budget", read.rate, 0.0),
        budget_a_day_bytes=row.take("budget_per_day", read.size, 0),
        role=row.take("role", read.role, ""),
    )


def _count(row: Row) -> int:
    return row.take("peers", read.whole(1, PEERS_MAX))


def _site(value: object) -> str:
    if value in (*ROLES, *SPEAKERS):
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
        peer = row.take("peer", lambda value: peer_number(value, peers))
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
