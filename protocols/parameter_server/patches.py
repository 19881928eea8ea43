"""Filtered pulls as messages: of its ranges, the elements that a worker does not hold yet. It tells the updates of the
values that it holds from an earlier pull (`messages.Pull.held`), and the term of that pull: a server that came back
from an older checkpoint may have other updates of these numbers.

By range a form stands in the answer's header. Of a range of the vector: 0, all elements; 1 + k, the k elements that
have changed, after their int32 numbers in the range; 2 + the number of all its elements, the codec's encoding of all;
whichever is fewest bytes. A range that has not changed is form 1 and no bytes. Of a block's rows: 0, all that were
asked for; 1, the codec's encoding of them, if it is fewer bytes. Averaged buffers, and values that are not finite, are
not encoded. The payload has range after range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...aggregation.rows import INDEX, ascending
from ...aggregation.vector import all_finite
from ..transfer.elements import copied, of_bytes, raw
from ..wire.frames import Buffer
from .keys import WIRE_INDEX, Keys
from .recent import NONE
from .shares import Pushes, Shares
from .store import Copy


class Patch(NamedTuple):
    """The values of a filtered answer: by range the `forms`, and in `sizes` the number of bytes; `payload`: uint8, all
    bytes."""

    forms: tuple[int, ...]
    sizes: tuple[int, ...]
    payload: Tensor


def patch(
    keys: Keys,
    copies: Mapping[int, Copy],
    ranges: Sequence[int],
    held: Sequence[int],
    term: int,
    ids: Mapping[int, Tensor],
) -> Patch:
    """The patch of `ranges` for a worker. `held`, `term`: the values that it holds, as in `messages.Pull` (by range 1 +
    the number of updates, or 0). `ids`: by block among them the rows [k] that it asks for."""
    forms, sizes, parts = list[int](), list[int](), list[Buffer]()
    for number, update in zip(ranges, held, strict=True):
        copy = copies[number]
        if number in keys.blocks:
            form, part = _rows(keys, copy.values[ids[number]])
        else:
            form, part = _elements(keys, number, copy.shown, _changed(copy, update, term))
        forms.append(form)
        sizes.append(len(part))
        parts.append(part)
    return Patch(tuple(forms), tuple(sizes), of_bytes(bytearray().join(parts), torch.uint8))


def _changed(copy: Copy, held: int, term: int) -> Tensor | None:
    """The numbers of the elements that have changed since the values that a worker holds (`messages.Pull`); None: all
    may have."""
    if term not in (copy.term, copy.former):
        return None
    if held == 1 + copy.updates:
        return NONE
    return None if copy.recent is None or not 0 < held <= copy.updates else copy.recent.changed(held - 1)


def _rows(keys: Keys, rows: Tensor) -> tuple[int, Buffer]:
    codec = None if keys.pulls is None else keys.pulls.codec
    if codec is None or not rows.numel() or codec.encoded_bytes(rows.numel()) >= rows.nbytes or not all_finite(rows):
        return 0, raw([rows])
    return 1, raw([codec.encode(rows.flatten(), 0)])


def _elements(keys: Keys, number: int, values: Tensor, changed: Tensor | None) -> tuple[int, Buffer]:
    """The form and the bytes for the `values` of a range of the vector, of which those `changed` have; None: all."""
    if changed is not None and not len(changed):
        return 1, b""
    codec = None if keys.pulls is None or keys.is_buffer(number) or not all_finite(values) else keys.pulls.codec
    few = values.nbytes if codec is None else min(values.nbytes, codec.encoded_bytes(len(values)))
    if changed is not None and len(changed) * (WIRE_INDEX.itemsize + keys.dtype.itemsize) < few:
        return 1 + len(changed), b"".join((raw([changed.to(WIRE_INDEX)]), raw([values[changed]])))
    if codec is None or few == values.nbytes:
        return 0, raw([values])
    return keys.coded(number), raw([codec.encode(values, 0)])


def patched(
    keys: Keys,
    shares: Shares,
    ranges: Sequence[int],
    forms: Sequence[int],
    payload: Buffer,
    into: Pushes,
    *,
    held: bool,
) -> None:
    """Write a patch into the pulled values `into`. `shares`: the rows that were asked for; `held`: the vector of `into`
    has the values that the worker held. Raises ValueError for forms, numbers of elements or bytes that do not fit, and
    for bytes that the codec does not decode."""
    if len(forms) != len(ranges):
        raise ValueError(f"it tells the forms of {len(forms)} ranges, of {len(ranges)}")
    at, rest = 0, memoryview(payload)
    for number, form in zip(ranges, forms, strict=True):
        nbytes = _nbytes(keys, shares, number, form, held=held)
        if at + nbytes > len(rest):
            raise ValueError(f"it has {len(rest)} bytes, and at least {at + nbytes} are due")
        part, at = rest[at : at + nbytes], at + nbytes
        if number not in keys.blocks and form == 1:
            continue
        if number not in keys.blocks and 1 < form < keys.coded(number):
            head = (form - 1) * WIRE_INDEX.itemsize
            ids = copied(part[:head], WIRE_INDEX).to(INDEX)
            if not ascending(ids, keys.size(number)):
                raise ValueError("it has elements that are not among those of its ranges, in order and none twice")
            start = keys.parts[number].start
            into.vector[start + ids] = copied(part[head:], keys.dtype)
        elif count := shares.size(number):
            shares.put(_decoded(keys, part, count) if form else copied(part, keys.dtype), (number,), into)
    if at != len(rest):
        raise ValueError(f"it has {len(rest)} bytes, and {at} are due")


def _nbytes(keys: Keys, shares: Shares, number: int, form: int, *, held: bool) -> int:
    """The bytes of a range in this form. Raises ValueError where it can have none such."""
    codec = None if keys.pulls is None else keys.pulls.codec
    count, is_block = shares.size(number), number in keys.blocks
    if form == 0:
        return count * keys.dtype.itemsize
    if form == (1 if is_block else keys.coded(number)) and codec is not None and count:
        return codec.encoded_bytes(count)
    if is_block or not held or not 0 < form <= 1 + count:
        raise ValueError(f"range {number} has no form {form}")
    return (form - 1) * (WIRE_INDEX.itemsize + keys.dtype.itemsize)


def _decoded(keys: Keys, part: Buffer, count: int) -> Tensor:
    assert keys.pulls is not None
    assert keys.pulls.codec is not None
    return keys.pulls.codec.decode(copied(part, torch.uint8), count, keys.dtype)
