"""Pieces of ranges as the bytes of a message: first the numbers of all rows, as int32 in the order of the ranges, and
then all values in the same order. The message's header tells how many rows each range has; a range of the vector has
none there, and all its values in the payload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from ...aggregation.rows import INDEX, Rows
from ..wire.frames import Buffer
from .keys import WIRE_INDEX, Keys, Piece


def raw(tensors: Sequence[Tensor]) -> Buffer:
    """The elements of these CPU tensors of one dtype, one tensor after another, as bytes. Those of a single tensor are
    not copied: it must not change any more."""
    whole = tensors[0] if len(tensors) == 1 else torch.cat([one.reshape(-1) for one in tensors] or [torch.empty(0)])
    data = whole.detach().numpy().data
    if not data.contiguous:
        data = whole.detach().contiguous().numpy().data
    return data.cast("B") if data.nbytes else b""


def of_bytes(payload: Buffer, dtype: torch.dtype) -> Tensor:
    """The elements [m] that `raw` wrote. The tensor may share the memory of `payload`, so nobody may write into it."""
    if not len(payload):
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(bytearray(payload) if memoryview(payload).readonly else payload, dtype=dtype)


def packed(ids: Sequence[Tensor], values: Sequence[Tensor]) -> Buffer:
    """The bytes of a message's payload: `ids`, the numbers of rows, as int32, then `values`. The tensors must not
    change any more: the payload may share their memory."""
    if not ids:
        return raw(values)
    return b"".join((raw([torch.cat(list(ids)).to(WIRE_INDEX)]), raw(values)))


def of_pieces(pieces: Sequence[Piece]) -> Buffer:
    """The bytes of a message's payload for `pieces`, in their order (`packed`). They must not change any more."""
    ids = [piece.ids for piece in pieces if isinstance(piece, Rows)]
    return packed(ids, [piece.values if isinstance(piece, Rows) else piece for piece in pieces])


def ids_of(keys: Keys, ranges: Sequence[int], counts: Sequence[int], payload: Buffer) -> dict[int, Tensor]:
    """For each block of a table among `ranges`, by its range, the numbers of rows from the beginning of `payload`;
    `counts`: for each range, how many. Raises ValueError where these are no rows of the blocks."""
    if len(counts) != len(ranges):
        raise ValueError(f"it tells the rows of {len(counts)} ranges, of {len(ranges)}")
    if not any(counts) and keys.blocks.keys().isdisjoint(ranges):
        return {}
    if any(not 0 <= many <= _rows(keys, number) for number, many in zip(ranges, counts, strict=True)):
        raise ValueError("it has other numbers of rows than its ranges can have")
    nbytes = sum(counts) * WIRE_INDEX.itemsize
    if len(payload) < nbytes:
        raise ValueError(f"it has {len(payload)} bytes, and the numbers of its rows are {nbytes}")
    every = of_bytes(memoryview(payload)[:nbytes], WIRE_INDEX).to(INDEX)
    blocks = {number: many for number, many in zip(ranges, counts, strict=True) if number in keys.blocks}
    found = dict(zip(blocks, torch.split(every, list(blocks.values())), strict=True))
    if not _are_rows(every, [keys.blocks[number].rows for number in blocks], list(blocks.values())):
        raise ValueError("it has rows that are not among those of its ranges, in order and none twice")
    return found


def _are_rows(ids: Tensor, rows: Sequence[int], counts: Sequence[int]) -> bool:
    """Whether `ids` [k] are, one block after another, `counts` numbers of `rows` rows, ascending and none twice."""
    times = torch.tensor(counts, dtype=INDEX)
    limits = torch.tensor(rows, dtype=INDEX).repeat_interleave(times)
    rising = ids[1:] > ids[:-1]
    first = times.cumsum(0) - 1  # between the last row of a block and the first of the next the numbers may fall
    rising[first[(first >= 0) & (first < rising.shape[0])]] = True
    return bool((ids >= 0).all()) and bool((ids < limits).all()) and bool(rising.all())


class Pieces:
    """The pieces of `ranges`, read from the `payload` that `packed` wrote; `counts`: for each range, its number of rows
    in the payload, 0 for a range of the vector. All their `values` [m] share its memory. Raises ValueError where
    `payload` does not have exactly the bytes of these."""

    def __init__(self, keys: Keys, ranges: Sequence[int], counts: Sequence[int], payload: Buffer) -> None:
        self._keys, self._ranges, self._ids = keys, ranges, ids_of(keys, ranges, counts, payload)
        ids = self._ids
        sizes: Iterable[int] = map(keys.size, ranges)
        if ids:
            sizes = (len(ids[one]) * keys.shape(one)[1] if one in ids else keys.size(one) for one in ranges)
        self._starts = [0, *accumulate(sizes)]
        head, due = sum(counts) * WIRE_INDEX.itemsize, self._starts[-1] * keys.dtype.itemsize
        if len(payload) != head + due:
            raise ValueError(f"it has {len(payload)} bytes for ranges of {head + due}")
        self.values = of_bytes(memoryview(payload)[head:], keys.dtype)

    def of(self, places: Sequence[int]) -> Piece:
        """The piece at `places`, which are indices into the ranges: one place of a block gives its rows; ascending
        places of ranges of the vector give their values, one behind the other [m]."""
        first, until, starts = places[0], places[-1] + 1, self._starts
        if len(places) == len(self._ranges):
            values = self.values
        elif until - first == len(places):
            values = self.values[starts[first] : starts[until]]
        else:
            values = torch.cat([self.values[starts[place] : starts[place + 1]] for place in places])
        if (ids := self._ids.get(self._ranges[first])) is None:
            return values
        return Rows(ids, values.view(-1, self._keys.shape(self._ranges[first])[1]))

    def each(self) -> list[Piece]:
        """The piece of each range."""
        return [self.of((place,)) for place in range(len(self._ranges))]


def _rows(keys: Keys, range: int) -> int:
    return keys.blocks[range].rows if range in keys.blocks else 0
