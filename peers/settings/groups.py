"""The ``[[groups]]`` tables of a settings file or scenario. Each gives a number of peers, and their link, site and
role."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from ...protocols.limits import PEERS_MAX
from . import toml_rows as read
from .toml_file import Entry, TomlFile
from .toml_rows import TableError, rows


def without_groups(file: TomlFile, flags: Mapping[str, object]) -> list[Entry]:
    """The entries of the file, with its ``[[groups]]`` replaced by the equivalent `peers`, `servers`, `link` and
    `site`; `link` and `site` are left out if no group has them; else all must, and each group must have one of the two.
    Peers that train are numbered before the servers. `flags`: the given flags, by name; None: not given. A file without
    groups gives its entries as they are.

    Raises TableError for an invalid group, and when a flag or another line of the file sets one of the settings that
    replace the groups.
    """
    groups = rows(file, "groups", ("peers", "link", "site", "role"))
    groups.sort(key=lambda row: row.take("role", read.role, ""))  # the peers that train are numbered first
    entries = [entry for entry in file.entries() if entry.key != "groups"]
    if not groups:
        return entries
    ways = {"link": _link, "site": read.site}
    said = {name: way for name, way in ways.items() if any(name in row for row in groups)} or {"link": _link}
    servers = sum(row.take("peers", _count) for row in groups if row.take("role", read.role, ""))
    for name in ("peers", *(("servers",) if servers else ()), *said):
        places = [entry.place for entry in entries if entry.key == name]
        if flags.get(name) is not None or places:
            where = f"{places[0]}: {name}" if places else f"--{name}"
            raise TableError(f"{where}: the groups in {file.path} say it: leave out one of the two")
    counts = [row.take("peers", _count) for row in groups]
    place = file.place("groups")
    for name, way in said.items():
        each = [[row.take(name, way)] * count for row, count in zip(groups, counts, strict=True)]
        entries.append(Entry(name, ";".join(chain.from_iterable(each)), place))
    own = [Entry("servers", servers, place)] if servers else []
    return [*entries, Entry("peers", sum(counts) - servers, place), *own]


_count = read.whole(1, PEERS_MAX)


def _link(value: object) -> str:
    read.link(value)
    return str(value)
