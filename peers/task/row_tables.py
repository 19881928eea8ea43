"""The tables of a model of which a batch touches few rows: the weights of its sparse embeddings, if the task says by
``rows(batch)`` which rows a batch needs.

They are no part of the vector that peers exchange; where a conversation takes rows (`OwnSettings.takes_rows`), a peer
exchanges only the rows of its next batches. Its other rows are as old as the last time that they were needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...aggregation.rows import INDEX, Rows, ascending
from ...aggregation.vector import all_finite
from .constants import Agreement
from .task import Task, TaskError, shown


def tables_of(model: nn.Module) -> dict[str, Tensor]:
    """Name -> weight [rows, width] of each sparse embedding that is trained, in the model's order. A table has the name
    of its module."""
    kinds = (nn.Embedding, nn.EmbeddingBag)
    return {
        name: module.weight
        for name, module in model.named_modules()
        if isinstance(module, kinds) and module.sparse and module.weight.requires_grad and module.weight.numel()
    }


class RowTables:
    """The tables of `model` under `task`. Rows travel in `dtype`, on the CPU: float64 if a table is float64, else
    float32."""

    def __init__(self, task: Task, model: nn.Module) -> None:
        """Raises TaskError when the model has no table."""
        self._task, self._tables = task, tables_of(model)
        if not self._tables:
            raise TaskError(f"{task.path}: rows() is for tables, and model() has no nn.Embedding with sparse=True")
        doubles = {weight.dtype == torch.float64 for weight in self._tables.values()}
        self.dtype = torch.float64 if True in doubles else torch.float32
        self._loaded: dict[str, Tensor] = {}
        """By table, the numbers of the rows that the present local steps began from."""

    @classmethod
    def of(cls, task: Task, model: nn.Module) -> RowTables | None:
        """The tables of `model`; None for a task without rows(). Raises TaskError when the model has no table."""
        return None if task.rows is None else cls(task, model)

    @property
    def parameters(self) -> frozenset[int]:
        """The `id()` of each table, by which it is recognised among the model's parameters."""
        return frozenset(map(id, self._tables.values()))

    def tensors(self) -> dict[str, Tensor]:
        """By table, its values [rows, width]. A table that is on the CPU, and of the type in which rows travel, is not
        copied."""
        return {name: weight.detach().to("cpu", self.dtype) for name, weight in self._tables.items()}

    def agreed(self, agreement: Agreement) -> Agreement:
        """`agreement`, extended so that all peers' tables must also have equal names, shapes and types: its digest and
        its words cover them."""
        text = "".join(f" {name} {tuple(one.shape)} {one.dtype}" for name, one in self._tables.items())
        digest = hashlib.blake2b(f"{agreement.digest}{text}".encode(), digest_size=16).hexdigest()
        sizes = (f"{name!r} of {one.shape[0]} x {one.shape[1]}" for name, one in self._tables.items())
        return Agreement(digest, f"{agreement.words}, and table {' and '.join(sizes)}")

    def needed(self, batches: Iterable[Any]) -> dict[str, Tensor]:
        """By table, the numbers [k] of the rows that these batches need, ascending and none twice, by the task's
        rows(). A table that rows() names for no batch is left out. Raises TaskError where rows() gives anything else
        than numbers of rows."""
        found: dict[str, list[Tensor]] = {name: [] for name in self._tables}
        for batch in batches:
            for name, ids in self._asked(batch).items():
                found[name].append(self._checked(name, ids))
        return {name: torch.cat(some).unique() for name, some in found.items() if some}

    def _asked(self, batch: Any) -> Mapping[str, object]:
        assert self._task.rows is not None
        asked = self._task.rows(batch)
        if not isinstance(asked, Mapping):
            raise TaskError(f"{self._task.path}: rows() must return a dict of table names, got {shown(asked)}")
        if unknown := [name for name in asked if name not in self._tables]:
            known = ", ".join(map(repr, self._tables))
            raise TaskError(f"{self._task.path}: rows() told of {unknown[0]!r:.60}, the model's tables are {known}")
        return asked

    def _checked(self, name: str, ids: object) -> Tensor:
        path, rows = self._task.path, len(self._tables[name])
        if not isinstance(ids, Tensor) or ids.dtype != INDEX:
            got = f"a tensor of {ids.dtype}" if isinstance(ids, Tensor) else shown(ids)
            raise TaskError(f"{path}: rows() must return int64 tensors, got {got} for table {name!r}")
        numbers: Tensor = ids.detach().reshape(-1).cpu().unique()
        if not ascending(numbers, rows):
            odd = int(numbers[0]) if numbers[0] < 0 else int(numbers[-1])
            raise TaskError(f"{path}: rows() asked for row {odd} of table {name!r}, which has rows 0 to {rows - 1}")
        return numbers

    def load(self, rows: Mapping[str, Rows]) -> None:
        """Write `rows`, by table, into the tables; the next local steps begin from them. Other rows keep their
        values."""
        with torch.no_grad():
            for name, some in rows.items():
                weight = self._tables[name]
                weight[some.ids.to(weight.device)] = some.values.to(weight.device, weight.dtype)
        self._loaded = {name: some.ids for name, some in rows.items()}

    def rows(self) -> dict[str, Rows]:
        """By table, the rows that were loaded last, as they are now. Raises ValueError, with the table's name, where
        one is not finite."""
        found = {}
        for name, ids in self._loaded.items():
            weight = self._tables[name].detach()
            found[name] = Rows(ids, weight[ids.to(weight.device)].to("cpu", self.dtype))
            if not all_finite(found[name].values):
                raise ValueError(f"rows of table {name!r} are not finite any more")
        return found

    def check(self) -> None:
        """Raises TaskError when a table's gradient is dense, or has a row that was not loaded last because rows() did
        not tell of it: its change would be lost. To be called between backward and the optimizer's step."""
        for name, weight in self._tables.items():
            if (gradient := weight.grad) is None:
                continue
            if not gradient.is_sparse:
                raise TaskError(f"{self._task.path}: table {name!r} has a dense gradient: use it as an embedding alone")
            touched = gradient._indices().reshape(-1).cpu().unique()
            untold = touched[~torch.isin(touched, self._loaded.get(name, touched[:0]))]
            if len(untold):
                odd = f"row {int(untold[0])} of table {name!r}"
                raise TaskError(f"{self._task.path}: loss() used {odd}, which rows() did not tell of")
