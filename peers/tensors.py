"""Which of a model's tensors peers average.

Parameters and floating-point buffers (BatchNorm's running statistics) are averaged like each other; integer buffers
(BatchNorm's batch counter) stay each peer's own, as a mean of counters means nothing. Tied parameters count once.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..aggregation.vector import Part


def averaged(model: nn.Module) -> dict[str, Tensor]:
    """Name -> tensor of what is averaged, in the model's order."""
    tensors: dict[str, Tensor] = dict(model.named_parameters())
    tensors |= {name: buffer for name, buffer in model.named_buffers() if buffer.is_floating_point()}
    return tensors


def parameters_in(model: nn.Module) -> int:
    """Elements of its parameters: those come first in `averaged`, and buffers after them."""
    return sum(parameter.numel() for parameter in model.parameters())


def merged(now: Tensor, agreed: Tensor, brought: Tensor, part: Part, parameters: int, mixing: float | None) -> Tensor:
    """`now` [n], with what became of that `part` of `brought` in a round in its place: agreed + (now - brought), or
    mixing * now + (1 - mixing) * agreed; for its `parameters`, the first elements. Buffers stay this peer's own: a
    variance plus a difference of others may be below 0. Changes `now`."""
    here = slice(part.start, min(part.stop, parameters))
    if mixing is None:
        now[here] += agreed[here] - brought[here]
    else:
        now[here].lerp_(agreed[here], 1 - mixing)
    return now


def own(model: nn.Module) -> Mapping[str, Tensor]:
    """Name -> buffer of what stays each peer's own."""
    return {name: buffer for name, buffer in model.named_buffers() if not buffer.is_floating_point()}


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Name -> tensor of all of a model: what is averaged, and what stays each peer's own."""
    return {**averaged(model), **own(model)}


def moved(batch: object, device: torch.device) -> object:
    """The batch with all its tensors on `device`."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {key: moved(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_make"):
        return batch._make(moved(value, device) for value in batch)
    if isinstance(batch, list | tuple):
        return type(batch)([moved(value, device) for value in batch])
    return batch


def samples_in(batch: object) -> int:
    """How many samples a batch holds: the length of its first tensor; 1 when there is none."""
    if isinstance(batch, Tensor):
        return batch.shape[0] if batch.dim() else 1
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, list | tuple) and batch:
        return samples_in(batch[0])
    return 1
