"""Keys: the numbered ranges of the values that servers hold.

First come the ranges of the model's vector, then those of each table: a range of a table is a block of its rows
(`aggregation.rows.share`). All peers compute the same ranges from the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from ...aggregation.filters.filter import PartCodec
from ...aggregation.filters.pulls import PullFilters
from ...aggregation.rows import INDEX, Rows, Table
from ...aggregation.vector import Part
from .placement import BLOCKS_MAX, blocks_of

WIRE_INDEX = torch.int32
"""The type of a row's number in a message."""

_PARAMETERS, _BUFFERS = -2, -1
"""The kinds (`Keys.kind`) of ranges of the vector; those of blocks are the numbers of their tables."""

Piece = Tensor | Rows
"""Values of one range, or of several ranges of one kind: of the vector's all [m], one range behind the other; of blocks
some rows, by their places (`Keys.place`), which ascend."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model's values: `vector` [n], and by name the values [rows, width] of its `tables`."""

    vector: Tensor
    tables: Mapping[str, Tensor]


@dataclass(frozen=True)
class Block:
    """The rows `first`, `first` + `of`, `first` + 2 `of`, ... of a table."""

    table: Table
    first: int
    of: int

    @cached_property
    def rows(self) -> int:
        """The number of rows of the block."""
        return len(range(self.first, self.table.rows, self.of))

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the block's values, [rows, width]."""
        return self.rows, self.table.width


class Keys:
    """The ranges of a vector, which are `parts` of it, and of `tables`; all values are of `dtype`. The vector's first
    `parameters` elements are parameters, and the others averaged buffers. `codec`: the one that encodes filtered
    pushes; None: there is none. `pulls`: the filters of pulls; None: all values travel. Raises ValueError for tables
    that are too large to be held."""

    def __init__(
        self,
        parts: Sequence[Part],
        parameters: int,
        dtype: torch.dtype,
        tables: Sequence[Table] = (),
        codec: PartCodec | None = None,
        pulls: PullFilters | None = None,
    ) -> None:
        self.codec, self.pulls = codec, pulls
        self.parts, self.dtype, self.tables = tuple(parts), dtype, tuple(tables)
        self.vector_size = self.parts[-1].stop if self.parts else 0
        self.blocks: dict[int, Block] = {}
        """By range, the block of rows; a range of the vector has none."""
        self.of_table: dict[str, range] = {}
        """By a table's name, its ranges."""
        self._itemsize = dtype.itemsize
        number = len(self.parts)
        for table in self.tables:
            count = blocks_of(table, self.row_bytes(table.width))
            self.of_table[table.name] = range(number, number + count)
            self.blocks |= {number + first: Block(table, first, count) for first in range(count)}
            number += count
        self._sizes = [part.stop - part.start for part in self.parts]
        self._sizes += [block.rows * block.table.width for block in self.blocks.values()]
        self._kinds = [_BUFFERS if part.start >= parameters else _PARAMETERS for part in self.parts]
        self._places = dict[int, int]()
        for kind, ranges in enumerate(self.of_table.values()):
            self._kinds += [kind] * len(ranges)
            self._places |= zip(ranges, accumulate((self.blocks[one].rows for one in ranges), initial=0), strict=False)
        if len(self.blocks) > BLOCKS_MAX:
            raise ValueError(f"the tables have {len(self.blocks)} blocks of rows, servers hold at most {BLOCKS_MAX}")

    def row_bytes(self, width: int) -> int:
        """The bytes of a row of `width` elements in a message, with the row's number (4 bytes)."""
        return WIRE_INDEX.itemsize + width * self.dtype.itemsize

    def piece_bytes(self, range: int, rows: int) -> int:
        """The bytes that a message needs for values of a range. For a block of a table: those of `rows` rows with their
        numbers, or with their numbers the codec's encoding of them (`coded_rows`). For a range of the vector `rows` is
        the code of `sparse`: 0, all elements; 1 + k, k elements with their numbers; `coded`, the codec's encoding of
        all."""
        if (block := self.blocks.get(range)) is not None:
            if (many := self.rows(range, rows)) != rows and self.codec is not None:
                return many * WIRE_INDEX.itemsize + self.codec.encoded_bytes(many * block.table.width)
            return rows * self.row_bytes(block.table.width)
        if rows == self.coded(range) and self.codec is not None:
            return self.codec.encoded_bytes(self._sizes[range])
        return (rows - 1) * self.row_bytes(1) if rows else self._sizes[range] * self._itemsize

    def coded(self, range: int) -> int:
        """The number that a message has in place of a number of rows for a range of the vector that the codec has
        encoded (`sparse`): 2 + the number of its elements."""
        return 2 + self._sizes[range]

    def coded_rows(self, range: int, rows: int) -> int:
        """The number that a message has in place of `rows` for a block of which the codec has encoded so many rows, at
        least 1: the number of all rows of the block + `rows`."""
        return self.blocks[range].rows + rows

    def rows(self, range: int, told: int) -> int:
        """The number of a block's rows in a message that has the number `told` for it: that itself, or the one of which
        it is the `coded_rows`."""
        return told if told <= self.blocks[range].rows else told - self.blocks[range].rows

    def __len__(self) -> int:
        return len(self.parts) + len(self.blocks)

    def name(self, range: int) -> str:
        """A range's name in records: its number, or for a block the table's name and the block's first row, as in
        `words/3`."""
        block = self.blocks.get(range)
        return str(range) if block is None else f"{block.table.name}/{block.first}"

    def shape(self, range: int) -> tuple[int, ...]:
        """The shape of all values of a range: [m], or [rows, width] of a block."""
        if (block := self.blocks.get(range)) is not None:
            return block.shape
        return (self._sizes[range],)

    def size(self, range: int) -> int:
        """The number of elements of a range."""
        return self._sizes[range]

    def is_buffer(self, range: int) -> bool:
        """Whether a range lies behind the parameters in the vector: it holds averaged buffers, which local steps do not
        train, or the loss (`Sandblaster`)."""
        return self._kinds[range] == _BUFFERS

    def kind(self, range: int) -> int:
        """A number by which ranges are grouped: one operation may update ranges of equal kind together. All ranges of
        parameters have one kind, all of averaged buffers another, and the blocks of each table one of their own."""
        return self._kinds[range]

    def place(self, range: int) -> int:
        """The place of a block's first row, where the blocks of its table stand one behind the other: the number of
        rows in the blocks before it."""
        return self._places[range]

    def placed(self, ranges: Sequence[int], counts: Sequence[int], ids: Tensor) -> Tensor:
        """The places [k], in the sense of `place`, of the rows `ids` [k], which are numbers in their blocks; `counts`:
        of each block in `ranges`, how many of them are its own, block after block."""
        places = torch.tensor([self._places[number] for number in ranges], dtype=INDEX)
        return ids + places.repeat_interleave(torch.tensor(counts, dtype=INDEX))

    def divided(self, ranges: Sequence[int], places: Tensor) -> tuple[list[int], Tensor]:
        """The inverse of `placed`: how many of `places` [k] are of each block in `ranges`, and their numbers [k] in
        their blocks. Both `ranges` and `places` must ascend, and the blocks be of one table and have all places."""
        firsts = torch.tensor([self._places[number] for number in ranges], dtype=INDEX)
        bounds = torch.searchsorted(places, firsts).tolist()
        counts = [stop - start for start, stop in pairwise((*bounds, places.shape[0]))]
        return counts, places - firsts.repeat_interleave(torch.tensor(counts, dtype=INDEX))

    def values(self, range: int, model: Model) -> Tensor:
        """The values of a range in `model`, of the shape `shape(range)`: a view of its tensors, no copy."""
        if (block := self.blocks.get(range)) is not None:
            return model.tables[block.table.name][block.first :: block.of]
        return model.vector[self.parts[range].start : self.parts[range].stop]
