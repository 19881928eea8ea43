"""A worker's filters of pushes (`aggregation.filters`), and the changes of the vector and of rows of tables that they
keep back until they are sent.

    corrected = what the steps have changed + what waits of it      sent = what the filters let pass of that

Each push is about all elements of the vector, but only about the rows that its steps have touched: what waits of any
other row is sent when a push touches that row again, or by the worker's last push, which has all that waits.

Cost: the vector once more on each worker, and each table once as far as rows wait; a row that waits costs a push
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Self

import torch
from torch import Tensor

from ...aggregation.codecs.codec import seed_of
from ...aggregation.filters.filter import Filters, Push
from ...aggregation.rows import INDEX, Rows, Table, share
from ...aggregation.vector import Part
from ..testpoints import witness
from .events import Sifted
from .keys import Keys
from .reading import Values
from .shares import Pushes

_NAME = "parameter_server/residual"


@dataclass(slots=True)
class Residual:
    """The changes that the filters of one worker have kept back: of the vector's trained elements `vector` [m] (None:
    nothing), and by table the values [rows, width] of all its `rows`, which are 0 where nothing waits; no entry:
    nothing waits."""

    vector: Tensor | None = None
    rows: dict[str, Tensor] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.rows) or (self.vector is not None and bool(self.vector.any()))

    def tensors(self) -> dict[str, Tensor]:
        """The residual for a checkpoint, of the rows those that wait. Later pushes do not write into it."""
        found = {} if self.vector is None else {_NAME: self.vector}
        for name, values in self.rows.items():
            waiting = _waiting(values)
            found |= {f"{_NAME}/{name}/ids": waiting.ids, f"{_NAME}/{name}/values": waiting.values}
        return found

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], tables: Mapping[str, Tensor]) -> Self:
        """The residual that is in a checkpoint's `tensors`. `tables`: the model's, by name."""
        residual = cls(tensors.get(_NAME))
        for name, table in tables.items():
            if (ids := tensors.get(f"{_NAME}/{name}/ids")) is not None:
                residual.rows[name] = torch.zeros_like(table)
                residual.rows[name][ids] = tensors[f"{_NAME}/{name}/values"]
        return residual


class Filtering:
    """The filters of one worker's pushes of the ranges `keys`, of whose vector the first `parameters` elements are
    trained: only these, and rows of tables, are filtered."""

    def __init__(self, filters: Filters, keys: Keys, parameters: int) -> None:
        self._filters, self._keys, self._parameters = filters, keys, parameters
        self._parts = tuple(part for number, part in enumerate(keys.parts) if not keys.is_buffer(number))

    def apply(
        self, pushed: Pushes, pulled: Values, residual: Residual, rate: float, seed: int, *, seq: int, last: bool
    ) -> tuple[Pushes, int]:
        """The push to send in place of `pushed`, and the number of elements that are kept back or forgotten. `pulled`:
        the values from which its steps began, with the same rows; `rate`, `seed`: see
        `aggregation.filters.filter.Push`. `seq`: the number of the push. `residual` is changed: it loses what is sent
        and gets what is kept back. The worker's `last` push is not filtered, and has all that waits. Raises ValueError
        as `Filters.apply`."""
        trained, waited = pushed.vector[: self._parameters], residual.vector
        if last:
            sent, residual.vector, held, coded = trained if waited is None else trained + waited, None, 0, {}
        else:
            push = Push(pulled.vector[: self._parameters], rate, seed, self._parts)
            sent, residual.vector, held, some = self._filters.apply(trained, waited, push)
            coded = {**some}
        witness(Sifted(seq, trained, waited, sent, residual.vector))
        rows = dict(pushed.rows)
        for table in self._keys.tables:
            if last:
                rows[table.name] = self._all(table, rows.get(table.name), residual)
            elif table.name in rows:
                push = Push(pulled.rows[table.name].values, rate, seed_of(seed, table.name))
                rows[table.name], kept = self._filtered(table, rows[table.name], residual, push, coded)
                held += kept
        return Pushes(torch.cat((sent, pushed.vector[self._parameters :])), rows, coded), held

    def _filtered(
        self, table: Table, pushed: Rows, residual: Residual, push: Push, coded: dict[int, Tensor]
    ) -> tuple[Rows, int]:
        """The rows to send in place of those that are `pushed` of a table, and the number of elements that are kept
        back or forgotten. By block, what the codec makes of them is put into `coded`."""
        waits = residual.rows.get(table.name)
        if waits is None:
            waits = residual.rows[table.name] = torch.zeros(table.rows, table.width, dtype=self._keys.dtype)
        corrected = pushed.values + waits[pushed.ids]
        passed, forgotten = self._filters.passed(corrected, push)
        passes = passed.any(dim=1)
        sent = Rows(pushed.ids[passes], passed[passes])
        if self._filters.codec is not None:
            sent = self._encoded(table, sent, push, coded)
        held = int((corrected[~passes] != 0).sum())
        left = corrected if forgotten is None else corrected - forgotten
        left[passes] -= sent.values
        waits[pushed.ids] = left
        return sent, held

    def _encoded(self, table: Table, rows: Rows, push: Push, coded: dict[int, Tensor]) -> Rows:
        """`rows` as a server decodes them. Those of a block are encoded together."""
        blocks = self._keys.of_table[table.name]
        order, counts = share(rows.ids, len(blocks))
        parts = tuple(Part(start, stop) for start, stop in pairwise(accumulate(counts, initial=0)))
        found, some = self._filters.encoded(rows.values[order], replace(push, parts=parts))
        coded |= {blocks[number]: payload for number, payload in some.items()}
        values = torch.empty_like(rows.values)
        values[order] = found
        return Rows(rows.ids, values)

    def _all(self, table: Table, pushed: Rows | None, residual: Residual) -> Rows:
        """The rows `pushed` of a table, and all that waits of it. Afterwards nothing waits."""
        none = Rows(torch.empty(0, dtype=INDEX), torch.empty(0, table.width, dtype=self._keys.dtype))
        waits = residual.rows.pop(table.name, None)
        waiting = none if waits is None else _waiting(waits)
        return waiting if pushed is None else pushed.plus(waiting)


def _waiting(values: Tensor) -> Rows:
    """The rows of `values` [rows, width] that are not 0."""
    ids = values.any(dim=1).nonzero().flatten()
    return Rows(ids, values[ids])
