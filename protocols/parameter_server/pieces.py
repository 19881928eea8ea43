"""Pieces of ranges as the bytes of a message: first the numbers of all rows, as int32 in the order of the ranges, and
then all values in the same order, in the dtype of `Keys`. A row's number is its place in the block of its range
(`keys.Block`); those of one range ascend. The message's header tells how many rows each range has: for a range of the
vector 0, because all its values are in the payload, without numbers. A question may have numbers alone, and an answer
values alone. Filtered pushes have another form (`sparse`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from ...aggregation.rows import INDEX, Rows
from ..transfer.elements import of_bytes, raw
from ..wire.frames import Buffer
from .keys import WIRE_INDEX, Keys, Piece

_NO_PLACES = torch.empty(0, dtype=INDEX)


def packed(ids: Sequence[Tensor], values: Sequence[Tensor]) -> Buffer:
    """The bytes of a message's payload: `ids`, the numbers of rows, as int32, then `values`. The tensors must not
    change any more: the payload may share their memory."""
    if not ids:
        return raw(values)
    return b"".join((raw([torch.cat(list(ids)).to(WIRE_INDEX)]), raw(values)))


def of_pieces(keys: Keys, pieces: Sequence[tuple[Sequence[int], Piece]]) -> tuple[tuple[int, ...], Buffer]:
    """The counts of rows by range, and the payload, of a message for `pieces`, each of which stands behind its ranges
    (`Pieces`). The tensors must not change any more."""
    counts, ids = list[int](), list[Tensor]()
    for ranges, piece in pieces:
        if isinstance(piece, Rows):
            many, own = keys.divided(ranges, piece.ids)
            counts += many
            ids.append(own)
        else:
            counts += [0] * len(ranges)
    return tuple(counts), packed(ids, [piece.values if isinstance(piece, Rows) else piece for _, piece in pieces])


def parted(keys: Keys, ranges: Sequence[int], piece: Piece) -> list[Piece]:
    """The piece of each of `ranges`, of which `piece` has all."""
    if isinstance(piece, Tensor):
        return [*torch.split(piece, [keys.size(number) for number in ranges])]
    counts, _ = keys.divided(ranges, piece.ids)
    split = zip(torch.split(piece.ids, counts), torch.split(piece.values, counts), strict=True)
    return [Rows(ids, values) for ids, values in split]


def joined(pieces: Sequence[Piece]) -> Piece:
    """One piece of these, which are of one kind (`Keys.kind`) and in the order of their ranges."""
    rows = [piece for piece in pieces if isinstance(piece, Rows)]
    if rows:
        return Rows(torch.cat([one.ids for one in rows]), torch.cat([one.values for one in rows]))
    return torch.cat([piece for piece in pieces if isinstance(piece, Tensor)])


def ids_of(keys: Keys, ranges: Sequence[int], counts: Sequence[int], payload: Buffer) -> dict[int, Tensor]:
    """For each block of a table among `ranges`, by its range, the numbers of rows [k] in the block, int64, from the
    beginning of `payload`; `counts`: for each range, how many. Raises ValueError where these are no rows of the blocks,
    ascending in each and none twice."""
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
        self._keys, self._ranges, ids = keys, ranges, ids_of(keys, ranges, counts, payload)
        sizes: Iterable[int] = map(keys.size, ranges)
        if ids:
            blocks, each = keys.blocks, zip(ranges, counts, strict=True)
            sizes = (many * blocks[one].table.width if one in ids else keys.size(one) for one, many in each)
        self._starts = [0, *accumulate(sizes)]
        head, due = sum(counts) * WIRE_INDEX.itemsize, self._starts[-1] * keys.dtype.itemsize
        if len(payload) != head + due:
            raise ValueError(f"it has {len(payload)} bytes for ranges of {head + due}")
        self.values = of_bytes(memoryview(payload)[head:], keys.dtype)
        self._rows = [0, *accumulate(counts)]
        self._places = _NO_PLACES
        if ids:
            own = [many for one, many in zip(ranges, counts, strict=True) if one in ids]
            self._places = keys.placed([*ids], own, torch.cat([*ids.values()]))

    def of(self, places: Sequence[int]) -> Piece:
        """The piece at `places`, which are indices into the ranges, ascending, of ranges of one kind (`Keys.kind`). The
        numbers of blocks among them must ascend too."""
        values = self._part(self.values, self._starts, places)
        if (block := self._keys.blocks.get(self._ranges[places[0]])) is None:
            return values
        return Rows(self._part(self._places, self._rows, places), values.view(-1, block.table.width))

    def _part(self, whole: Tensor, starts: Sequence[int], places: Sequence[int]) -> Tensor:
        """The elements of `whole` at `places`, each place having those from its start to the next one's."""
        first, until = places[0], places[-1] + 1
        if len(places) == len(self._ranges):
            return whole
        if until - first == len(places):
            return whole[starts[first] : starts[until]]
        return torch.cat([whole[starts[place] : starts[place + 1]] for place in places])

    def each(self) -> list[Piece]:
        """The piece of each range."""
        return [self.of((place,)) for place in range(len(self._ranges))]


def _rows(keys: Keys, range: int) -> int:
    return keys.blocks[range].rows if range in keys.blocks else 0
