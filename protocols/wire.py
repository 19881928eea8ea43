"""The wire: typed messages as exactly two frames, a bounded msgpack header and a raw payload.

Header: ``[version, sender's incarnation, receiver's incarnation, lane, seq, kind, *fields]``.
A message is a frozen dataclass registered by `message`; its annotations are its schema, checked on arrival.
Whatever bytes come in, `decode` returns a `Frame` or raises `PeerMisbehaved`, and allocates no more than a small
multiple of the header, which is at most `HEADER_BYTES_MAX`.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

import msgpack

VERSION = 1
"""Protocol version. Peers of different versions refuse each other by name."""
HEADER_BYTES_MAX = 64 * 1024
PAYLOAD_BYTES_MAX = 1 << 20
_STR_MAX = 1024
_ARRAY_MAX = 4096
_INT_MAX = 2**63 - 1

Buffer = bytes | bytearray | memoryview


class PeerMisbehaved(Exception):
    """The one error that hostile or garbled bytes give. The message says what was wrong; the caller names the peer."""


class OtherVersion(PeerMisbehaved):
    """The other side speaks another protocol version: both must install the same samovar."""


class Lane(IntEnum):
    """LINK frames keep the link itself alive; CONTROL never waits behind DATA, which flows under credit."""

    LINK = 0
    CONTROL = 1
    DATA = 2


@dataclass(frozen=True, slots=True)
class Frame:
    """A decoded header. `incarnation` is the sender's, `towards` the incarnation it believes the receiver to be."""

    incarnation: int
    towards: int
    lane: Lane
    seq: int
    message: object


@dataclass(frozen=True, slots=True)
class _Kind:
    type: type
    lane: Lane
    payload_max: int
    checks: tuple[Callable[[object], object], ...]


_by_name: dict[str, _Kind] = {}
_by_type: dict[type, _Kind] = {}
T = TypeVar("T")


def message(*, lane: Lane = Lane.CONTROL, payload_max: int = 0) -> Callable[[type[T]], type[T]]:
    """Register a frozen dataclass as a message kind. `payload_max` bounds its payload in bytes."""

    def register(cls: type[T]) -> type[T]:
        kind = _Kind(cls, lane, payload_max, _field_checks(cls))
        if cls.__name__ in _by_name:
            raise ValueError(f"two messages are called {cls.__name__}")
        _by_name[cls.__name__] = _by_type[cls] = kind
        return cls

    return register


def lane_of(body: object) -> Lane:
    return _by_type[type(body)].lane


def encode(body: object, payload_bytes: int, *, incarnation: int, towards: int, seq: int) -> bytes:
    """The header frame of `body`. Raises ValueError when it or its payload is larger than a receiver would take."""
    kind = _by_type[type(body)]
    if payload_bytes > kind.payload_max:
        raise ValueError(f"{type(body).__name__} carries {payload_bytes} bytes, at most {kind.payload_max} may be sent")
    head = [VERSION, incarnation, towards, int(kind.lane), seq, type(body).__name__]
    header: bytes = msgpack.packb([*head, *_plain_fields(body)])
    if len(header) > HEADER_BYTES_MAX:
        raise ValueError(f"{type(body).__name__} needs a header of {len(header)} bytes, at most {HEADER_BYTES_MAX}")
    return header


def decode(header: Buffer, payload_bytes: int) -> Frame:
    """Raises PeerMisbehaved on anything but a well-formed message of a known kind with finite, bounded fields."""
    if len(header) > HEADER_BYTES_MAX:
        raise PeerMisbehaved(f"header of {len(header)} bytes, at most {HEADER_BYTES_MAX} are read")
    try:
        fields = msgpack.unpackb(
            header,
            raw=False,
            use_list=True,
            strict_map_key=True,
            max_array_len=_ARRAY_MAX,
            max_map_len=0,
            max_ext_len=0,
            max_str_len=_STR_MAX,
            max_bin_len=_STR_MAX,
        )
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise PeerMisbehaved(f"header is not msgpack that we take: {type(error).__name__}") from None
    if not isinstance(fields, list) or not fields:
        raise PeerMisbehaved("header is not a list")
    if fields[0] != VERSION or type(fields[0]) is not int:
        raise OtherVersion(f"speaks protocol version {fields[0]!r:.20}, this side speaks {VERSION}")
    try:
        return _frame(fields, payload_bytes)
    except ValueError as error:
        raise PeerMisbehaved(str(error)) from None


def _frame(fields: list[object], payload_bytes: int) -> Frame:
    if len(fields) < 6:
        raise ValueError("header is too short")
    incarnation, towards, seq = (_integer(fields[i]) for i in (1, 2, 4))
    kind = _by_name.get(fields[5]) if isinstance(fields[5], str) else None
    if kind is None:
        raise ValueError(f"unknown message kind {fields[5]!r:.40}")
    if type(fields[3]) is not int or fields[3] != kind.lane:
        raise ValueError(f"{fields[5]} on lane {fields[3]!r:.20}")
    if payload_bytes > kind.payload_max:
        raise ValueError(f"{fields[5]} with {payload_bytes} bytes of payload, at most {kind.payload_max} are taken")
    body = fields[6:]
    if len(body) != len(kind.checks):
        raise ValueError(f"{fields[5]} with {len(body)} fields, it has {len(kind.checks)}")
    values = [check(value) for check, value in zip(kind.checks, body, strict=True)]
    return Frame(incarnation, towards, kind.lane, seq, kind.type(*values))


def _plain_fields(body: object) -> list[object]:
    return [_plain(getattr(body, field.name)) for field in dataclasses.fields(body)]  # type: ignore[arg-type]


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value):
        return _plain_fields(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _field_checks(cls: type) -> tuple[Callable[[object], object], ...]:
    hints = typing.get_type_hints(cls)
    return tuple(_check_of(hints[field.name]) for field in dataclasses.fields(cls))


def _check_of(hint: object) -> Callable[[object], object]:
    """The check of one annotation: bool, int, float, str, bytes, X | None, tuple[X, ...] or a dataclass of these."""
    simple = {bool: _boolean, int: _integer, float: _real, str: _text, bytes: _blob}
    if hint in simple:
        return simple[typing.cast("type", hint)]
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return _tuple_check(_check_of(args[0]))
    if origin in (types.UnionType, typing.Union) and len(args) == 2 and args[1] is type(None):
        inner = _check_of(args[0])
        return lambda value: None if value is None else inner(value)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _record_check(hint)
    raise TypeError(f"a message field cannot be {hint!r}")


def _tuple_check(item: Callable[[object], object]) -> Callable[[object], object]:
    def check(value: object) -> object:
        if not isinstance(value, list):
            raise ValueError("a list was due")
        return tuple(item(each) for each in value)

    return check


def _record_check(cls: type) -> Callable[[object], object]:
    checks: Sequence[Callable[[object], object]] = _field_checks(cls)

    def check(value: object) -> object:
        if not isinstance(value, list) or len(value) != len(checks):
            raise ValueError(f"not a {cls.__name__}")
        return cls(*[one(each) for one, each in zip(checks, value, strict=True)])

    return check


def _boolean(value: object) -> bool:
    if type(value) is not bool:
        raise ValueError("a bool was due")
    return value


def _integer(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _INT_MAX:
        raise ValueError("an integer from 0 to 2^63-1 was due")
    return value


def _real(value: object) -> float:
    if type(value) is not float or not math.isfinite(value):
        raise ValueError("a finite float was due")
    return value


def _text(value: object) -> str:
    if type(value) is not str or not value.isprintable():
        raise ValueError("a printable string was due")
    return value


def _blob(value: object) -> bytes:
    if type(value) is not bytes:
        raise ValueError("bytes were due")
    return value
