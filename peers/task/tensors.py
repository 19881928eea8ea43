"""The tensors of a model and of a batch.

Peers average parameters and floating-point buffers (BatchNorm's running statistics) alike. Integer buffers (BatchNorm's
batch counter) are not averaged, because a mean of counters means nothing, and neither are buffers outside the
state_dict, which are caches: each peer has its own. Frozen parameters are equal on all peers (`constants`). Tied
parameters count once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy


def check_values(model: nn.Module) -> None:
    """Raises ValueError, with the tensor's name, when a parameter or buffer of `model` is lazy or on the meta
    device."""
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if is_lazy(tensor):
            raise ValueError(
                f"tensor {name!r} has no shape yet: a lazy layer gets it from its first batch, so call the model once "
                "before peers are to average it"
            )
        if tensor.is_meta:
            raise ValueError(f"tensor {name!r} is on the meta device and has no values")


def buffers_of(model: nn.Module) -> dict[str, Tensor]:
    """Name -> buffer, for the buffers in the state_dict."""
    caches = {
        f"{prefix}.{name}".lstrip(".")
        for prefix, module in model.named_modules()
        for name in getattr(module, "_non_persistent_buffers_set", ())
    }
    return {name: buffer for name, buffer in model.named_buffers() if name not in caches}


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Name -> tensor, for all parameters and buffers in the state_dict, averaged or not."""
    return {**dict(model.named_parameters()), **buffers_of(model)}


def saved_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of `model` by their names in a checkpoint, ``model/NAME``."""
    return {f"model/{name}": tensor.detach() for name, tensor in tensors_of(model).items()}


def load_tensors(model: nn.Module, saved: Mapping[str, Tensor]) -> str | None:
    """Copy `saved` into all of a model's tensors. Returns the name of a tensor that is missing or has another shape,
    without changing anything; None when all were copied."""
    tensors = tensors_of(model)
    for name, tensor in tensors.items():
        if name not in saved or saved[name].shape != tensor.shape:
            return name
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(saved[name])
    return None


def moved(batch: object, device: torch.device) -> object:
    """The batch with all its tensors on `device`."""
    return _each(batch, lambda tensor: tensor.to(device, non_blocking=True))


def cloned(batch: object) -> object:
    """A copy of the batch: of its tensors, and of the containers that hold them."""
    return _each(batch, lambda tensor: tensor.detach().clone())


def _each(batch: object, change: Callable[[Tensor], Tensor]) -> object:
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return {key: _each(value, change) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_make"):
        return batch._make(_each(value, change) for value in batch)
    if isinstance(batch, list | tuple):
        return type(batch)([_each(value, change) for value in batch])
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
