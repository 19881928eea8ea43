"""Reading the kind of a message from a frame's header, in a simulated world."""

from __future__ import annotations

import msgpack

from ..protocols.wire.frames import kinds

_BEFORE_KIND = 10
"""Number of the fields before the message's name in a header: nine integers and the channel
(`protocols.wire.frames`)."""


def kind_of(header: bytes) -> str:
    """The name of the message's type in a frame with that `header`, without its channel; "" if it has none, or is
    malformed."""
    unpacker = msgpack.Unpacker(None, max_buffer_size=len(header))
    unpacker.feed(header)
    try:
        if unpacker.read_array_header() <= _BEFORE_KIND:
            return ""
        for _ in range(_BEFORE_KIND):
            unpacker.skip()
        return _name(str(unpacker.unpack()))
    except (ValueError, msgpack.UnpackException):
        return ""


def names() -> list[str]:
    """The names of all kinds of messages, without their channels."""
    return list(dict.fromkeys(map(_name, kinds())))


def _name(kind: str) -> str:
    return kind.rpartition(".")[2]
