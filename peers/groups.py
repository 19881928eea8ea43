"""Groups of peers in a settings file, as a scenario has them: how many, and how each of them is connected."""

from __future__ import annotations

from collections.abc import Mapping

from . import toml_rows as read
from .toml_file import Entry, TomlFile
from .toml_rows import TableError, rows

_PEERS_MAX = 1_000_000


def without_groups(file: TomlFile, flags: Mapping[str, object]) -> list[Entry]:
    """What stands in the file, with its ``[[groups]]`` as the `peers` and the `link` that they come to.

    Raises TableError, also when a flag or another line of the file says one of these.
    """
    groups = rows(file, "groups", ("peers", "link"))
    entries = [entry for entry in file.entries() if entry.key != "groups"]
    if not groups:
        return entries
    for name in ("peers", "link"):
        places = [entry.place for entry in entries if entry.key == name]
        if flags.get(name) is not None or places:
            where = f"{places[0]}: {name}" if places else f"--{name}"
            raise TableError(f"{where}: the groups in {file.path} say it: leave out one of the two")
    links: list[str] = []
    for row in groups:
        links += [row.take("link", _link)] * row.take("peers", read.whole(1, _PEERS_MAX))
    place = file.place("groups")
    return [*entries, Entry("peers", len(links), place), Entry("link", ";".join(links), place)]


def _link(value: object) -> str:
    read.link(value)
    return str(value)
