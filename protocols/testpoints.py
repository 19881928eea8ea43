"""Test points: events that a simulation observes in a peer, and places at which it disturbs the peer. Outside of a
simulation they do nothing.

`witness` reports an event that the checkers of a simulation read. `sometimes` marks a place that a good sweep of
simulations reaches (Antithesis' "sometimes" properties). `buggify` asks whether to do something legal but unlikely: an
early deadline, the smallest chunk, a message sent twice (FoundationDB's BUGGIFY).
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Witness(Protocol):
    """A simulation's receiver of the calls of the functions below, under the same names."""

    def saw(self, event: object) -> None: ...

    def sometimes(self, what: str) -> None: ...

    def buggify(self, site: str) -> bool: ...


WITNESS: ContextVar[Witness | None] = ContextVar("witness", default=None)
"""The witness of the peer that runs in this context; a simulation sets it."""


@dataclass(frozen=True, slots=True)
class Became:
    """Event for a simulation's checkers, in a conversation in which each peer keeps a model of its own: this peer's
    model is `vector` [n] after its exchange number `version`."""

    version: int
    vector: Tensor


def witnessed() -> bool:
    """Whether a simulation observes this peer. If not, the caller need not compute events that cost much to make."""
    return WITNESS.get() is not None


def witness(event: object) -> None:
    """Report an event to the simulation's checkers, which check promises by it. Outside of a simulation it does
    nothing."""
    if (there := WITNESS.get()) is not None:
        there.saw(event)


def sometimes(what: str) -> None:
    """Report that the code has reached the place named `what`, which is reached only after certain failures. A long
    sweep of simulations has to reach each such place that is not listed as rare. Outside of a simulation it does
    nothing."""
    if (there := WITNESS.get()) is not None:
        there.sometimes(what)


def buggify(site: str) -> bool:
    """Whether to do the legal but unlikely thing at the place named `site`, as the simulation draws it; False outside
    of a simulation."""
    return (there := WITNESS.get()) is not None and there.buggify(site)
