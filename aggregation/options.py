"""The syntax by which a user chooses an algorithm: a name with options after colons, as in ``top_k:0.01:fp16``.

The tables of names use underscores. A user may write hyphens (`spelled`).
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")

TEXT_MAX = 60
"""The most characters of a name with its options."""


class UnknownName(ValueError):
    """Raised for an unknown `name`. `known`: the names that there are; `said`: the message, one line."""

    def __init__(self, said: str, name: str, known: tuple[str, ...]) -> None:
        super().__init__(said)
        self.name, self.known = name, known


class OptionError(ValueError):
    """Raised for a known name whose options are invalid. Its message is one line."""


def spelled(text: str) -> str:
    """`text` with its hyphens before the first colon replaced by underscores: ``top-k:0.01`` becomes ``top_k:0.01``."""
    name, colon, options = text.partition(":")
    return name.replace("-", "_") + colon + options


def made_of(text: str, known: Mapping[str, tuple[Callable[..., T], int]], what: str, longest: int = TEXT_MAX) -> T:
    """The object that a user's `text` asks for, a name with options after colons; spaces around it are ignored.

    `known`: by name, the function that makes the object, and the most options that it takes. It is called with the
    options as texts; each must have a default, and it raises ValueError on invalid ones. `what`: the kind of object,
    for errors; `longest`: the most characters of `text`.

    Raises UnknownName, in one line, on an unknown name; OptionError on too many options, on options that the function
    refuses, and on a `text` that is too long.
    """
    name, *options = spelled(text.strip()).split(":")
    if name not in known:
        raise UnknownName(f"there is no {what} {name!r:.60}; there are {', '.join(known)}", name[:TEXT_MAX], (*known,))
    if len(text) > longest:
        raise OptionError(f"the {what} {name} has options of {len(text)} characters, beyond {longest}")
    make, most = known[name]
    if len(options) > most:
        raise OptionError(f"the {what} {name} takes {most or 'no'} options, got {text!r:.90}")
    try:
        return make(*options)
    except ValueError as error:
        raise OptionError(f"the {what} {text!r:.90} cannot be: {error}") from None


def number(text: str) -> float:
    """The number in `text`; infinite where it is beyond the range of floats. Raises ValueError on any other text, also
    on nan and inf."""
    if not text or set(text) - set("0123456789.e-"):
        raise ValueError(f"{text!r} is no number")
    return float(text)


def whole(text: str) -> int:
    """The whole number in `text`, at least 0. Raises ValueError on any other text."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is no whole number")
    return int(text)
