"""How a user asks for one of several things: by name, with options after colons, as in ``top_k:0.01:fp16``.

The tables of names use underscores. A user may write hyphens (`spelled`).
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")

TEXT_MAX = 60
"""Characters of a name with its options, at most."""


class OptionError(ValueError):
    """There is something of that name, but not with such options. One line."""


def spelled(text: str) -> str:
    """`text` with its name, up to the first colon, as the tables spell it: ``top-k:0.01`` becomes ``top_k:0.01``."""
    name, colon, options = text.partition(":")
    return name.replace("-", "_") + colon + options


def made_of(text: str, known: Mapping[str, tuple[Callable[..., T], int]], what: str) -> T:
    """What `text` asks for. `known`, by name: what makes it out of its options, texts, and how many options it takes at
    most; `what` all of them are.

    Raises ValueError, in one line, on a name that is unknown, OptionError on options that are silly.
    """
    name, *options = spelled(text.strip()).split(":")
    if name not in known:
        raise ValueError(f"there is no {what} {name!r:.60}; there are {', '.join(known)}")
    if len(text) > TEXT_MAX:
        raise OptionError(f"the {what} {name} has options of {len(text)} characters, beyond {TEXT_MAX}")
    make, most = known[name]
    if len(options) > most:
        raise OptionError(f"the {what} {name} takes {most or 'no'} options, got {text!r}")
    try:
        return make(*options)
    except ValueError as error:
        raise OptionError(f"the {what} {text!r} cannot be: {error}") from None


def number(text: str) -> float:
    """Raises ValueError on what is no plain number, such as nan."""
    if not text or set(text) - set("0123456789.e-"):
        raise ValueError(f"{text!r} is no number")
    return float(text)


def whole(text: str) -> int:
    """Raises ValueError on what is no whole number, from 0 on."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is no whole number")
    return int(text)
