"""All settings of a run, in one place: flags, TOML files, spawned processes and newcomers read and check them here."""

from __future__ import annotations

import dataclasses
import difflib
import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .combined import check
from .fields import Fields, SettingsError
from .groups import without_groups
from .links import one_of
from .rules import shown
from .toml_file import Entry, read_toml

_KNOWN_LETTERS = 380
"""Of the names of all settings, in an error's line."""
_OF_TASKS = ("steps", "seed", "device", "evaluate_every", "checkpoint_every_s")


def of_tasks(given: Mapping[str, object]) -> str | None:
    """The first of those that are given (None: not given) though a training script decides that itself."""
    return next((name for name in _OF_TASKS if given.get(name) is not None), None)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Fields):
    """Checked when made: raises SettingsError."""

    def __post_init__(self) -> None:
        Fields.__post_init__(self)
        check(self)
        if self.average == "gradients":
            object.__setattr__(self, "period", "1")

    @classmethod
    def read(cls, toml: Path | None, flags: Mapping[str, object]) -> Settings:
        """Flags (None: not given) over the TOML file over the defaults. Raises SettingsError naming flag or line."""
        try:
            entries = without_groups(read_toml(toml), flags) if toml is not None else []
        except ValueError as error:
            raise SettingsError(str(error)) from None
        return cls.from_entries(entries, flags)

    @classmethod
    def from_entries(cls, entries: Iterable[Entry], flags: Mapping[str, object]) -> Settings:
        """The same from what stands in a TOML file, or in a table of one."""
        values, places = _by_name(entries)
        for name, value in flags.items():
            if name not in _FIELDS:
                raise SettingsError(_unknown(name))
            if value is not None:
                values[name], places[name] = value, f"--{name.replace('_', '-')}"
        try:
            return cls(**values)
        except SettingsError as error:
            raise SettingsError(error.problem, error.name, places.get(error.name, "")) from None

    def of_peer(self, index: int) -> Settings:
        """What the peer with this number goes by: of several links and sites, its own."""
        several = {"link": self.link, "site": self.site}
        own = {name: one_of(kinds, index) for name, kinds in several.items() if kinds is not None}
        return dataclasses.replace(self, **own)  # type: ignore[arg-type]

    def idle_sites(self) -> str:
        """Why the sites of the peers that begin a run do nothing, in one line; "": they do, or there are none."""
        if self.site is None:
            return ""
        if self.site_period is None:
            return "--site does nothing without --site-period"
        sites = Counter(one_of(self.site, index) for index in range(self.peers))
        if len(sites) == 1:
            (site,) = sites
            return f'all {self.peers} peers are at one site, "{site}": each average of a site is one of all peers'
        alone = max(sites.values()) == 1
        return "no two peers are at one site: --site-period does nothing" if alone else ""

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """What `to_json` wrote. Raises SettingsError on anything else."""
        return cls(**_exactly(_FIELDS, _parsed(text)))

    def agreed(self) -> dict[str, Any]:
        """The settings that all peers of a run share."""
        return {name: getattr(self, name) for name, field in _FIELDS.items() if field.metadata["agreed"]}

    def agreed_json(self) -> str:
        return json.dumps(self.agreed())

    def with_agreed(self, agreed: Mapping[str, object] | str) -> Settings:
        """These settings with the shared ones of a run, as `agreed` or `agreed_json` gave them. They may come from a
        stranger: raises SettingsError, never another error."""
        values = _parsed(agreed) if isinstance(agreed, str) else agreed
        return dataclasses.replace(self, **_exactly(self.agreed(), values))


_FIELDS = {field.name: field for field in dataclasses.fields(Settings)}


def _by_name(entries: Iterable[Entry]) -> tuple[dict[str, Any], dict[str, str]]:
    values, places = {}, {}
    for entry in entries:
        name = entry.key.replace("-", "_")
        if name not in _FIELDS:
            raise SettingsError(_unknown(entry.key), place=f"{entry.place}:")
        if name in values:
            raise SettingsError("is given twice, with a dash and with an underscore", place=f"{entry.place}: {name}")
        values[name], places[name] = entry.value, f"{entry.place}: {name}"
    return values, places


def _unknown(key: str) -> str:
    close = difflib.get_close_matches(key[:100].replace("-", "_"), _FIELDS, n=1)
    known = textwrap.shorten(", ".join(_FIELDS), _KNOWN_LETTERS, placeholder=" ... (samovar train --help tells all)")
    hint = f'did you mean "{close[0]}"?' if close else f"known are {known}"
    return f"unknown key {json.dumps(key[:60])}; {hint}"


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise SettingsError(f"these settings are not JSON: {shown(text)}") from None


def _exactly(names: Mapping[str, object], values: object) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise SettingsError(f"these settings are not a table: {shown(values)}")
    odd = [f"lack {name}" for name in names if name not in values]
    odd += [f"have {shown(key)}, unknown here" for key in values if key not in names]
    if odd:
        raise SettingsError(f"these settings {odd[0]}: is it the same version of Samovar that wrote them?")
    return dict(values)
