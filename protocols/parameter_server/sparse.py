"""Filtered pushes as messages: of a range of the vector only the elements travel that are not 0, with their numbers.

In the header of a push `rows` of a range of the vector is 0 where all its elements travel, else 1 + the number of
those that do. Their numbers in the range stand among those of rows, as int32. A server makes the whole range of them,
so a filter changes nothing but the message.

Cost: 4 bytes more for each element that travels, so a range of which more than half travels (of float32) goes whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...aggregation.rows import INDEX, ascending
from ..wire.frames import Buffer
from .keys import WIRE_INDEX, Keys
from .pieces import of_bytes, packed
from .shares import Pushes, Shares


class Sparse(Shares):
    """The shares of a push, of which elements that are 0 do not travel where that takes fewer bytes."""

    def __init__(self, keys: Keys, pushes: Pushes) -> None:
        super().__init__(keys, {name: rows.ids for name, rows in pushes.rows.items()})
        self._elements: dict[int, Tensor] = {}
        """By range of the vector, the numbers [k] of the elements that travel; one that travels whole is not here."""
        for number, part in enumerate(keys.parts):
            found = pushes.vector[part.start : part.stop].nonzero().flatten()
            if keys.piece_bytes(number, 1 + len(found)) < keys.piece_bytes(number, 0):
                self._elements[number] = found

    def counts(self, ranges: Sequence[int]) -> tuple[int, ...]:
        every = zip(ranges, super().counts(ranges), strict=True)
        return tuple(1 + len(self._elements[one]) if one in self._elements else rows for one, rows in every)

    def payload(self, ranges: Sequence[int], pushes: Pushes) -> Buffer:
        if self._elements.keys().isdisjoint(ranges):
            return super().payload(ranges, pushes)
        ids, values = list[Tensor](), list[Tensor]()
        for number in ranges:
            if number in self.ids:
                ids.append(self.ids[number])
                values.append(self.rows_of(number, pushes))
                continue
            part = self._keys.parts[number]
            whole, found = pushes.vector[part.start : part.stop], self._elements.get(number)
            if found is not None:
                ids.append(found)
            values.append(whole if found is None else whole[found])
        return packed(ids, values)


def dense(keys: Keys, ranges: Sequence[int], counts: Sequence[int], payload: Buffer) -> tuple[Sequence[int], Buffer]:
    """The counts of rows and the payload of the same push with all elements of its ranges of the vector. Raises
    ValueError where its elements are none of these ranges."""
    if len(counts) != len(ranges):
        raise ValueError(f"it tells the rows of {len(counts)} ranges, of {len(ranges)}")
    some = [many > 0 and number not in keys.blocks for number, many in zip(ranges, counts, strict=True)]
    if not any(some):
        return counts, payload
    if any(not 0 <= many <= 1 + keys.size(number) for number, many in zip(ranges, counts, strict=True)):
        raise ValueError("it has other numbers of elements than its ranges can have")
    found = [many - sparse for many, sparse in zip(counts, some, strict=True)]
    sizes = [
        many if sparse else many * keys.shape(number)[1] if number in keys.blocks else keys.size(number)
        for number, many, sparse in zip(ranges, found, some, strict=True)
    ]
    head, due = sum(found) * WIRE_INDEX.itemsize, sum(sizes) * keys.dtype.itemsize
    if len(payload) != head + due:
        raise ValueError(f"it has {len(payload)} bytes for elements of {head + due}")
    ids = torch.split(of_bytes(memoryview(payload)[:head], WIRE_INDEX).to(INDEX), found)
    parts = list(torch.split(of_bytes(memoryview(payload)[head:], keys.dtype), sizes))
    for place, number in enumerate(ranges):
        if some[place]:
            whole = torch.zeros(keys.size(number), dtype=keys.dtype)
            if not ascending(ids[place], len(whole)):
                raise ValueError("it has elements that are not among those of its ranges, in order and none twice")
            whole[ids[place]] = parts[place]
            parts[place] = whole
    rows = tuple(0 if sparse else many for many, sparse in zip(counts, some, strict=True))
    return rows, packed([one for one, sparse in zip(ids, some, strict=True) if not sparse and len(one)], parts)
