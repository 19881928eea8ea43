"""Shares: which rows of each block a worker pulls or pushes. A block is a range of a table: some of its rows
(`keys`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Self

import torch
from torch import Tensor

from ...aggregation.rows import INDEX, Rows, ascending, share
from ..wire.frames import Buffer
from .keys import Keys
from .pieces import packed
from .placement import merged

_NO_IDS = torch.empty(0, dtype=INDEX)


@dataclass(frozen=True, slots=True)
class Pushes:
    """The values of one push or pull: `vector` [n], and by table the `rows` that it is about; none of a table without
    an entry. `coded`: by range, of the vector or of a table, the bytes (uint8) that a codec makes of it, where one
    does; a server decodes them to the values in `vector` and `rows`."""

    vector: Tensor
    rows: Mapping[str, Rows]
    coded: Mapping[int, Tensor] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """The bytes of the vector, and of the rows with their numbers."""
        return self.vector.nbytes + sum(rows.nbytes for rows in self.rows.values())


class Shares:
    """By block, the rows among `wanted` that a worker pulls or pushes. `wanted`: the numbers [k] of rows by table,
    int64, ascending and none twice. Raises ValueError for an unknown table, and where they are not such numbers of the
    table's rows."""

    def __init__(self, keys: Keys, wanted: Mapping[str, Tensor]) -> None:
        if unknown := wanted.keys() - keys.of_table.keys():
            raise ValueError(f"there is no table {min(unknown)!r}: the model has {', '.join(keys.of_table) or 'none'}")
        self._keys, self._wanted = keys, wanted
        self._counts: dict[int, int] = {}
        """By block, the number of the wanted rows."""
        self.ids: dict[int, Tensor] = {}
        """By block, the numbers in the block of the wanted rows."""
        self._places: dict[int, Tensor] = {}
        """By block, the places of these rows among all wanted rows of the table."""
        for table in keys.tables:
            ids, blocks = wanted.get(table.name, _NO_IDS), keys.of_table[table.name]
            if ids.dtype != INDEX or ids.dim() != 1 or not ascending(ids, table.rows):
                due = "an int64 tensor [k] of their numbers is due, ascending and none twice"
                raise ValueError(f"of the {table.rows} rows of table {table.name!r}, {due}")
            order, counts = share(ids, len(blocks))
            self._counts |= zip(blocks, counts, strict=True)
            self.ids |= zip(blocks, torch.split(ids[order] // len(blocks), counts), strict=True)
            self._places |= zip(blocks, torch.split(order, counts), strict=True)

    @classmethod
    def of(cls, keys: Keys, pushes: Pushes) -> Self:
        """The shares that `pushes` consists of: the rows of each block that are in it. Raises ValueError where it is
        not of the shapes and the dtype of the model and its tables."""
        vector, shares = pushes.vector, cls(keys, {name: rows.ids for name, rows in pushes.rows.items()})
        if vector.shape != (keys.vector_size,) or vector.dtype != keys.dtype:
            got = f"{vector.dtype} of {tuple(vector.shape)}"
            raise ValueError(f"the vector is {got}, due is {keys.dtype} of ({keys.vector_size},)")
        for table in keys.tables:
            if (rows := pushes.rows.get(table.name)) is None:
                continue
            due = (len(rows), table.width)
            if rows.values.shape != due or rows.values.dtype != keys.dtype:
                got = f"{rows.values.dtype} of {tuple(rows.values.shape)}"
                raise ValueError(f"the rows of table {table.name!r} are {got}, due are {keys.dtype} of {due}")
        return shares

    def counts(self, ranges: Sequence[int]) -> tuple[int, ...]:
        """By range, the number of its rows; 0 for a range of the vector."""
        return tuple(self._counts.get(number, 0) for number in ranges)

    def size(self, range: int) -> int:
        """The elements of the vector's range, or of the block's wanted rows."""
        block = self._keys.blocks.get(range)
        return self._keys.size(range) if block is None else self._counts[range] * block.table.width

    def nbytes(self, range: int) -> int:
        """The bytes that the vector's range, or the block's wanted rows with their numbers, take in a message."""
        return self._keys.piece_bytes(range, self._counts.get(range, 0))

    def payload(self, ranges: Sequence[int], pushes: Pushes) -> Buffer:
        """The parts of a push that are for `ranges`, ascending, as the payload of a message: the numbers of the rows of
        blocks, and then all values."""
        blocks = [number for number in ranges if number in self.ids]
        parts = merged(self._keys.parts[number] for number in ranges[: len(ranges) - len(blocks)])
        whole = len(parts) == 1 and parts[0] == (0, self._keys.vector_size)
        values = [pushes.vector] if whole else [pushes.vector[part.start : part.stop] for part in parts]
        values += [pushes.rows[name].values[places] for name, places in self._by_table(blocks)]
        return packed([self.ids[number] for number in blocks], values)

    def _by_table(self, blocks: Iterable[int]) -> Iterator[tuple[str, Tensor]]:
        """For each table with wanted rows in `blocks`, which ascend: its name, and the places of these rows among all
        wanted ones of the table, block after block."""
        keys = self._keys
        for name, some in groupby(blocks, lambda number: keys.blocks[number].table.name):
            places = torch.cat([self._places[number] for number in some])
            if places.shape[0]:
                yield name, places

    def rows_of(self, block: int, pushes: Pushes) -> Tensor:
        """The values [k, width] that `pushes` has for the wanted rows of the block with this number; [0] where none are
        wanted."""
        places, name = self._places[block], self._keys.blocks[block].table.name
        return pushes.rows[name].values[places] if places.shape[0] else pushes.vector[:0]

    def blank(self) -> Pushes:
        """New tensors for the result of a pull, a vector and the wanted rows. Their values are not set yet (`put`)."""
        dtype, every = self._keys.dtype, self._keys.tables
        rows = {
            table.name: Rows(ids, torch.empty(ids.shape[0], table.width, dtype=dtype))
            for table in every
            if (ids := self._wanted.get(table.name)) is not None
        }
        return Pushes(torch.empty(self._keys.vector_size, dtype=dtype), rows)

    def put(self, values: Tensor, ranges: Sequence[int], into: Pushes) -> None:
        """Write the pulled `values` [m] into `into`: those of the `ranges` of the vector, which ascend, into its
        vector, and then those of the blocks' wanted rows into its rows."""
        keys, at = self._keys, 0
        for part in merged(keys.parts[number] for number in ranges if number not in self.ids):
            size = part.stop - part.start
            into.vector[part.start : part.stop], at = values[at : at + size], at + size
        for name, places in self._by_table(number for number in ranges if number in self.ids):
            rows = into.rows[name].values
            size = places.shape[0] * rows.shape[1]
            rows[places], at = values[at : at + size].view(-1, rows.shape[1]), at + size
