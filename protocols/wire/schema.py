"""Schema: for each annotation of a message's field, how a value is checked, written and read, so that both ends refuse
the same values.

Reading follows the annotation, never the bytes: an unexpected value is refused before anything is allocated for it, and
allocations are at most a small multiple of the bytes that were read.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Sequence
from itertools import chain, groupby, islice
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

STR_BYTES_MAX = 16 * 1024
ITEMS_MAX = 4096
INT_MAX = 2**63 - 1

Unpacker = Any  # msgpack ships no types


class Codec(NamedTuple):
    """The functions of one annotation. `plain` converts a value to the form that msgpack writes; `read` reads a value
    from an unpacker. Both raise ValueError on a value that the annotation does not allow. `scalar`: the value is
    written unchanged."""

    plain: Callable[[Any], Any]
    read: Callable[[Unpacker], Any]
    scalar: bool = False


class Flat(NamedTuple):
    """How the fields of a dataclass of scalars, tuples of integers or floats, and integers or None are read and checked
    together, in the form that msgpack writes: there None is a tuple of none, and an integer that may be None a tuple of
    one. `types`: of all; `runs`: numbers of scalars that are neighbours, 0 for each tuple, -1 for each that may be
    None; `wholes` returns the integers and bools among the values, and `tuples` the tuples of integers; `others`:
    places and checks of the other values; `options`: places of those that may be None."""

    types: tuple[type, ...]
    runs: tuple[int, ...]
    wholes: Callable[[Any], Sequence[int]]
    tuples: Callable[[Any], Sequence[tuple[Any, ...]]] | None
    others: tuple[tuple[int, Callable[[Any], Any]], ...]
    options: tuple[int, ...]

    def plain(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """The values of the fields, not checked yet, in the form that msgpack writes."""
        if not self.options:
            return values
        plain = [*values]
        for at in self.options:
            plain[at] = () if (value := plain[at]) is None else (value,)
        return (*plain,)

    def values(self, plain: tuple[Any, ...]) -> tuple[Any, ...]:
        """The values of the fields, from the form `plain` that msgpack writes; the inverse of the method `plain`."""
        if not self.options:
            return plain
        values = [*plain]
        for at in self.options:
            values[at] = values[at][0] if values[at] else None
        return (*values,)

    def allow(self, values: tuple[Any, ...]) -> bool:
        """Whether the annotations of the fields allow these values, in the form that msgpack writes."""
        if (*map(type, values),) != self.types:
            return False
        whole = self.wholes(values)
        if self.tuples is not None and (items := [*chain.from_iterable(self.tuples(values))]):
            if {*map(type, items)} != _INT:
                return False
            if len(items) > ITEMS_MAX and max(map(len, self.tuples(values))) > ITEMS_MAX:
                return False
            whole = (*whole, *items)
        if min(whole) < 0 or max(whole) > INT_MAX:
            return False
        try:
            for at, check in self.others:
                check(values[at])
        except ValueError:
            return False
        return True

    def read(self, unpacker: Unpacker) -> tuple[Any, ...]:
        """The values in the form that msgpack writes, not checked yet. Raises as `read_fields`, for lists alone."""
        values, header = list[Any](), unpacker.read_array_header
        for many in self.runs:
            if many > 0:
                values += islice(unpacker, many)
            else:
                values.append(_items(unpacker, count, 1 if many else ITEMS_MAX) if (count := header()) else ())
        return (*values,)


class Fields(NamedTuple):
    """A dataclass's fields, in order. `values` returns a tuple of their values in an instance; `plains`: `Codec.plain`
    of each. `flat`: None where a field is of none of the forms that it reads."""

    codecs: tuple[tuple[str, Codec], ...]
    values: Callable[[Any], Any]
    plains: tuple[Callable[[Any], Any], ...]
    flat: Flat | None


_fields: dict[type, Fields] = {}


def fields_of(cls: type) -> Fields:
    """The fields of the dataclass `cls` with their codecs, cached. Raises TypeError for an annotation that a message
    cannot have."""
    if (known := _fields.get(cls)) is not None:
        return known
    hints = typing.get_type_hints(cls)
    codecs = tuple((field.name, _codec_of(hints[field.name])) for field in dataclasses.fields(cls))
    plains = tuple(codec.plain for _, codec in codecs)
    values = attrgetter(*(name for name, _ in codecs)) if len(codecs) > 1 else _few(codecs)
    return _fields.setdefault(cls, Fields(codecs, values, plains, _flat([hints[name] for name, _ in codecs])))


def _few(codecs: tuple[tuple[str, Codec], ...]) -> Callable[[Any], Any]:
    """`Fields.values` of less than two fields, of which `attrgetter` makes no tuple."""
    return lambda body: tuple(getattr(body, name) for name, _ in codecs)


def _flat(hints: Sequence[Any]) -> Flat | None:
    if any(hint not in _SCALARS and hint not in (_INTEGERS, _REALS, _OPTION) for hint in hints):
        return None
    runs = list[int]()
    for run, group in groupby(1 if hint in _SCALARS else -1 if hint == _OPTION else 0 for hint in hints):
        many = len(list(group))
        runs += [many] if run > 0 else [run] * many
    options = tuple(at for at, hint in enumerate(hints) if hint == _OPTION)
    tuples = [at for at, hint in enumerate(hints) if hint in (_INTEGERS, _OPTION)]
    whole = [at for at, hint in enumerate(hints) if hint in (int, bool)]
    return Flat(
        types=tuple(hint if hint in _SCALARS else tuple for hint in hints),
        runs=tuple(runs),
        wholes=itemgetter(*whole, whole[0]) if whole else lambda values: (0,),  # of one place it would make no tuple
        tuples=itemgetter(*tuples, tuples[0]) if tuples else None,
        others=tuple((at, check) for at, hint in enumerate(hints) if (check := _OTHERS.get(hint)) is not None),
        options=options,
    )


def plain_fields(body: object, fields: Fields) -> Sequence[object]:
    """The fields of a message or nested dataclass in the form that msgpack writes. Raises ValueError that names the
    field."""
    values: tuple[Any, ...] = fields.values(body)
    if fields.flat is not None and fields.flat.allow(written := fields.flat.plain(values)):
        return written
    plain = list[object]()
    try:
        for write, value in zip(fields.plains, values, strict=True):
            plain.append(write(value))
    except ValueError as error:
        name, _ = fields.codecs[len(plain)]
        raise ValueError(f"{type(body).__name__}.{name}: {error}") from None
    return plain


def read_fields(unpacker: Unpacker, fields: Fields) -> Sequence[Any]:
    """The values of the fields of a message or nested dataclass, in order, read from `unpacker`. Raises ValueError for
    a value that its annotation does not allow, ValueError or msgpack.UnpackException for bytes that end too early."""
    if fields.flat is None:
        return [codec.read(unpacker) for _, codec in fields.codecs]
    values = fields.flat.read(unpacker)
    if not fields.flat.allow(values):
        values = fields.flat.values(values)
        for (name, _), plain, value in zip(fields.codecs, fields.plains, values, strict=False):
            try:
                plain(value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        raise ValueError("fields are missing")
    return fields.flat.values(values)


def _items(unpacker: Unpacker, count: int, most: int) -> tuple[Any, ...]:
    """The next `count` values, which are no containers. Raises ValueError where there are fewer, or `count` is above
    `most`."""
    if count > most:
        raise ValueError(f"a list of {count}, at most {most} are read")
    values = tuple(islice(unpacker, count))
    if len(values) != count:
        raise ValueError(f"{len(values)} values of a list of {count}")
    return values


def _codec_of(hint: Any) -> Codec:
    """The codec of bool, int, float, str, bytes, X | None, tuple[X, ...] or a dataclass of these."""
    if (check := _SCALARS.get(hint)) is not None:
        return Codec(check, lambda unpacker: check(unpacker.unpack()), scalar=True)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return _tuple_codec(_codec_of(args[0]), ITEMS_MAX)
    if origin in (types.UnionType, typing.Union) and len(args) == 2 and args[1] is type(None):
        return _optional_codec(_codec_of(args[0]))
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _record_codec(hint)
    raise TypeError(f"a message field cannot be {hint!r}")


def _tuple_codec(item: Codec, items_max: int) -> Codec:
    every = integers if item.plain is integer else None

    def plain(value: object) -> list[object]:
        if not isinstance(value, tuple) or len(value) > items_max:
            raise ValueError(f"a tuple of at most {items_max} was due")
        return list(map(item.plain, value) if every is None else every(value))

    def read(unpacker: Unpacker) -> tuple[object, ...]:
        count = unpacker.read_array_header()
        if not item.scalar:
            if count > items_max:
                raise ValueError(f"a list of {count}, at most {items_max} are read")
            return tuple([item.read(unpacker) for _ in range(count)])
        values = _items(unpacker, count, items_max)
        return tuple(map(item.plain, values)) if every is None else every(values)

    return Codec(plain, read)


def _optional_codec(inner: Codec) -> Codec:
    """None is written as an empty list, any other value as a list of one, so that a reader knows what follows."""
    many = _tuple_codec(inner, 1)

    def read(unpacker: Unpacker) -> object:
        return next(iter(many.read(unpacker)), None)

    return Codec(lambda value: many.plain(() if value is None else (value,)), read)


def _record_codec(cls: type) -> Codec:
    fields = fields_of(cls)

    def plain(value: object) -> Sequence[object]:
        if type(value) is not cls:
            raise ValueError(f"a {cls.__name__} was due")
        return plain_fields(value, fields)

    def read(unpacker: Unpacker) -> object:
        if unpacker.read_array_header() != len(fields.codecs):
            raise ValueError(f"not a {cls.__name__}")
        return cls(*read_fields(unpacker, fields))

    return Codec(plain, read)


def _boolean(value: object) -> bool:
    if type(value) is not bool:
        raise ValueError("a bool was due")
    return value


def integer(value: object) -> int:
    """Returns `value` if it is an int from 0 to 2^63-1, and no bool. Raises ValueError otherwise."""
    if type(value) is not int or value >> 63:  # of a negative number this is negative
        raise ValueError("an integer from 0 to 2^63-1 was due")
    return value


def integers(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns `values` if each is an int from 0 to 2^63-1, and no bool. Raises ValueError otherwise."""
    if values and ({*map(type, values)} != {int} or min(values) < 0 or max(values) > INT_MAX):
        raise ValueError("integers from 0 to 2^63-1 were due")
    return values


def _real(value: object) -> float:
    if type(value) is not float or not math.isfinite(value):
        raise ValueError("a finite float was due")
    return value


def _text(value: object) -> str:
    if type(value) is not str or not value.isprintable() or len(value.encode()) > STR_BYTES_MAX:
        raise ValueError(f"a printable string of at most {STR_BYTES_MAX} bytes was due")
    return value


def _blob(value: object) -> bytes:
    if type(value) is not bytes or len(value) > STR_BYTES_MAX:
        raise ValueError(f"at most {STR_BYTES_MAX} bytes were due")
    return value


def _reals(values: tuple[Any, ...]) -> None:
    if len(values) > ITEMS_MAX:
        raise ValueError(f"a tuple of at most {ITEMS_MAX} was due")
    for value in values:
        _real(value)


_SCALARS: dict[Any, Callable[[object], Any]] = {bool: _boolean, int: integer, float: _real, str: _text, bytes: _blob}
_INTEGERS, _REALS, _OPTION, _INT = tuple[int, ...], tuple[float, ...], int | None, {int}
_OTHERS: dict[Any, Callable[[Any], Any]] = {float: _real, str: _text, bytes: _blob, _REALS: _reals}
