"""An allreduce as data: the steps of each rank.

A schedule cuts the vector into parts. For every rank it lists, step by step, which parts to send to which other rank,
and which to receive and add or copy. One executor runs any schedule, one cost model predicts its time (`cost`), and
`verify` proves that it is an allreduce. Schedules do not handle the failure of a peer: the round is then abandoned, and
a new one begins in the smaller world.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Op(Enum):
    """The receiver's operation on a received part: ADD it to its own, or replace its own by it (COPY)."""

    ADD = "add"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class Transfer:
    """A send in a step: this rank sends the part with the index ``part`` to rank ``peer``."""

    peer: int
    part: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """A receipt in a step: this rank receives the part with the index ``part`` from rank ``peer``, and adds or copies
    it."""

    peer: int
    part: int
    op: Op


@dataclass(frozen=True, slots=True)
class Step:
    """The sends and receipts of one rank that happen together: every send carries the part's values from before any
    receipt of this step.

    All parts sent to one peer in one step are one message; receipts apply in their order. A rank with nothing to do in
    a step has an empty one, so that step numbers mean the same on every rank.
    """

    send: tuple[Transfer, ...] = ()
    receive: tuple[Receipt, ...] = ()


class Schedule(Protocol):
    """One way to run an allreduce. The vector's parts are `vector.parts(size, schedule.parts(world))`, equal up to one
    element, or of given shares. A schedule can be hashed; two that are equal have the same parts and steps."""

    @property
    def name(self) -> str: ...

    def parts(self, world: int) -> int:
        """The number of parts into which the vector is cut among ``world`` ranks."""
        ...

    def steps(self, rank: int, world: int) -> tuple[Step, ...]:
        """The steps of ``rank`` in the allreduce, in order. Empty in a world of one. Raises ValueError unless 0 <= rank
        < world."""
        ...


def check_rank(rank: int, world: int) -> None:
    """Raises ValueError unless 0 <= rank < world."""
    if not 0 <= rank < world:
        raise ValueError(f"there is no rank {rank} in a world of {world}")


def sends(peer: int, parts: Iterable[int]) -> tuple[Transfer, ...]:
    """The sends of these parts to rank ``peer``, in the order given."""
    return tuple(Transfer(peer, part) for part in parts)


def adds(peer: int, parts: Iterable[int]) -> tuple[Receipt, ...]:
    """The receipts of these parts from rank ``peer``, each of which is added."""
    return tuple(Receipt(peer, part, Op.ADD) for part in parts)


def copies(peer: int, parts: Iterable[int]) -> tuple[Receipt, ...]:
    """The receipts of these parts from rank ``peer``, each of which replaces the receiver's own."""
    return tuple(Receipt(peer, part, Op.COPY) for part in parts)
