"""The tensors of a model and of a batch.

Peers average parameters and floating-point buffers (BatchNorm's running statistics) alike. Integer buffers (BatchNorm's
batch counter) are not averaged, because a mean of counters means nothing, and neither are buffers outside the
state_dict, which are caches: each peer has its own. Frozen parameters are equal on all peers (`constants`). Tied
parameters count once.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterator, Mapping, MutableSequence
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

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
    """The batch with its tensors on `device`. They are found in mappings, in mutable sequences and tuples, and in
    dataclasses, at any depth. Each of these keeps its type, but other mappings than dicts and UserDicts become dicts.
    A batch, or an item of it, with a method ``to``, such as a PackedSequence, moves itself. Any other object stays as
    it is, with the tensors in it."""
    return _each(batch, lambda tensor: tensor.to(device, non_blocking=True), lambda item: _by_itself(item, device))


def cloned(batch: object) -> object:
    """A copy of the batch: of its tensors (detached, on the same device), and of the mappings, sequences and
    dataclasses that hold them, as `moved` finds them. Any other object is not copied."""
    return _each(batch, lambda tensor: tensor.detach().clone())


def samples_in(batch: object) -> int:
    """The number of samples in a batch: the length of its first tensor that is no scalar, in the order of its items; 1
    where it has none. Tensors are found as `moved` finds them."""
    return next((tensor.shape[0] for tensor in _tensors_in(batch) if tensor.dim()), 1)


def _each(
    batch: object, change: Callable[[Tensor], Tensor], whole: Callable[[object], object | None] = lambda item: None
) -> object:
    """The batch with each tensor changed. `whole`: the replacement of a container; None: its items are changed."""
    if isinstance(batch, Tensor):
        return change(batch)
    replaced = whole(batch)
    if replaced is not None:
        return replaced
    items = _items(batch)
    return batch if items is None else _rebuilt(batch, {key: _each(item, change, whole) for key, item in items})


def _tensors_in(batch: object) -> Iterator[Tensor]:
    if isinstance(batch, Tensor):
        yield batch
    else:
        for _, item in _items(batch) or ():
            yield from _tensors_in(item)


def _items(batch: object) -> list[tuple[Any, object]] | None:
    """The items of a container with their keys, places or names; None: `batch` is no container of tensors."""
    if isinstance(batch, Mapping):
        return list(batch.items())
    if isinstance(batch, tuple | MutableSequence) and not isinstance(batch, bytearray):
        return list(enumerate(batch))
    if is_dataclass(batch) and not isinstance(batch, type):
        names = [field.name for field in fields(batch)]
        return [(name, getattr(batch, name)) for name in names if hasattr(batch, name)]
    return None


def _rebuilt(batch: Any, items: dict[Any, object]) -> object:
    """A copy of the container with these items in place of its own (`_items`)."""
    if isinstance(batch, tuple):
        return batch._make(items.values()) if hasattr(batch, "_make") else type(batch)(list(items.values()))
    if isinstance(batch, Mapping) and not isinstance(batch, dict | UserDict):
        return items
    made = copy(batch)
    for key, item in items.items():
        if isinstance(batch, Mapping | MutableSequence):
            made[key] = item
        else:
            object.__setattr__(made, key, item)  # also of a frozen dataclass
    return made


def _by_itself(item: object, device: torch.device) -> object | None:
    """What the item's own method ``to`` returns; None: it has none."""
    move = getattr(item, "to", None)
    return move(device) if callable(move) else None
