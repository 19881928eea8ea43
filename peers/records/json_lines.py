"""Conversion of dataclasses to lines of JSON and back, checked field by field against their annotations.

A file may be damaged by a crash or a full disk, or written by a stranger. Reading any bytes gives a record or a
`ValueError` of one line that names file and line. Keys that this version does not know are ignored.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeVar, cast, get_args, get_origin, get_type_hints


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


T = TypeVar("T", bound=_Dataclass)
_Read = Callable[[Any, str], object]

FloatOrNaN = Annotated[float, "null in JSON is NaN"]
"""A number that may be NaN in a diverged run; every other float must be finite. A whole number stays an int."""


def line(row: Mapping[str, object]) -> str:
    """One line of ASCII JSON, without the newline. A number that is not finite becomes null, because JSON cannot
    express it."""
    return json.dumps(_finite(row), separators=(",", ":"), allow_nan=False)


def parse(text: bytes, place: str) -> Mapping[str, Any]:
    """The JSON object in `text`. `place`: file and line, for the error. Raises ValueError."""
    try:
        row = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place}: not JSON ({error})") from None
    if not isinstance(row, dict):
        raise ValueError(f"{place}: not a JSON object")
    return row


def build(kind: type[T], row: Mapping[str, Any], place: str) -> T:
    """The dataclass `kind` with the values of `row`. A missing key takes the field's default. Raises ValueError for a
    value that does not fit its annotation, and for a missing key without a default."""
    values: dict[str, object] = {}
    for name, read, required in _fields(kind):
        if name in row:
            try:
                values[name] = read(row[name], place)
            except TypeError as wanted:
                raise ValueError(f"{place}: {name} is {row[name]!a:.40}, not {wanted}") from None
        elif required:
            raise ValueError(f"{place}: {name} is missing")
    return kind(**values)


@functools.cache
def _fields(kind: type[_Dataclass]) -> tuple[tuple[str, _Read, bool], ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple((field.name, _reader(hints[field.name]), _required(field)) for field in dataclasses.fields(kind))


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _reader(hint: Any) -> _Read:
    """A function that checks and converts values of this annotation. It raises a TypeError that names the expected
    type."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint == FloatOrNaN:
        return lambda value, place: math.nan if value is None else _number(value)
    if origin is types.UnionType:
        read = _reader(inner[0])
        return lambda value, place: None if value is None else read(value, place)
    if origin is Literal:
        return lambda value, place: _checked(value, value in inner, "one of " + ", ".join(inner))
    if origin is tuple:
        item = _reader(inner[0])
        return lambda value, place: tuple(item(row, place) for row in _checked(value, type(value) is list, "a list"))
    if origin is Mapping:
        of_value = _reader(inner[1])
        return lambda value, place: {
            str(_str(key, place)): of_value(each, place)
            for key, each in _checked(value, isinstance(value, dict), "an object").items()
        }
    if dataclasses.is_dataclass(hint):
        row_kind = cast(type[_Dataclass], hint)
        return lambda value, place: build(row_kind, _checked(value, isinstance(value, dict), "an object"), place)
    return {int: _int, float: _float, str: _str, bool: _bool}[hint]


def _checked(value: Any, right: bool, wanted: str) -> Any:
    if not right:
        raise TypeError(wanted)
    return value


def _int(value: Any, place: str) -> object:
    return _checked(value, type(value) is int and abs(value) < 2**63, "an integer")


def _float(value: Any, place: str) -> object:
    return float(_number(value))


def _number(value: Any) -> Any:
    return _checked(value, type(value) in (int, float) and abs(value) <= 1e300, "a finite number")


def _bool(value: Any, place: str) -> object:
    return _checked(value, type(value) is bool, "true or false")


def _str(value: Any, place: str) -> object:
    text: str = _checked(value, type(value) is str, "text")
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")  # replaces lone surrogates


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
