"""The wire: typed messages as exactly two frames, a bounded msgpack header and a raw payload.

Header: ``[version, sender's incarnation, receiver's incarnation, lane, seq, *counts, channel, kind, *fields]``. The
counts acknowledge the receiver's messages and give it credit (`Counts`), so data that goes both ways needs few frames
for that alone. A message is a frozen dataclass registered by `message` in a family, because two families may have kinds
of one name; its annotations are its schema, checked when it is packed and again on arrival. The channel names the
conversation that the message belongs to ("" for the link's own). Whatever bytes arrive, `decode` returns a `Frame` or
raises `PeerMisbehaved`, and allocates at most ten times `HEADER_BYTES_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import msgpack

from .schema import STR_BYTES_MAX, Fields, fields_of, integer, integers, plain_fields, read_fields

VERSION = 21
"""Version of the protocol. Peers of different versions refuse each other, and tell so."""
HEADER_BYTES_MAX = 256 * 1024
"""The most bytes of a header: a view of `limits.VIEW_MEMBERS_MAX` members fits."""
PAYLOAD_BYTES_MAX = 2 << 20
CHANNEL_LETTERS_MAX = 64
_NUMBERS = 8
_PREFIX_FIELDS = 1 + _NUMBERS + 2
_PREFIX_BYTES_MAX = 84
"""The most bytes of a header besides its channel, kind and fields: an array header and nine integers."""
Counts = tuple[int, int, int, int]
"""The counts of a frame, about the messages that go the other way, of the lanes CONTROL and DATA: all sequence numbers
below the first two numbers have arrived, and the receiver may send up to the byte counts in the last two. The numbers
are absolute: a lost or repeated frame does no harm."""
NO_COUNTS: Counts = (0, 0, 0, 0)
"""The counts of a frame that tells nothing of the other way."""

Buffer = bytes | bytearray | memoryview
_PACKER = msgpack.Packer()  # kept: to make one takes ten times as long as to pack a header with it
_UNPACKERS: list[Any] = []  # kept: to make one takes as long as to read a header with it


class PeerMisbehaved(Exception):
    """Raised for a message that breaks a rule; hostile or garbled bytes raise no other error. The text says what the
    sender did wrong, and does not name it."""


class OtherVersion(PeerMisbehaved):
    """The other side speaks another version of the protocol: both sides must install the same samovar."""


class Lane(IntEnum):
    """The lane of a message. LINK frames keep the link itself alive. CONTROL messages never wait behind DATA messages,
    which wait for credit. A LOOSE frame belongs to no link: it may be lost, doubled or overtaken, and is never sent
    again."""

    LINK = 0
    CONTROL = 1
    DATA = 2
    LOOSE = 3


class Frame(NamedTuple):
    """A decoded header. `incarnation`: the number that the sender's link has drawn for itself; `towards`: the
    receiver's incarnation that the sender knows, 0 if none; `seq`: the message's number in its lane, from 0 on;
    `counts`: of the other way."""

    incarnation: int
    towards: int
    lane: Lane
    seq: int
    message: object
    channel: str = ""
    counts: Counts = NO_COUNTS


@dataclass(frozen=True, slots=True)
class Unopened:
    """In a frame, in place of a message of a family that this process has not registered: it belongs to a conversation
    that is not open here. A former process of this peer may have taken part in it. `lane`: the message's."""

    lane: Lane


class Packed(NamedTuple):
    """A message that a receiver will accept, packed but for the incarnations, the sequence number and the counts, which
    `seal` adds. `fields`: its channel, kind and fields, encoded; `items`: how many values these are."""

    lane: Lane
    items: int
    fields: bytes
    channel: str


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    type: type
    lane: Lane
    payload_max: int
    fields: Fields


_by_name: dict[str, _Kind] = {}
_by_type: dict[type, _Kind] = {}
_families: set[str] = set()
_spoken: dict[tuple[str, str], _Kind] = {}
"""The kinds that were read of late, by their channels and names: to check these again takes longer than to look."""
_SPOKEN_MAX = 1024
T = TypeVar("T")
WHY_MAX = 200


def in_words(why: str) -> str:
    """`why` in a form that a message may carry: its first 200 letters, with a space in place of each that is not
    printable."""
    return "".join(letter if letter.isprintable() else " " for letter in why)[:WHY_MAX]


def message(family: str, *, lane: Lane = Lane.CONTROL, payload_max: int = 0) -> Callable[[type[T]], type[T]]:
    """Decorator that registers a frozen dataclass as a kind of message. Its name is the family's and the class's, as in
    "members.Join". `lane`: on which it is sent; `payload_max` bounds its payload in bytes. A field `ask` is the number
    of a question, which its answer repeats (`Channel.ask`). Raises ValueError when the family has a kind of that name,
    or `payload_max` is above the wire's limit; TypeError for an annotation that a message cannot have."""

    def register(cls: type[T]) -> type[T]:
        if payload_max > PAYLOAD_BYTES_MAX:
            raise ValueError(f"{cls.__name__} wants {payload_max} bytes of payload, the wire takes {PAYLOAD_BYTES_MAX}")
        name = f"{family}.{cls.__name__}"
        if name in _by_name:
            raise ValueError(f"two messages are called {name}")
        _families.add(family)
        _by_name[name] = _by_type[cls] = _Kind(name, cls, lane, payload_max, fields_of(cls))
        return cls

    return register


def kinds() -> list[str]:
    """The names of all registered messages, sorted, so independent of the order of imports."""
    return sorted(_by_name)


def kind_of(body: object) -> str:
    """The name of the kind of a message. Raises KeyError for an object that is no registered message."""
    return _by_type[type(body)].name


def type_of(kind: str) -> type:
    """The class of the kind of that name. Raises KeyError for an unknown name."""
    return _by_name[kind].type


def payload_max_of(body: object) -> int:
    """The most bytes of payload that a message of the kind of `body` may have. Raises KeyError for an object that is no
    registered message."""
    return _by_type[type(body)].payload_max


def lane_of(body: object) -> Lane:
    """The lane of a message. Raises KeyError for an object that is no registered message."""
    return _by_type[type(body)].lane


def pack(body: object, payload_bytes: int, channel: str = "") -> Packed:
    """Check and pack a message. Raises ValueError when a receiver would refuse it or a payload of `payload_bytes`;
    KeyError for an object that is no registered message."""
    kind = _by_type[type(body)]
    name = kind.name
    if payload_bytes > kind.payload_max:
        raise ValueError(f"{name} carries {payload_bytes} bytes, at most {kind.payload_max} may be sent")
    plain = [channel, name, *plain_fields(body, kind.fields)]
    packed: bytes = _PACKER.pack(plain)
    fields = packed[1 if len(plain) < 16 else 3 :]  # a list without its header
    if len(fields) + _PREFIX_BYTES_MAX > HEADER_BYTES_MAX:
        raise ValueError(f"{name} needs a header of {len(fields)} bytes, at most {HEADER_BYTES_MAX} are read")
    return Packed(kind.lane, len(plain), fields, channel)


def seal(packed: Packed, incarnation: int, towards: int, seq: int, counts: Counts) -> bytes:
    """The whole header frame of a packed message. `incarnation`, `towards`: the sender's incarnation and the receiver's
    to which the link is bound; `seq`: the message's number in its lane; `counts`: of the other way."""
    prefix = (VERSION, incarnation, towards, packed.lane, seq, *counts)
    head: bytes = _PACKER.pack_array_header(len(prefix) + packed.items)
    return b"".join((head, _PACKER.pack(prefix)[1:], packed.fields))  # the header of a list so short is one byte


def encode(
    body: object,
    payload_bytes: int,
    *,
    incarnation: int,
    towards: int,
    seq: int,
    channel: str = "",
    counts: Counts = NO_COUNTS,
) -> bytes:
    """The header frame of the message `body`: `pack` and `seal` in one call. Raises ValueError when a receiver would
    refuse the message or a payload of `payload_bytes`."""
    return seal(pack(body, payload_bytes, channel), incarnation, towards, seq, counts)


def decode(header: Buffer, payload_bytes: int) -> Frame:
    """The frame in a header; of an `Unopened` message the fields are not read. `payload_bytes`: the size of the payload
    that came with the header. Raises OtherVersion, which is a PeerMisbehaved, for a header of another version of the
    protocol, and PeerMisbehaved on anything else but a well-formed message of a known kind with finite, bounded fields,
    or one of an unknown family."""
    if len(header) > HEADER_BYTES_MAX:
        raise PeerMisbehaved(f"sent a header of {len(header)} bytes, at most {HEADER_BYTES_MAX} are read")
    unpacker = _UNPACKERS.pop() if _UNPACKERS else _unpacker()
    begun = unpacker.tell()
    unpacker.feed(header)
    try:
        frame = _read(unpacker, payload_bytes)
        if isinstance(frame.message, Unopened):
            return frame
        if unpacker.tell() - begun != len(header):
            raise ValueError("bytes follow its header")
    except (ValueError, msgpack.UnpackException) as error:
        raise PeerMisbehaved(f"sent a header that cannot be taken: {error or type(error).__name__}") from None
    _UNPACKERS.append(unpacker)  # it has read all that it was fed
    return frame


def _unpacker() -> Any:
    """A reader of headers. Containers are read one by one, as the schema wants them: it never makes one itself."""
    return msgpack.Unpacker(
        None,
        max_buffer_size=HEADER_BYTES_MAX,
        raw=False,
        strict_map_key=True,
        max_array_len=0,
        max_map_len=0,
        max_ext_len=0,
        max_str_len=STR_BYTES_MAX,
        max_bin_len=STR_BYTES_MAX,
    )


def _read(unpacker: Any, payload_bytes: int) -> Frame:
    count, version = unpacker.read_array_header(), unpacker.unpack()
    if type(version) is not int or version != VERSION:
        raise OtherVersion(f"speaks protocol version {integer(version)}, this side speaks {VERSION}")
    if count < _PREFIX_FIELDS:
        raise ValueError("its header is too short")
    *numbers, channel, name = islice(unpacker, _NUMBERS + 2)
    incarnation, towards, lane, seq, *_ = integers((*numbers,))
    counts: Counts = (*numbers[4:],)  # four are left
    if len(counts) != len(NO_COUNTS):
        raise ValueError("its header ends too early")
    known = _spoken.get((channel, name)) if type(channel) is type(name) is str else None
    if (kind := known or _kind_on(channel, name)) is None:
        if lane == Lane.LINK or payload_bytes > PAYLOAD_BYTES_MAX:
            raise ValueError(f"{name} on lane {lane} with {payload_bytes} bytes of payload")
        return Frame(incarnation, towards, Lane(lane), seq, Unopened(Lane(lane)), channel, counts)
    if lane != kind.lane:
        raise ValueError(f"{name} on lane {lane}")
    if payload_bytes > kind.payload_max:
        raise ValueError(f"{name} with {payload_bytes} bytes of payload, at most {kind.payload_max} are taken")
    if count != _PREFIX_FIELDS + len(kind.fields.codecs):
        raise ValueError(f"{name} with {count - _PREFIX_FIELDS} fields, it has {len(kind.fields.codecs)}")
    message = kind.type(*read_fields(unpacker, kind.fields))
    return Frame(incarnation, towards, kind.lane, seq, message, channel, counts)


def _kind_on(channel: object, name: object) -> _Kind | None:
    """The kind of that name, on a channel of that name. Both are remembered. None: its family is unknown. Raises
    ValueError."""
    if not isinstance(channel, str) or len(channel) > CHANNEL_LETTERS_MAX or not channel.isprintable():
        raise ValueError(f"a channel's name of at most {CHANNEL_LETTERS_MAX} printable letters was due")
    kind = _by_name.get(name) if isinstance(name, str) else None
    if kind is None:
        family, dot, _ = str(name).partition(".")
        if not isinstance(name, str) or not dot or family in _families:
            raise ValueError(f"unknown message kind {name!r:.40}")
        return None
    if len(_spoken) >= _SPOKEN_MAX:
        _spoken.clear()  # because any peer may make up channels
    _spoken[channel, kind.name] = kind
    return kind
