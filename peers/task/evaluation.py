"""Evaluation of a model by the task's `evaluate`, without any effect on the training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..errors import EvaluationFailed, one_line
from ..records.metrics import numbers_of
from .task import Task


def metrics_of(model: nn.Module, task: Task) -> dict[str, float]:
    """The metrics of `model`, by name: the result of the task's `evaluate`, in the order in which the task declares
    them; empty for a task without `evaluate`. It runs without gradients, on the model in eval mode with copies of its
    buffers. Raises EvaluationFailed when `evaluate` raises, or returns other metrics than the task declares, or values
    that are no numbers."""
    if task.evaluate is None:
        return {}
    with torch.no_grad(), untouched(model):
        try:
            found = task.evaluate(model)
        except Exception as error:
            raise EvaluationFailed(f"in evaluate(): {one_line(error)}") from error
    try:
        return numbers_of(found, task.metrics, f"{task.path}: evaluate() returned")
    except ValueError as error:
        raise EvaluationFailed(str(error)) from None


@contextmanager
def untouched(model: nn.Module, *, training: bool = False) -> Iterator[None]:
    """While in this context, `model` is in eval mode, or in training mode if `training`, and has copies of its buffers;
    afterwards its modes and its own buffers are restored. Its parameters are not copied: that would take the memory of
    a second model."""
    before = [(module, module.training, dict(module._buffers)) for module in model.modules()]
    copies: dict[Tensor, Tensor] = {}
    for module, _, buffers in before:
        for name, buffer in buffers.items():
            if buffer is not None:
                if buffer not in copies:  # modules may share one
                    copies[buffer] = buffer.clone()
                setattr(module, name, copies[buffer])
    model.train(training)
    try:
        yield
    finally:
        for module, training, buffers in before:
            module.training = training
            for name in module._buffers.keys() - buffers.keys():
                delattr(module, name)
            for name, buffer in buffers.items():
                setattr(module, name, buffer)
