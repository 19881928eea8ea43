"""The origin of a checkpoint: the task that wrote it, and the properties of its model and optimizer that a task which
goes on from the checkpoint must have too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from ...aggregation.vector import NO_LAYOUT, Layout
from ..checkpoints.checkpoint import CheckpointError, Snapshot
from ..task.model_copy import ModelCopy
from ..task.task import Task
from ..task.tensors import load_tensors


def origin_of(task: Task, layout: Layout, optimizer: Optimizer) -> dict[str, Any]:
    """The numbers by which a checkpoint tells its origin: the task's file name, the optimizer's class and the layout of
    the averaged vector."""
    return {"task": task.path.name, "optimizer_kind": type(optimizer).__name__, "layout": layout.to_plain()}


def check_origin(numbers: Mapping[str, Any], task: Task, layout: Layout, optimizer: Optimizer) -> None:
    """Raises CheckpointError when the checkpoint with these `numbers` (`origin_of`) is of a model with another layout
    than `layout`, or of an optimizer of another class than `optimizer`. `task`: the one that goes on from it, for the
    error."""
    plain = numbers["layout"]
    if (difference := layout.compare(Layout.from_plain(plain) if plain else NO_LAYOUT)) is not None:
        what = "optimizer or --inner" if difference.startswith("tensor 'optimizer/") else "model"
        raise another(what, numbers, task, difference)
    mine = type(optimizer).__name__
    if (theirs := numbers.get("optimizer_kind", mine)) != mine:
        raise another("optimizer", numbers, task, f"{theirs}, not {mine}")


def restore_model(snapshot: Snapshot, task: Task, model: nn.Module, copy: ModelCopy) -> None:
    """Copy the tensors of the model in the checkpoint `snapshot` into `model`, which must be newly made. `copy`: the
    `ModelCopy` of that model, in which the parameters that the checkpoint names as unfrozen are unfrozen first. Raises
    CheckpointError when the checkpoint is of another model, or of an optimizer of another class."""
    tensors, numbers = snapshot.tensors, snapshot.numbers
    try:
        copy.unfrozen.restore(tensors, numbers)
    except ValueError as error:
        raise another("model", numbers, task, str(error)) from None
    check_origin(numbers, task, copy.layout, copy.optimizer)
    saved = {name[6:]: tensor for name, tensor in tensors.items() if name.startswith("model/")}
    if (odd := load_tensors(model, saved)) is not None:
        raise another("model", numbers, task, f"tensor {odd!r} differs")


def check_groups(state: Mapping[str, Any], numbers: Mapping[str, Any], task: Task, optimizer: Optimizer) -> None:
    """Raises CheckpointError when the optimizer's `state` in the checkpoint has another number of parameter groups than
    `optimizer`, or other numbers of parameters in them. `numbers` and `task`: for the error."""
    mine, theirs = (
        [len(group["params"]) for group in groups] for groups in (optimizer.param_groups, state["param_groups"])
    )
    if mine != theirs:
        raise another("optimizer", numbers, task, f"its groups have {theirs} parameters there and {mine} here")


def another(what: str, numbers: Mapping[str, Any], task: Task, why: str) -> CheckpointError:
    """The error for a checkpoint with these `numbers` that is of another model or optimizer than the task's. `what`:
    "model", "optimizer" or the like; `why`: the difference. The text also names the task file that wrote the
    checkpoint, if that has another name."""
    whose = whose_checkpoint(numbers, task.path)
    return CheckpointError(f"the checkpoint is {whose and whose + ', '}of another {what} than {task.path}: {why}")


def whose_checkpoint(numbers: Mapping[str, Any], path: Path) -> str:
    """'of another task (digits.py)', with the file name of the task that wrote the checkpoint with these `numbers`, if
    the task at `path` has another one; else '', also for checkpoints of earlier versions, which do not name their
    task."""
    wrote = numbers.get("task", path.name)
    return "" if wrote == path.name else f"of another task ({wrote})"
