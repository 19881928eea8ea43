"""All settings of a run. Flags, TOML files, spawned processes and newcomers all read and check settings here."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...protocols.addresses import NOWHERE
from ...protocols.limits import BEYOND_VIEWS
from ..conversations.loading import chosen
from ..conversations.registry import CONVERSATIONS
from ..settings.common import USUAL_STEPS, ChosenSettings, CommonSettings
from ..settings.edge import of_edge
from ..settings.fields import FILE_ENDING, OwnSettings, SettingsError, Spoken
from ..settings.groups import without_groups
from ..settings.link_text import one_of
from ..settings.names import COMMON, PROTOCOL, agreed_of, fields_of, flag_of, present_names
from ..settings.toml_file import Entry, read_toml
from ..settings.validators import shown
from .described import Described
from .given import Tell as Tell
from .given import of_entries, of_flags, unknown

if TYPE_CHECKING:
    from typing import Unpack

    from ..settings.keywords import AllSettings

_OF_TASKS = {
    "steps": "a script takes as many steps as its own loop does",
    "arguments": "a script has them in sys.argv already",
    "seed": "a script seeds its own generators, by torch.manual_seed",
    "device": "a script moves its own model and batches to a device",
    "evaluate_every": "a script evaluates its own model, and reports that by run.metrics",
    "checkpoint_every_s": "a script saves its own checkpoints, by torch.save",
}
"""Settings that a training script decides in its own code, and how."""


def of_tasks(given: Mapping[str, object]) -> str:
    """The advice to leave out the first of the `given` settings (None: not given) that a training script decides in its
    own code, such as `steps`, in one line; "": there is none."""
    found = next((name for name in _OF_TASKS if given.get(name) is not None), None)
    return "" if found is None else f"leave out {flag_of(found)}: {_OF_TASKS[found]}"


def aloud(line: str) -> None:
    """Print ``samovar: `` and the line on stderr."""
    print(f"samovar: {line}", file=sys.stderr)


def silently(line: str) -> None:
    """Do nothing with the line: for a `Tell` that tells the user nothing."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, init=False)
class Settings(ChosenSettings):
    """The settings of a run: the common ones, and the chosen conversation's `own`. Construction checks them, alone and
    against each other, and raises SettingsError. In flags, TOML and JSON both kinds stand side by side."""

    def __init__(self, **given: Unpack[AllSettings]) -> None:
        """`given`: common settings and the conversation's own, by name. `own`, if given and of this conversation's
        class: the values of own settings that are not given; otherwise these take their defaults."""
        values: dict[str, Any] = {**given}
        common = {name: values.pop(name) for name in COMMON if name in values}
        common["protocol"] = chosen(common.get("protocol", PROTOCOL.default))
        CommonSettings.__init__(self, **of_edge(common))
        before = values.pop("own") if isinstance(values.get("own"), OwnSettings) else None
        kind, own_fields = self.protocol.value, fields_of(self.protocol)
        for name in values:
            if name not in own_fields:
                raise SettingsError(unknown(name, self.protocol))
        own = dataclasses.replace(before, **values) if type(before) is kind else kind(**values)
        object.__setattr__(self, "own", own)
        self.check()
        own.check(self)
        if self.peers > (most := own.membership_kind().peers_max):
            why = f"must be at most {most}, all named in one message, got {self.peers}; {BEYOND_VIEWS}"
            raise SettingsError(why, "peers")

    @property
    def steps_max(self) -> int | None:
        """The number of local steps of each peer after which the run is over at the latest: `steps`, or the usual
        number if no other setting is sure to end the run; a goal is not. None: another setting alone ends it."""
        return USUAL_STEPS if self.steps is None and not self.own.has_an_end() else self.steps

    @property
    def founders(self) -> int:
        """The number of peers that found the run: `peers`, which train, and the servers on top of them. The run begins
        when they have gathered; a large run under SWIM may begin when one in 32 is still missing."""
        return self.peers + self.own.server_count()

    def changed(self, **values: Any) -> Settings:
        """These settings with the given `values`, by name. If they change the protocol, the own settings of the new one
        that are not among `values` take their defaults. Raises SettingsError."""
        kept = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return Settings(**{**kept, **values})

    @classmethod
    def read(cls, toml: Path | None, flags: Mapping[str, object], tell: Tell = aloud) -> Settings:
        """The settings of a run. Flags (None: not given) override the TOML file, which overrides the defaults. `tell`
        is called with a line for each setting that is given by its former name. Raises SettingsError, which names the
        flag or the line of the file."""
        try:
            entries = without_groups(read_toml(toml), flags) if toml is not None else []
        except ValueError as error:
            raise SettingsError(str(error)) from None
        return cls.from_entries(entries, flags, tell)

    @classmethod
    def from_entries(cls, entries: Iterable[Entry], flags: Mapping[str, object], tell: Tell = aloud) -> Settings:
        """Settings from the `entries` of a TOML file or of one table of it. Flags (None: not given) override them, and
        what neither gives has its default. `tell` is called with a line for each former name. Raises SettingsError."""
        return cls()._with([*entries], flags, tell)

    def with_flags(self, flags: Mapping[str, object], tell: Tell = aloud) -> Settings:
        """These settings, overridden by flags (None: not given). Raises SettingsError, which names the flag."""
        return self._with([], flags, tell)

    def _with(self, entries: Sequence[Entry], flags: Mapping[str, object], tell: Tell) -> Settings:
        """These settings, overridden by entries, and by flags over entries. An error names the flag, or file and
        line."""
        spoken = _said(entries, flags) or self.protocol
        found = of_entries(entries, spoken, tell) | of_flags(flags, spoken, tell)
        values = {name: one.value for name, one in found.items()}
        try:
            return self.changed(**{**values, "protocol": spoken})
        except SettingsError as error:
            place = found[error.name].place if error.name in found else ""
            raise SettingsError(error.problem, error.name, place) from None

    def of_peer(self, index: int) -> Settings:
        """These settings for the peer with number `index`: of several links or sites they have that peer's alone."""
        return self.changed(**{name: one_of(kinds, index) for name, kinds in self._of_each_peer() if kinds is not None})

    def not_usual(self) -> dict[str, Any]:
        """Name -> value of the settings that differ from their defaults."""
        fields = fields_of(self.protocol)
        return {name: value for name, value in self.plain().items() if value != fields[name].default}

    def check_one_peer(self) -> None:
        """Raises SettingsError when these settings, which are for one peer, give several links or sites."""
        for name, kinds in self._of_each_peer():
            if kinds is not None and ";" in kinds:
                raise SettingsError(f"is of one peer here, got several: {kinds!r:.200}", name, f"--{name}")

    def check_founding(self) -> None:
        """Raises SettingsError when no other peer could join a run that is founded with these settings, because its
        first peers cannot be dialled."""
        if self.listens_at == NOWHERE:
            raise SettingsError(
                f"{NOWHERE} is for peers that join: of those that begin a run some must be dialled",
                "listen",
                "--listen",
            )

    def _of_each_peer(self) -> tuple[tuple[str, str | None], ...]:
        """Name and value of the settings that may hold several values, which are distributed over the peers."""
        return ("link", self.link), ("site", self.site)

    def plain(self) -> dict[str, Any]:
        """Name -> value of all settings, as text, number, boolean or None."""
        return {**self.values(), **self.own.values()}

    def to_json(self) -> str:
        """All settings (`plain`) as JSON, from which `from_json` reads them."""
        return json.dumps(self.plain())

    @classmethod
    def from_json(cls, text: str, tell: Tell = silently) -> Settings:
        """The settings that `to_json` wrote, each of which has to be there. A former name of a setting is accepted, and
        `tell` is called with a line on it. A file that `protocol` names is loaded, so the text must not come from a
        stranger. Raises SettingsError for any other text."""
        values = _parsed(text)
        said = values.get("protocol") if isinstance(values, Mapping) else None
        spoken = chosen(PROTOCOL.default if said is None else said)
        return cls(**_exactly(fields_of(spoken), values, tell))

    def agreed(self) -> dict[str, Any]:
        """Name -> value of the settings that all peers of a run share. The value of `protocol` includes the hash of its
        file."""
        values = {**self.plain(), "protocol": self.protocol.agreed}
        return {name: values[name] for name in agreed_of(self.protocol)}

    def agreed_json(self) -> str:
        """The settings of `agreed` as JSON, for `with_agreed` of a newcomer."""
        return json.dumps(self.agreed())

    def with_agreed(self, agreed: Mapping[str, object] | str, tell: Tell | None = None) -> Settings:
        """These settings, overridden by the settings that all peers of a run share. `agreed`: the result of another
        peer's `agreed` or `agreed_json`. The text may come from a stranger: a fault of any kind raises SettingsError.
        `tell`: called with a line when this peer's arguments are not the run's; None: that is a fault."""
        values = _parsed(agreed) if isinstance(agreed, str) else agreed
        spoken = self.protocol
        if isinstance(values, Mapping) and "protocol" in values:
            spoken = _agreed_protocol(self.protocol, values["protocol"])
        if isinstance(values, Mapping) and values.get("arguments", self.arguments) != self.arguments:
            if tell is None:
                raise SettingsError(_not_the_runs_arguments(self.arguments, values["arguments"]), "arguments")
            tell(f"this script's arguments are {shown(self.arguments)}, the run's {shown(values['arguments'])}")
        return self.changed(**{**_exactly(agreed_of(spoken), values, silently), "protocol": spoken})


def _documented() -> dict[str, list[dataclasses.Field[Any]]]:
    """All settings of the library, by the heading over them."""
    own = {name: chosen(name).value for name in CONVERSATIONS}
    groups = {f"Settings of protocol={name!r}": list(dataclasses.fields(kind)) for name, kind in own.items()}
    return {"Settings of every protocol": list(COMMON.values())} | groups


Settings.__doc__ = Described(Settings.__doc__, _documented)  # type: ignore[assignment]


def _said(entries: Iterable[Entry], flags: Mapping[str, object]) -> Spoken | None:
    """The conversation that flags or entries choose; None when they do not."""
    value, place = flags.get("protocol"), "--protocol"
    if value is None:
        found = next((entry for entry in entries if entry.key == "protocol"), None)
        if found is None:
            return None
        value, place = found.value, f"{found.place}: protocol"
    try:
        spoken = chosen(value)
    except SettingsError as error:
        raise SettingsError(error.problem, error.name, place) from None
    return spoken


def _agreed_protocol(own: Spoken, said: object) -> Spoken:
    """The conversation of a run to be joined. `own`: the one that this peer's settings choose; `said`: the run's, as
    `Spoken.agreed` gives it. Raises SettingsError when this peer does not have the run's. A file that `said` names is
    not opened, because the name comes from a stranger."""
    if said == own.agreed:
        return own
    name, digest = said, ""
    if isinstance(said, str) and "#" in said:
        name, _, digest = said.rpartition("#")
    if not own.digest and not str(name).endswith(FILE_ENDING):
        own = chosen(name)
    if own.agreed != said:
        raise SettingsError(_not_the_runs(own, name, digest), "protocol")
    return own


def _not_the_runs(own: Spoken, name: object, digest: str) -> str:
    if not own.digest:
        return f"must be the run's, {shown(name)}: give your copy of that file with --protocol FILE.py"
    if digest and name == own.name:
        return f"{shown(name)} is another file than the run's: its SHA-256 is {own.digest[:12]}, that {digest[:12]!a}"
    return f"must be the run's, {shown(name)}, got {shown(own.name)}"


def _not_the_runs_arguments(own: str, said: object) -> str:
    """The error for a newcomer whose task or script has other arguments than the run's. They are not taken from the
    run: they come from a stranger, and a task may open files by them."""
    return f"must be the run's, {shown(said)}, got {shown(own)}: give the same after --"


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise SettingsError(f"these settings are not JSON: {shown(text)}") from None


def _exactly(names: Mapping[str, dataclasses.Field[Any]], values: object, tell: Tell) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise SettingsError(f"these settings are not a table: {shown(values)}")
    values = dict(values)
    for former, name in present_names(names).items():
        if former in values and name not in values:
            if values[former] is not None:
                tell(f"{former} is called {name} now")
            values[name] = values.pop(former)
    odd = [f"lack {name}" for name in names if name not in values]
    odd += [f"have {shown(key)}, unknown here" for key in values if key not in names]
    if odd:
        raise SettingsError(f"these settings {odd[0]}: is it the same version of Samovar that wrote them?")
    return values
