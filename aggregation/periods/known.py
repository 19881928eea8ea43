"""The periods by name, and how a user asks for one: ``16``, ``auto``, ``adaptive``, ``post_local:16``, ``qsr:4:0.02``.
Adding one is one file and one line here."""

from collections.abc import Callable, Mapping

from .adacomm import AdaComm
from .auto import Auto
from .even import Even
from .fixed import Fixed
from .policy import PERIOD_LIMIT, PeriodPolicy
from .post_local import PostLocal
from .quadratic import Quadratic

TEXT_MAX = 60
"""Characters of a period with its options, at most."""


def parse_period(text: str) -> PeriodPolicy:
    """The policy a user asks for: a number of local steps, or a name of `PERIODS` with its options after colons.

    Raises ValueError, in one line, on anything else.
    """
    name, *options = text.strip().split(":")
    if len(text) > TEXT_MAX:
        raise ValueError(f"{text!r:.30} has {len(text)} characters, beyond {TEXT_MAX}")
    if name not in PERIODS:
        if options or set(name) - set("+-.0123456789"):
            raise ValueError(f"there is no period {text!r}; there are {', '.join(PERIODS)}, and numbers of local steps")
        return Fixed(_whole(name))
    make, least, most = PERIODS[name]
    if not least <= len(options) <= most:
        count = f"{least} to {most} options" if most > least else f"{most or 'no'} options"
        raise ValueError(f"{name} takes {count}, got {text!r}")
    return make(*options)


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"the period must be a whole number from 1 to {PERIOD_LIMIT}, got {text!r}")
    return int(text)


def _number(text: str) -> float:
    if not text or set(text) - set("0123456789.e-"):
        raise ValueError(f"{text!r} is no number")
    return float(text)


PERIODS: Mapping[str, tuple[Callable[..., PeriodPolicy], int, int]] = {
    "auto": (Auto, 0, 0),
    "adaptive": (AdaComm, 0, 0),
    "post_local": (lambda steps, after="0": PostLocal(_whole(steps), _whole(after)), 1, 2),
    "qsr": (lambda steps, scale: Quadratic(_whole(steps), _number(scale)), 2, 2),
    "even": (lambda steps="4": Even(_whole(steps)), 0, 1),
}
"""By name: what makes it out of its options, texts, and how many options it takes."""
