"""Evaluation of a model by the task's `evaluate`, without any effect on the training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..errors import EvaluationFailed, one_line
from ..records.columns import ACCURACY
from .task import Task


def metrics_of(model: nn.Module, task: Task) -> dict[str, float]:
    """The metrics of `model`, by name: the result of the task's `evaluate`, in the order in which the task declares
    them; empty for a task without `evaluate`. Raises EvaluationFailed."""
    if task.evaluate is None:
        return {}
    with torch.no_grad(), untouched(model):
        try:
            found = task.evaluate(model)
        except Exception as error:
            raise EvaluationFailed(f"in evaluate(): {one_line(error)}") from error
    told = found if isinstance(found, Mapping) else {_only_name(task): found}
    names = list(told) if task.metrics is None else list(task.metrics)
    if not told or {*names} != {*told} or not all(isinstance(name, str) for name in told):
        wanted = f"METRICS has {', '.join(names)}" if task.metrics else "it is to return a number, or numbers by name"
        raise EvaluationFailed(f"{task.path}: evaluate() returned {', '.join(map(str, told)) or 'nothing'}; {wanted}")
    try:
        return {name: float(told[name]) for name in names}
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of several elements
        raise EvaluationFailed(
            f"{task.path}: evaluate() is to return a number, or a dict of numbers by name, not {found!r:.60}"
        ) from None


def _only_name(task: Task) -> str:
    """The name of a metric that `evaluate` returns as a plain number."""
    if task.metrics is None:
        return ACCURACY
    if len(task.metrics) > 1:
        names = ", ".join(task.metrics)
        raise EvaluationFailed(f"{task.path}: evaluate() returned one number, and METRICS has {names}: return a dict")
    return next(iter(task.metrics))


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
