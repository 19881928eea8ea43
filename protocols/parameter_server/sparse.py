"""Filtered pushes as messages: of a range of the vector only the elements travel that are not 0, with their numbers, or
what a codec makes of the range, or all its elements, whichever is fewest bytes; of a block its rows, or what a codec
makes of these.

In the header of a push `rows` of a range of the vector is 0 where all its elements travel, 1 + the number of those that
do, or, where a codec has encoded it, 2 + the number of all its elements; of a block where a codec has encoded its rows
their number + that of all its rows. The numbers of elements in their range stand among those of rows, as int32. A
server makes the whole range of them, so a filter changes nothing but the message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import torch
from torch import Tensor

from ...aggregation.rows import INDEX, ascending
from ..transfer.elements import copied, raw
from ..wire.frames import Buffer
from .keys import WIRE_INDEX, Keys
from .shares import Pushes, Shares


class Sparse(Shares):
    """By block, the rows that a filtered push has (`Shares`); and for each range the form in which it is sent: all
    elements or rows, elements that are not 0 with their numbers, or the codec's bytes, whichever is fewest."""

    def __init__(self, keys: Keys, wanted: Mapping[str, Tensor]) -> None:
        super().__init__(keys, wanted)
        self._rows: dict[int, int] = {}
        """By range, its `rows` in the header; of a block only if they are encoded."""
        self._elements: dict[int, Tensor] = {}
        """By range of the vector of which some elements travel, their numbers [k]."""

    @classmethod
    def of(cls, keys: Keys, pushes: Pushes) -> Self:
        shares = super().of(keys, pushes)
        for number, part in enumerate(keys.parts):
            found = pushes.vector[part.start : part.stop].nonzero().flatten()
            coded = [keys.coded(number)] if number in pushes.coded else []
            rows = min(0, 1 + len(found), *coded, key=lambda many: (keys.piece_bytes(number, many), many))
            shares._rows[number] = rows
            if rows == 1 + len(found):
                shares._elements[number] = found
        for number in pushes.coded.keys() & keys.blocks.keys():
            forms = (many := shares._counts[number]), keys.coded_rows(number, many)
            if (rows := min(forms, key=lambda form: keys.piece_bytes(number, form))) != many:
                shares._rows[number] = rows
        return shares

    def counts(self, ranges: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._rows.get(number, self._counts.get(number, 0)) for number in ranges)

    def payload(self, ranges: Sequence[int], pushes: Pushes) -> Buffer:
        if not any(self._rows.get(number) for number in ranges):
            return super().payload(ranges, pushes)
        ids, values = list[Tensor](), list[Tensor]()
        for number in ranges:
            if number in self.ids:
                ids.append(self.ids[number])
                values.append(pushes.coded[number] if number in self._rows else self.rows_of(number, pushes))
                continue
            part = self._keys.parts[number]
            whole, found = pushes.vector[part.start : part.stop], self._elements.get(number)
            if found is not None:
                ids.append(found)
                values.append(whole[found])
            else:
                values.append(pushes.coded[number] if self._rows[number] else whole)
        head = raw([torch.cat(ids).to(WIRE_INDEX)]) if ids else b""
        return b"".join((head, *(raw([one]) for one in values)))


def dense(keys: Keys, ranges: Sequence[int], counts: Sequence[int], payload: Buffer) -> tuple[Sequence[int], Buffer]:
    """Turn a filtered push into one with all elements of its ranges of the vector, 0 for those that were not sent, and
    with rows that are not encoded. `counts`, `payload`: of the message. Returns the new counts of rows, 0 for a range
    of the vector, and the new payload. Raises ValueError for counts, numbers of elements or bytes that do not fit these
    ranges, and for an encoded range that cannot be decoded."""
    if len(counts) != len(ranges):
        raise ValueError(f"it tells the rows of {len(counts)} ranges, of {len(ranges)}")
    rows_of = {number: keys.blocks[number].rows for number in ranges if number in keys.blocks}
    if not any(counts) or all(many <= rows_of.get(number, 0) for number, many in zip(ranges, counts, strict=True)):
        return counts, payload
    for number, many in zip(ranges, counts, strict=True):
        if not 0 <= many <= (2 * rows_of[number] if number in rows_of else keys.coded(number)):
            raise ValueError("it has other numbers of elements than its ranges can have")
        is_coded = many > rows_of[number] if number in rows_of else many == keys.coded(number)
        if is_coded and keys.codec is None:
            raise ValueError("it is encoded, and this run has no codec")
    found = [_ids(keys, number, many) for number, many in zip(ranges, counts, strict=True)]
    head = sum(found) * WIRE_INDEX.itemsize
    sizes = [
        keys.piece_bytes(number, many) - own * WIRE_INDEX.itemsize
        for number, many, own in zip(ranges, counts, found, strict=True)
    ]
    if len(payload) != head + sum(sizes):
        raise ValueError(f"it has {len(payload)} bytes for elements of {head + sum(sizes)}")
    ids = torch.split(copied(memoryview(payload)[:head], WIRE_INDEX).to(INDEX), found)
    parts, at = list[Tensor](), head
    for number, many, own, size in zip(ranges, counts, ids, sizes, strict=True):
        piece, at = memoryview(payload)[at : at + size], at + size
        parts.append(_whole(keys, number, many, own, piece))
    rows = tuple(
        keys.rows(number, many) if number in rows_of else 0 for number, many in zip(ranges, counts, strict=True)
    )
    blocks = [one for number, one in zip(ranges, ids, strict=True) if number in keys.blocks]
    return rows, b"".join((raw([torch.cat(blocks).to(WIRE_INDEX)]) if blocks else b"", raw(parts)))


def _ids(keys: Keys, range: int, rows: int) -> int:
    """How many numbers of rows or elements a piece has in a message."""
    if range in keys.blocks:
        return keys.rows(range, rows)
    return 0 if rows in (0, keys.coded(range)) else rows - 1


def _whole(keys: Keys, range: int, rows: int, ids: Tensor, piece: Buffer) -> Tensor:
    """The values of a block's rows, or all elements of a range of the vector."""
    block = keys.blocks.get(range)
    if block is not None and (many := keys.rows(range, rows)) != rows:
        assert keys.codec is not None
        return keys.codec.decode(copied(piece, torch.uint8), many * block.table.width, keys.dtype)
    if block is not None or not rows:
        return copied(piece, keys.dtype)
    if rows == keys.coded(range):
        assert keys.codec is not None
        return keys.codec.decode(copied(piece, torch.uint8), keys.size(range), keys.dtype)
    whole = torch.zeros(keys.size(range), dtype=keys.dtype)
    if not ascending(ids, len(whole)):
        raise ValueError("it has elements that are not among those of its ranges, in order and none twice")
    whole[ids] = copied(piece, keys.dtype)
    return whole
