"""The precision in which a task's loss() and evaluate() compute, as the constant ``precision`` of the task asks."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

import torch

from .task import Precision

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def computing(precision: Precision | None, device: torch.device) -> AbstractContextManager[object]:
    """A context within which matrix products and convolutions on `device` compute in `precision` (`torch.autocast`);
    None: in the type of their operands. The weights keep their own type."""
    if precision is None:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=_TYPES[precision])
