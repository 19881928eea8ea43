"""All settings of a run. Flags, TOML files, spawned processes and newcomers all read and check them here."""

from __future__ import annotations

import dataclasses
import difflib
import json
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .compatibility import check
from .fields import Fields, SettingsError
from .groups import without_groups
from .link_text import one_of
from .toml_file import Entry, read_toml
from .validators import shown

_KNOWN_LETTERS = 380
"""At most so many characters of setting names appear in an error's line."""
Tell = Callable[[str], None]
"""Receives one line for the user, when a setting was given by its former name."""
_OF_TASKS = ("steps", "seed", "device", "evaluate_every", "checkpoint_every_s")


def of_tasks(given: Mapping[str, object]) -> str | None:
    """The first of `given` (None: not given) that a training script decides itself; None when there is none."""
    return next((name for name in _OF_TASKS if given.get(name) is not None), None)


def aloud(line: str) -> None:
    """Print the line on stderr."""
    print(f"samovar: {line}", file=sys.stderr)


def silently(line: str) -> None:
    """Drop the line."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Fields):
    """The settings of a run, checked together at construction. Raises SettingsError."""

    def __post_init__(self) -> None:
        Fields.__post_init__(self)
        check(self)
        if self.average == "gradients":
            object.__setattr__(self, "period", "1")

    @classmethod
    def read(cls, toml: Path | None, flags: Mapping[str, object], tell: Tell = aloud) -> Settings:
        """Flags (None: not given) override the TOML file, which overrides the defaults. `tell` receives a line for each
        setting given by its former name. Raises SettingsError naming flag or line."""
        try:
            entries = without_groups(read_toml(toml), flags) if toml is not None else []
        except ValueError as error:
            raise SettingsError(str(error)) from None
        return cls.from_entries(entries, flags, tell)

    @classmethod
    def from_entries(cls, entries: Iterable[Entry], flags: Mapping[str, object], tell: Tell = aloud) -> Settings:
        """As `read`, from the entries of a TOML file or of a table in one."""
        return cls()._with(_of_entries(entries, tell), _of_flags(flags, tell))

    def with_flags(self, flags: Mapping[str, object], tell: Tell = aloud) -> Settings:
        """These settings with flags (None: not given) over them. Raises SettingsError naming the flag."""
        return self._with(_of_flags(flags, tell))

    def _with(self, *given: Mapping[str, _Given]) -> Settings:
        """Later mappings override earlier ones. Errors name the place."""
        found = {name: one for some in given for name, one in some.items()}
        try:
            return dataclasses.replace(self, **{name: one.value for name, one in found.items()})
        except SettingsError as error:
            place = found[error.name].place if error.name in found else ""
            raise SettingsError(error.problem, error.name, place) from None

    def of_peer(self, index: int) -> Settings:
        """The settings of the peer with this number: of several links and sites, its own."""
        several = {"link": self.link, "site": self.site}
        own = {name: one_of(kinds, index) for name, kinds in several.items() if kinds is not None}
        return dataclasses.replace(self, **own)  # type: ignore[arg-type]

    def idle_sites(self) -> str:
        """Why the sites of a run's first peers have no effect, in one line; "": they have one, or there are no
        sites."""
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
    def from_json(cls, text: str, tell: Tell = silently) -> Settings:
        """Settings that `to_json` wrote, also before a setting was renamed. Raises SettingsError on any other text."""
        return cls(**_exactly(_FIELDS, _parsed(text), tell))

    def agreed(self) -> dict[str, Any]:
        """The settings that all peers of a run share."""
        return {name: getattr(self, name) for name, field in _FIELDS.items() if field.metadata["agreed"]}

    def agreed_json(self) -> str:
        return json.dumps(self.agreed())

    def with_agreed(self, agreed: Mapping[str, object] | str) -> Settings:
        """These settings with a run's shared ones, from `agreed` or `agreed_json`. They may come from a stranger: any
        fault raises SettingsError, never another error."""
        values = _parsed(agreed) if isinstance(agreed, str) else agreed
        return dataclasses.replace(self, **_exactly(self.agreed(), values, silently))


_FIELDS = {field.name: field for field in dataclasses.fields(Settings)}
_PRESENT = {former: name for name, field in _FIELDS.items() if (former := field.metadata["former"])}
"""Former name of a setting -> its present name."""


class _Given(NamedTuple):
    """A setting's value, the place where it was given, and the name used there: the present or the former one."""

    value: Any
    place: str
    key: str


def _of_entries(entries: Iterable[Entry], tell: Tell) -> dict[str, _Given]:
    found: dict[str, _Given] = {}
    for entry in entries:
        key = entry.key.replace("-", "_")
        place = f"{entry.place}: {key}"
        if (name := _PRESENT.get(key, key)) not in _FIELDS:
            raise SettingsError(_unknown(entry.key), place=f"{entry.place}:")
        if name in found:
            other = found[name].key
            how = "with a dash and with an underscore" if key == other else f"as {other} and as {key}"
            raise SettingsError(f"is given twice, {how}", place=place)
        if key != name:
            tell(f"{place} is called {name} now")
        found[name] = _Given(entry.value, place, key)
    return found


def _of_flags(flags: Mapping[str, object], tell: Tell) -> dict[str, _Given]:
    found: dict[str, _Given] = {}
    for key, value in flags.items():
        if (name := _PRESENT.get(key, key)) not in _FIELDS:
            raise SettingsError(_unknown(key))
        if value is None:
            continue
        if name in found:
            raise SettingsError(f"is given twice, as {_flag(found[name].key)} and as {_flag(key)}", place=_flag(name))
        if key != name:
            tell(f"{_flag(key)} is called {_flag(name)} now")
        found[name] = _Given(value, _flag(key), key)
    return found


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


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


def _exactly(names: Mapping[str, object], values: object, tell: Tell) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise SettingsError(f"these settings are not a table: {shown(values)}")
    values = dict(values)
    for former, name in _PRESENT.items():
        if former in values and name in names and name not in values:
            if values[former] is not None:
                tell(f"{former} is called {name} now")
            values[name] = values.pop(former)
    odd = [f"lack {name}" for name in names if name not in values]
    odd += [f"have {shown(key)}, unknown here" for key in values if key not in names]
    if odd:
        raise SettingsError(f"these settings {odd[0]}: is it the same version of Samovar that wrote them?")
    return values
