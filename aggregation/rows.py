"""Some rows of a table, such as an embedding of which a batch touches few rows.

A table is a matrix [n, width]. All functions are pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

INDEX = torch.int64


class Table(NamedTuple):
    """A table's name, its number of `rows`, and the `width` of a row in elements."""

    name: str
    rows: int
    width: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a table. `ids` [k]: their numbers, int64, ascending, none twice; `values` [k, width]."""

    ids: Tensor
    values: Tensor

    def __len__(self) -> int:
        return self.ids.shape[0]

    @property
    def nbytes(self) -> int:
        return self.ids.nbytes + self.values.nbytes

    def times(self, factor: float) -> Rows:
        """These rows with all values multiplied by `factor`; the same object where that is 1."""
        return self if factor == 1.0 else Rows(self.ids, self.values * factor)

    def over(self, divisor: float) -> Rows:
        """These rows with all values divided by `divisor`; the same object where that is 1."""
        return self if divisor == 1.0 else Rows(self.ids, self.values / divisor)

    def minus(self, other: Rows) -> Rows:
        """The difference `self` - `other` of the values. `other` must have the same ids in the same order, which is not
        checked."""
        return Rows(self.ids, self.values - other.values)

    def plus(self, other: Rows) -> Rows:
        """The sum of two sets of rows of one table, in which a missing row counts as zeros. If either is empty, the
        other object itself is returned."""
        own = self.ids.shape[0]
        if not own or not other.ids.shape[0]:
            return self if own else other
        ids, places = torch.unique(torch.cat((self.ids, other.ids)), return_inverse=True)
        values = self.values.new_zeros(ids.shape[0], self.values.shape[1])
        values[places[:own]] = self.values
        values.index_add_(0, places[own:], other.values)
        return Rows(ids, values)


def ascending(ids: Tensor, rows: int) -> bool:
    """Whether `ids` [k] are numbers of `rows` rows, ascending and none twice."""
    if not ids.shape[0]:
        return True
    return bool(ids[0] >= 0) and bool(ids[-1] < rows) and bool((ids[1:] > ids[:-1]).all())


def share(ids: Tensor, blocks: int) -> tuple[Tensor, list[int]]:
    """Divide the rows `ids` [k], ascending numbers, among `blocks` blocks. Returns the indices [k], int64, that put
    `ids` in the order of the blocks, ascending within each, and for each block the number of its rows. Row r belongs to
    block r mod `blocks` and is row r // `blocks` in it, so neighbours, which are often equally frequent, are in
    different blocks."""
    of = ids % blocks
    counts: list[int] = torch.bincount(of, minlength=blocks).tolist()
    return torch.argsort(of, stable=True), counts
