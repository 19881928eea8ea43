"""Any nesting of Python values and tensors, split into named tensors and JSON values, and joined again without loss.

Values that JSON cannot express are marked: ``{"$tuple": [...]}``, ``{"$dict": [[key, value], ...]}`` for keys that are
not text, ``{"$float": "7ff8000000000000"}`` for numbers that are not finite, ``{"$tensor": name}``. Subclasses come
back as their base type (OrderedDict: dict), numpy's numbers as Python's. Tensors are not copied.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from ..reasons import article

DEPTH_MAX = 100


def to_plain(value: Any) -> tuple[dict[str, Tensor], Any]:
    """The tensors in `value`, named by their place in it (``state/0/exp_avg``), and the other values as JSON values.
    Raises ValueError, which names the place, for a value that is none of tensor, None, bool, int, float, str, list,
    tuple and dict, and for a nesting of more than 100 levels."""
    tensors: dict[str, Tensor] = {}
    return tensors, _encode(value, "", 0, tensors)


def from_plain(tensors: Mapping[str, Tensor], plain: Any) -> Any:
    """The value that `to_plain` split into `tensors` and `plain`. Raises ValueError when `plain` names a tensor that
    `tensors` lacks, or is not as `to_plain` writes it."""
    return _decode(plain, 0, tensors)


def _encode(value: Any, place: str, depth: int, tensors: dict[str, Tensor]) -> Any:
    if depth > DEPTH_MAX:
        raise ValueError(f"{place:.60}... is nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, Tensor):
        name = place or "tensor"
        while name in tensors:  # {"a/b": ...} beside {"a": {"b": ...}}
            name += "'"
        tensors[name] = value.detach()
        return {"$tensor": name}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    for scalar in (int, str):
        if isinstance(value, scalar):
            return scalar(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": struct.pack(">d", value).hex()}
    if isinstance(value, list | tuple):
        items = [_encode(item, _join(place, index), depth + 1, tensors) for index, item in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, dict):
        return _encode_dict(value, place, depth, tensors)
    what = f"{place} is" if place else "this is"
    raise ValueError(
        f"{what} {article(type(value).__name__)}: only tensors, numbers, text, None, lists, tuples and dicts"
    )


def _encode_dict(value: dict[Any, Any], place: str, depth: int, tensors: dict[str, Tensor]) -> Any:
    items = [(key, _encode(item, _join(place, key), depth + 1, tensors)) for key, item in value.items()]
    if all(isinstance(key, str) and not key.startswith("$") for key in value):
        return dict(items)
    return {"$dict": [[_encode(key, _join(place, "key"), depth + 1, tensors), item] for key, item in items]}


def _join(place: str, key: object) -> str:
    return f"{place}/{key}" if place else str(key)


def _decode(plain: Any, depth: int, tensors: Mapping[str, Tensor]) -> Any:
    if depth > DEPTH_MAX:
        raise ValueError(f"nested deeper than {DEPTH_MAX} levels")
    if isinstance(plain, list):
        return [_decode(item, depth + 1, tensors) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if not any(str(key).startswith("$") for key in plain):
        return {key: _decode(item, depth + 1, tensors) for key, item in plain.items()}
    content: Any
    mark, content = next(iter(plain.items())) if len(plain) == 1 else ("", None)
    try:
        if mark == "$tensor":
            return tensors[content]
        if mark == "$tuple":
            return tuple(_decode(item, depth + 1, tensors) for item in content)
        if mark == "$dict":
            return {_decode(key, depth + 1, tensors): _decode(item, depth + 1, tensors) for key, item in content}
        if mark == "$float":
            return float(struct.unpack(">d", bytes.fromhex(content))[0])
    except (KeyError, TypeError, struct.error) as error:
        raise ValueError(f"{mark} {content!r:.60} is not as it was written ({error!r:.60})") from None
    raise ValueError(f"{list(plain)!r:.60} is no mark known here")
