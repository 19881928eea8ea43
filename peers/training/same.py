"""Whether a checkpoint is of the model and the optimizer that a task makes now."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...aggregation.vector import NO_LAYOUT, Layout
from ..checkpoints.checkpoint import CheckpointError
from ..task.tensors import load_tensors


def check_same(numbers: Mapping[str, Any], layout: Layout, optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Raises CheckpointError when the checkpoint with these `numbers` is of another `layout`, or of another kind of
    optimizer, than `optimizer`. `path`: the task's file, for the message."""
    plain = numbers["layout"]
    if (difference := layout.compare(Layout.from_plain(plain) if plain else NO_LAYOUT)) is not None:
        other = "optimizer or --inner" if "'optimizer/" in difference else "model"
        raise CheckpointError(f"the checkpoint is of another {other} than {path}: {difference}")
    mine = type(optimizer).__name__
    if (theirs := numbers.get("optimizer_kind", mine)) != mine:
        raise CheckpointError(f"the checkpoint is of another optimizer than {path}: {theirs}, not {mine}")


def load_same(tensors: Mapping[str, Tensor], model: nn.Module, path: Path) -> None:
    """Copy the model in the `tensors` of a checkpoint into `model`. Raises CheckpointError when it is another one."""
    saved = {name[6:]: tensor for name, tensor in tensors.items() if name.startswith("model/")}
    if (odd := load_tensors(model, saved)) is not None:
        raise CheckpointError(f"the checkpoint is of another model than {path}: tensor {odd!r} differs")
