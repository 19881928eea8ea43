"""What a simulated world reads of a frame: the kind of its message."""

from __future__ import annotations

import msgpack

_BEFORE_KIND = 5
"""Integers that stand before it (`protocols.wire`)."""


def kind_of(header: bytes) -> str:
    """The kind of the message in a frame with that `header`; "" if it is none of ours."""
    unpacker = msgpack.Unpacker(None, max_buffer_size=len(header))
    unpacker.feed(header)
    try:
        if unpacker.read_array_header() <= _BEFORE_KIND:
            return ""
        for _ in range(_BEFORE_KIND):
            unpacker.skip()
        return str(unpacker.unpack())
    except (ValueError, msgpack.UnpackException):
        return ""
