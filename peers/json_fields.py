"""Dataclasses as lines of JSON and back, checked field by field against their annotations.

Written for files that a crash, a full disk or a stranger may have spoiled: whatever the bytes are, reading gives
a record or a `ValueError` of one line that names the place. Keys that this version does not know are passed over.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeVar, cast, get_args, get_origin, get_type_hints


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


T = TypeVar("T", bound=_Dataclass)

FloatOrNaN = Annotated[float, "null in JSON is NaN"]
"""A number that a diverged run may spoil; every other float must be finite."""


def line(row: Mapping[str, object]) -> str:
    """One line of ASCII JSON. A number that is not finite becomes null, for JSON has no word for it."""
    return json.dumps(_finite(row), separators=(",", ":"), allow_nan=False)


def parse(text: bytes, place: str) -> Mapping[str, Any]:
    """The JSON object in `text`; `place` is what an error calls it."""
    try:
        row = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place}: not JSON ({error})") from None
    if not isinstance(row, dict):
        raise ValueError(f"{place}: not a JSON object")
    return row


def build(kind: type[T], row: Mapping[str, Any], place: str) -> T:
    """A `kind` from its row. A missing key takes the field's default."""
    hints = _hints(kind)
    values: dict[str, object] = {}
    for field in dataclasses.fields(kind):
        if field.name in row:
            values[field.name] = _value(hints[field.name], row[field.name], f"{place}: {field.name}")
        elif field.default is dataclasses.MISSING:
            raise ValueError(f"{place}: {field.name} is missing")
    return kind(**values)


@functools.cache
def _hints(kind: type[_Dataclass]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _value(hint: Any, value: object, place: str) -> object:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is tuple and isinstance(value, list):
        return tuple(_value(inner[0], part, f"{place}[{index}]") for index, part in enumerate(value))
    if origin is types.UnionType:
        return None if value is None else _value(inner[0], value, place)
    if origin is Literal and value in inner:
        return value
    if hint == FloatOrNaN:
        return math.nan if value is None else _value(float, value, place)
    if hint is float and type(value) in (int, float) and abs(cast(float, value)) <= 1e300:
        return float(cast(float, value))
    if hint is int and type(value) is int and abs(value) < 2**63:
        return value
    if hint is bool and isinstance(value, bool):
        return value
    if hint is str and isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")  # JSON can spell half a surrogate pair
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return build(cast(type[_Dataclass], hint), value, place)
    raise ValueError(f"{place} is {value!a:.40}, not {getattr(hint, '__name__', 'allowed')}")


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
