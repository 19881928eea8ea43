"""The messages between a coordinator, the heads of ranges and workers (`coordinator`, `orders`, `portions`). `ask` and
`epoch` are those of the other messages of the parameter server (`messages`)."""

from __future__ import annotations

from dataclasses import dataclass

from ..wire.frames import PAYLOAD_BYTES_MAX, Lane, message
from .messages import PARAMETER_SERVER

_data = message(PARAMETER_SERVER, lane=Lane.DATA, payload_max=PAYLOAD_BYTES_MAX)
_control = message(PARAMETER_SERVER)


@_control
@dataclass(frozen=True, slots=True)
class Take:
    """From a worker to the head of the first range: asks for a portion to map in `step`. `again`: it has waited for the
    end of the step for long."""

    ask: int
    epoch: int
    step: int
    again: bool

    @property
    def ranges(self) -> tuple[int, ...]:
        """The range that the question is about, always the first one: its head is the coordinator."""
        return (0,)


@_control
@dataclass(frozen=True, slots=True)
class Portion:
    """The answer to Take. `of`: 1 + the number of a portion; 0: the worker is to wait for the end of the step."""

    ask: int
    of: int


@_control
@dataclass(frozen=True, slots=True)
class Measure:
    """From the coordinator to the heads of `ranges`: asks for their dot products once all copies have had the updates
    of `step` steps."""

    ask: int
    epoch: int
    step: int
    ranges: tuple[int, ...]


@_data
@dataclass(frozen=True, slots=True)
class Measured:
    """The answer to Measure. `orders`: by range, the number of orders that all its copies have obeyed. Payload, in
    float64: the sum of the ranges' Gram matrices, the loss if its range is among them or else 0, and the last order of
    the range that has obeyed most."""

    ask: int
    orders: tuple[int, ...]


@_control
@dataclass(frozen=True, slots=True)
class Obey:
    """From the coordinator to the heads of `ranges`: the `order` after the updates of `step` steps. A range that has
    obeyed it does not do so again."""

    ask: int
    epoch: int
    step: int
    ranges: tuple[int, ...]
    order: tuple[float, ...]


@_control
@dataclass(frozen=True, slots=True)
class Obeyed:
    """The answer to Obey: all copies of its ranges have obeyed."""

    ask: int
