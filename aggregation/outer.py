"""The outer step: what the combined update of a round does to the model.

The shape is that of an optimizer without hidden state: ``start`` makes the state, ``step`` returns the new vector and
the new state. Momentum, Nesterov (DiLoCo) or Adam on the difference ``anchor - mean`` is one more class with state
tensors of its own.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

OuterState = tuple[Tensor, ...]


class OuterStep(Protocol):
    """What becomes of a round's mean.

    ``anchor``: the vector (n elements) all peers shared when the round's local steps began; ``mean``: their weighted
    mean after them.
    """

    def start(self, vector: Tensor) -> OuterState:
        """The state before the first round, for a model of ``vector`` (n elements)."""
        ...

    def step(self, anchor: Tensor, mean: Tensor, state: OuterState) -> tuple[Tensor, OuterState]:
        """The vector the next round starts from, and the state after this one. Writes into none of its arguments.

        Raises ValueError where shapes or dtypes differ or the state is another step's.
        """
        ...


@dataclass(frozen=True, slots=True)
class Plain:
    """The mean becomes the model (FedAvg, Algorithm 1; PASGD). No state."""

    def start(self, vector: Tensor) -> OuterState:
        return ()

    def step(self, anchor: Tensor, mean: Tensor, state: OuterState) -> tuple[Tensor, OuterState]:
        """Returns ``mean`` itself, not a copy."""
        check_step(anchor, mean, state, tensors=0)
        return mean, ()


def check_step(anchor: Tensor, mean: Tensor, state: OuterState, tensors: int) -> None:
    """Raises ValueError unless ``mean`` and the ``tensors`` of the state are all like ``anchor``."""
    if len(state) != tensors:
        raise ValueError(f"this outer step keeps {tensors} tensors of state, got {len(state)}: another step's?")
    for tensor in (mean, *state):
        if tensor.shape != anchor.shape or tensor.dtype != anchor.dtype:
            got, want = (f"{t.dtype} of shape {tuple(t.shape)}" for t in (tensor, anchor))
            raise ValueError(f"an outer step needs vectors alike: {got} does not fit {want}")
