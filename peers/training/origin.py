"""The origin of a checkpoint: the task that wrote it, and the properties of its model and optimizer that a task which
goes on from the checkpoint must have too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from ...aggregation.vector import Layout
from ..checkpoints.checkpoint import CheckpointError
from ..task.task import Task


def origin_of(task: Task, layout: Layout, optimizer: Optimizer) -> dict[str, Any]:
    """The numbers of a checkpoint that `check_origin` reads."""
    return {"task": task.path.name, "optimizer_kind": type(optimizer).__name__, "layout": layout.to_plain()}


def check_origin(numbers: Mapping[str, Any], task: Task, layout: Layout, optimizer: Optimizer) -> None:
    """Raises CheckpointError when the checkpoint with these `numbers` is of another model or optimizer than the task's,
    which have `layout` and are `optimizer`."""
    if (difference := layout.compare(Layout.from_plain(numbers["layout"]))) is not None:
        what = "optimizer or --inner" if difference.startswith("tensor 'optimizer/") else "model"
        raise another(what, numbers, task, difference)
    mine = type(optimizer).__name__
    if (theirs := numbers.get("optimizer_kind", mine)) != mine:
        raise another("optimizer", numbers, task, f"{theirs}, not {mine}")


def check_groups(state: Mapping[str, Any], numbers: Mapping[str, Any], task: Task, optimizer: Optimizer) -> None:
    """Raises CheckpointError when the optimizer's `state` in the checkpoint has other parameter groups."""
    mine, theirs = (
        [len(group["params"]) for group in groups] for groups in (optimizer.param_groups, state["param_groups"])
    )
    if mine != theirs:
        raise another("optimizer", numbers, task, f"its groups have {theirs} parameters there and {mine} here")


def another(what: str, numbers: Mapping[str, Any], task: Task, why: str) -> CheckpointError:
    """The error of a checkpoint that is of another model or optimizer (`what`) than the task's. It names the task that
    wrote the checkpoint, if that is another one."""
    whose = whose_checkpoint(numbers, task.path)
    return CheckpointError(f"the checkpoint is {whose and whose + ', '}of another {what} than {task.path}: {why}")


def whose_checkpoint(numbers: Mapping[str, Any], path: Path) -> str:
    """'of another task (digits.py)', if the task at `path` has another file name than the one that wrote the checkpoint
    with these `numbers`; else ''. Checkpoints of earlier versions do not tell."""
    wrote = numbers.get("task", path.name)
    return "" if wrote == path.name else f"of another task ({wrote})"
