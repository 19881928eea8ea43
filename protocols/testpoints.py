"""What a simulation may see of a peer, and disturb in it. Outside of one all of this is nothing.

`witness` tells of an event that the checkers of a simulation look at. `sometimes` marks a place that a good sweep of
simulations reaches (Antithesis' "sometimes" properties). `buggify` asks whether to do something legal but unlikely at
one of our own places: an early deadline, the smallest chunk, a message sent twice (FoundationDB's BUGGIFY).
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol


class Witness(Protocol):
    """The simulation's side."""

    def saw(self, event: object) -> None: ...

    def sometimes(self, what: str) -> None: ...

    def buggify(self, site: str) -> bool: ...


WITNESS: ContextVar[Witness | None] = ContextVar("witness", default=None)
"""Of the peer that runs in this context; a simulation sets it."""


def witness(event: object) -> None:
    """Something happened here that a promise is about."""
    if (there := WITNESS.get()) is not None:
        there.saw(event)


def sometimes(what: str) -> None:
    """The code has come to where it comes only when things go wrong in a certain way."""
    if (there := WITNESS.get()) is not None:
        there.sometimes(what)


def buggify(site: str) -> bool:
    """Whether to do the unlikely thing here; never outside a simulation."""
    return (there := WITNESS.get()) is not None and there.buggify(site)
