"""Parameters that lie in a vector of the conversation, where they take no memory of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from torch import Tensor, nn

from ..errors import EvaluationFailed
from .averaged import Averaged
from .convolutions import SmallConvolutions
from .writes import Writes

_REFUSAL: Final = (
    "it writes to the model's parameters, and did not in its first call: on an edge peer they lie in memory that other"
    " peers read; let evaluate() write to a copy of the model, or in its first call too"
)


class Resting:
    """The parameters of one model, which lie in a vector, or in memory of their own. They may lie in a vector only
    while nobody writes to them."""

    def __init__(self, averaged: Averaged) -> None:
        self._averaged, self._parameters = averaged, list[Tensor]()
        self.wished = False
        """Whether to free the memory of the parameters between works, where the job allows it: they lie in the vector
        of the last update then. For a peer with little memory, as each work begins with a copy more."""
        self.allowed = False
        """Whether the job allows it: the conversation only reads the vector of the update."""
        self._reads: bool | None = None
        """Whether evaluate() has only read the parameters, each time that they had memory of their own; None: it has
        not run yet."""

    def lie_in(self, vector: Tensor | None) -> None:
        """Free the parameters' memory, if that is wished and allowed: `vector` [n] has their values. None: no."""
        if vector is not None and self.wished and self.allowed:
            self.wake()
            self._parameters = self._averaged.rest_in(vector)

    def wake(self) -> None:
        """Give the parameters memory of their own again. Called before anything writes to them."""
        for parameter in self._parameters:
            parameter.data = parameter.data.clone()
        self._parameters = []

    @contextmanager
    def evaluated(self, model: nn.Module) -> Iterator[None]:
        """While in this context the task's evaluate() runs with `model`. If rest is wished, it runs in little memory,
        and the parameters lie in the vector meanwhile if an earlier evaluate() only read them. Else they have memory of
        their own: the vector belongs to others too. Raises EvaluationFailed, and leaves the vector as it is, when
        evaluate() writes to parameters in a vector, also if the task's code catches the error."""
        if not self.wished:
            yield
            return
        if not self._reads:
            self.wake()
        rests = bool(self._parameters)
        with SmallConvolutions(), Writes(model.parameters(), _REFUSAL if rests else None) as writes:
            yield
        if rests and writes.found:
            raise EvaluationFailed(f"in evaluate(): {_REFUSAL}")
        self._reads = self._reads is not False and not writes.found
