"""The periods by name, and the syntax by which a user chooses one: ``16``, ``auto``, ``adaptive``, ``post_local:16``,
``qsr:4:0.02``. Adding one is one file and one line here."""

from collections.abc import Callable, Mapping

from ..options import made_of, number, whole
from .adacomm import AdaComm
from .adaptive_periodic import Even
from .auto import Auto
from .fixed import Fixed
from .policy import PERIOD_LIMIT, PeriodPolicy
from .post_local import PostLocal
from .qsr import Quadratic


def parse_period(text: str) -> PeriodPolicy:
    """The policy a user asks for: a number of local steps, or a name of `PERIODS` with its options after colons.

    Raises ValueError, in one line, on anything else.
    """
    asked = text.strip()
    if set(asked) - set("+-.0123456789"):
        return made_of(asked, PERIODS, "period")
    if not (asked.isdigit() and len(asked) <= len(str(PERIOD_LIMIT))):
        raise ValueError(f"the period must be a whole number from 1 to {PERIOD_LIMIT}, got {asked!r:.60}")
    return Fixed(int(asked))


PERIODS: Mapping[str, tuple[Callable[..., PeriodPolicy], int]] = {
    "auto": (Auto, 0),
    "adaptive": (AdaComm, 0),
    "post_local": (lambda steps="16", after="0": PostLocal(whole(steps), whole(after)), 2),
    "qsr": (lambda steps="4", scale="0.0175": Quadratic(whole(steps), number(scale)), 2),
    "even": (lambda steps="4": Even(whole(steps)), 1),
}
"""Name -> a function that makes the policy from its options, which are texts, and the most options it takes."""
