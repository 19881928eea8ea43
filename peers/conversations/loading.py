"""Finding the conversation that `--protocol` names: one of the library's, a file of the user's, or one of an installed
package.

Each peer has its own copy of such a file or package. Peers compare the copies by hash and never send them.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from sys import modules
from typing import Final

from ...aggregation.options import OptionError
from ..reasons import reason
from ..settings.common import CommonSettings
from ..settings.fields import FILE_ENDING, OwnSettings, SettingsError, Spoken, checked
from ..settings.names import PROTOCOL
from ..user_code import imported
from .registry import CONVERSATIONS, ENTRY_POINTS, Registered

_FILES: Final[dict[tuple[Path, str], Registered]] = {}
"""The conversations of imported files, by file and digest, so that two equal files give settings of one class."""


def loaded(text: str) -> Spoken:
    """The conversation that `text` names: a file if it ends in .py, else a name of the library's or of an installed
    package's, with hyphens or underscores. Raises OptionError when there is none, or it cannot be imported."""
    if text.endswith(FILE_ENDING):
        return _of_file(Path(text))
    name = text.replace("-", "_")
    if name in CONVERSATIONS:
        found = import_module(CONVERSATIONS[name]).CONVERSATION
        return Spoken(name, found.settings, registered=found)
    installed = {entry.name.replace("-", "_"): entry for entry in entry_points(group=ENTRY_POINTS)}
    if name in installed:
        return _of_package(name, installed[name])
    known = ", ".join([*CONVERSATIONS, *installed])
    raise OptionError(f"there is none called {text[:60]!a}; known are {known}, and a FILE.py of your own")


def chosen(value: object) -> Spoken:
    """The conversation that a value of the setting `protocol` chooses: a text as `loaded` takes it, or a `Spoken`.
    Raises SettingsError for any other value, and for a text that `loaded` refuses."""
    try:
        found = loaded(value) if isinstance(value, str) else value
    except OptionError as error:
        raise SettingsError(f"is refused: {error}", PROTOCOL.name) from None
    spoken: Spoken = checked(PROTOCOL, found)
    return spoken


def of_others(name: str, spoken: Spoken) -> list[str]:
    """The library's conversations, other than `spoken`, that have a setting called `name`."""
    return [other for other in CONVERSATIONS if other != spoken.text and name in own_names(loaded(other))]


def own_names(spoken: Spoken) -> set[str]:
    """The names of the conversation's own settings, including names that they had in earlier versions."""
    return _names(spoken.value)


def _of_file(path: Path) -> Spoken:
    try:
        source = path.read_bytes()
    except (OSError, ValueError) as error:
        raise OptionError(f"{path}: cannot be read: {reason(error)}") from None
    whole, digest = path.resolve(), sha256(source).hexdigest()
    if (whole, digest) not in _FILES:
        module = imported(path, OptionError, "protocol_")
        _FILES[whole, digest] = _checked(getattr(module, "CONVERSATION", None), f"{path}")
    found = _FILES[whole, digest]
    return Spoken(str(whole), found.settings, digest, found)


@cache
def _of_package(name: str, entry: EntryPoint) -> Spoken:
    try:
        found = _checked(entry.load(), f"{entry.value}, of an installed package,")
    except OptionError:
        raise
    except Exception as error:
        why = " ".join(str(error).split())
        raise OptionError(f"{entry.value} cannot be imported: {type(error).__name__}: {why}") from error
    source = modules[entry.module].__file__
    return Spoken(name, found.settings, sha256(Path(source or "").read_bytes()).hexdigest(), found)


def _checked(found: object, where: str) -> Registered:
    if not isinstance(found, Registered):
        raise OptionError(f"{where} has no CONVERSATION = Registered(...), as in samovar.peers.conversations.registry")
    kind = found.settings
    if not (isinstance(kind, type) and issubclass(kind, OwnSettings) and dataclasses.is_dataclass(kind)):
        raise OptionError(f"{where}: its settings are no dataclass derived from OwnSettings")
    if twice := sorted(_names(kind) & {*_names(CommonSettings), "own"}):
        raise OptionError(f"{where}: {twice[0]} is a setting of every conversation: call it something else")
    for field in dataclasses.fields(kind):
        if "rule" not in field.metadata:
            raise OptionError(f"{where}: {field.name} is not declared by setting(default, rule, help)")
    try:
        kind()
    except (ValueError, TypeError) as error:
        raise OptionError(f"{where}: its settings have no valid defaults: {error}") from None
    return found


def _names(kind: type[OwnSettings | CommonSettings]) -> set[str]:
    fields = dataclasses.fields(kind)
    return {name for field in fields for name in (field.name, field.metadata.get("former", "")) if name}
