"""The options of a worker of the parameter server."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...aggregation.consistency import Consistency
from ...aggregation.filters.filter import Filtered, Filters, Push
from ...aggregation.rows import Table
from ...aggregation.server.function import ServerFunction
from ...aggregation.vector import Part
from .algorithms.algorithm import Algorithm
from .shares import Pushes


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`steps`: local steps of the run, None: a script decides; `evaluate_every`: clocks between two evaluations, 0: the
    replica cannot evaluate. `parameters`: the number of elements at the beginning of the model's vector that are
    trained. `tables`: those of the model, of which a worker pulls and pushes rows. `filters`: of the pushes; None: a
    push has the whole change. `trained`: the ranges of the vector that are trained."""

    algorithm: Algorithm
    consistency: Consistency
    function: ServerFunction
    parameters: int
    steps: int | None
    evaluate_every: int
    tables: tuple[Table, ...] = ()
    filters: Filters | None = None
    trained: tuple[Part, ...] = ()

    def filtered(self, pushed: Pushes, residual: Tensor | None, push: Push, *, last: bool) -> tuple[Pushes, Filtered]:
        """What is sent of a push, and the outcome of the filters for its trained elements. `residual` [m]: what the
        last push has left of these; None: nothing. The `last` push has all that is left."""
        trained = pushed.vector[: self.parameters]
        if self.filters is None or last:
            found = Filtered(trained if residual is None else trained + residual, torch.zeros_like(trained), 0, {})
        else:
            found = self.filters.apply(trained, residual, push)
        vector = torch.cat((found.sent, pushed.vector[self.parameters :]))
        return Pushes(vector, pushed.rows, found.coded), found

    def pushed(self, change: Pushes, learning_rate: float) -> Pushes:
        """The push for a `change` of local steps: the change itself, or, for a server function that takes gradients,
        its trained part and its rows divided by -`learning_rate`. Raises ValueError if that rate is not above 0."""
        if self.function.takes == "change":
            return change
        if not learning_rate > 0:
            raise ValueError("this --server-update takes gradients, and the optimizer tells no learning rate above 0")
        vector = change.vector.clone()
        vector[: self.parameters].div_(-learning_rate)
        return Pushes(vector, {name: rows.over(-learning_rate) for name, rows in change.rows.items()})

    def every_row(self) -> dict[str, Tensor]:
        """By table, the numbers of all its rows."""
        return {table.name: torch.arange(table.rows) for table in self.tables}

    def details(self, moved: Pushes, held: int) -> dict[str, float]:
        """The numbers of a turn's record. `moved`: the changes of its steps; `held`: the number of elements that the
        filters held back."""
        squares = [float(torch.linalg.vector_norm(moved.vector[: self.parameters])) ** 2]
        squares += [float(torch.linalg.vector_norm(rows.values)) ** 2 for rows in moved.rows.values()]
        pushed = {"rows": float(sum(map(len, moved.rows.values())))} if self.tables else {}
        pushed |= {} if self.filters is None else {"held_back": float(held)}
        return {"change": math.sqrt(sum(squares)), **pushed}
