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
    """Name -> buffer, for the buffers of `model` in the state_dict: the tensors themselves, no copies."""
    caches = {
        f"{prefix}.{name}".lstrip(".")
        for prefix, module in model.named_modules()
        for name in getattr(module, "_non_persistent_buffers_set", ())
    }
    return {name: buffer for name, buffer in model.named_buffers() if name not in caches}


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Name -> tensor, for all parameters of `model` and its buffers in the state_dict, averaged or not: themselves, no
    copies."""
    return {**dict(model.named_parameters()), **buffers_of(model)}


def saved_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of `model` by their names in a checkpoint, ``model/NAME``. They share the model's
    memory."""
    return {f"model/{name}": tensor.detach() for name, tensor in tensors_of(model).items()}


def load_tensors(model: nn.Module, saved: Mapping[str, Tensor]) -> str | None:
    """Copy `saved`, by name, into all parameters of `model` and its buffers in the state_dict. Returns None when all
    were copied; else the name of the first tensor that `saved` lacks or has in another shape, and nothing is changed.
    Further tensors in `saved` are ignored."""
    tensors = tensors_of(model)
    for name, tensor in tensors.items():
        if name not in saved or saved[name].shape != tensor.shape:
            return name
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(saved[name])
    return None


def moved(batch: object, device: torch.device) -> object:
    """The batch with its tensors on `device`. They are found in mappings (which become dicts), lists, tuples and named
    tuples; any other object stays as it is, with the tensors in it."""
    return _each(batch, lambda tensor: tensor.to(device, non_blocking=True))


def cloned(batch: object) -> object:
    """A copy of the batch: of its tensors (detached, on the same device), and of the mappings (which become dicts),
    lists, tuples and named tuples that hold them. Any other object is not copied."""
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
    """The number of samples in a batch: the length of the tensor that is its first item, or the first item of that
    item, and so on; 1 where that is a scalar or no tensor."""
    if isinstance(batch, Tensor):
        return batch.shape[0] if batch.dim() else 1
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, list | tuple) and batch:
        return samples_in(batch[0])
    return 1
