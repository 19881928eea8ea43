"""The correction of local steps by which a conversation changes each gradient, or each step, of a replica."""

from __future__ import annotations

import torch
from torch import Tensor

from ...protocols.work import AfterStep, Correction, OnGradient


class Corrector:
    """Applies `correction` to each local step: an `OnGradient` before the optimizer's step, an `AfterStep` after it.
    `parameters`, here and in the methods: all trained parameters, in the vector's order."""

    def __init__(self, correction: Correction, parameters: list[Tensor]) -> None:
        self.correction = correction
        match correction:
            case AfterStep(change):
                self._change = _split(change, parameters)
            case OnGradient(shift, _, center):
                self._shift = None if shift is None else _split(shift, parameters)
                self._center = None if center is None else _split(center, parameters)

    def before_step(self, parameters: list[Tensor]) -> None:
        """With an `OnGradient`, each parameter's gradient g becomes g + shift + pull (x - center), where x is the
        parameter. A missing gradient is replaced by zeros first; a term whose vector is None is left out. Does nothing
        with an `AfterStep`."""
        if not isinstance(self.correction, OnGradient):
            return
        with torch.no_grad():
            for index, parameter in enumerate(parameters):
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                if self._shift is not None:
                    parameter.grad.add_(self._shift[index])
                if self._center is not None:
                    parameter.grad.add_(parameter - self._center[index], alpha=self.correction.pull)

    def after_step(self, parameters: list[Tensor]) -> None:
        """With an `AfterStep`, each parameter x becomes x + change. Does nothing with an `OnGradient`."""
        if isinstance(self.correction, AfterStep):
            with torch.no_grad():
                for parameter, change in zip(parameters, self._change, strict=True):
                    parameter.add_(change)


def _split(vector: Tensor, parameters: list[Tensor]) -> list[Tensor]:
    """The pieces of `vector` [n], shaped as the parameters."""
    pieces, start = list[Tensor](), 0
    for parameter in parameters:
        piece = vector[start : start + parameter.numel()].view(parameter.shape)
        pieces.append(piece.to(parameter.device, parameter.dtype))
        start += parameter.numel()
    return pieces
