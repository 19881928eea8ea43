"""The options of a worker of the parameter server."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...aggregation.consistency import Consistency
from ...aggregation.rows import Table
from ...aggregation.server.function import ServerFunction
from .algorithms.algorithm import Algorithm
from .filtering import Filtering
from .shares import Pushes


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one worker. `algorithm`, `consistency`, `function`: of the run, the last one the servers' update
    function. `steps`: local steps of the run; None: the user's script decides when it ends. `evaluate_every`: the
    worker's turns between two evaluations of the model; 0: its replica cannot evaluate. `parameters`: the number of
    elements at the beginning of the model's vector that are trained; the rest are averaged buffers. `tables`: the
    model's tables, of which a worker pulls and pushes rows. `filters`: the filters of pushes; None: a push has the
    whole change."""

    algorithm: Algorithm
    consistency: Consistency
    function: ServerFunction
    parameters: int
    steps: int | None
    evaluate_every: int
    tables: tuple[Table, ...] = ()
    filters: Filtering | None = None

    def pushed(self, change: Pushes, learning_rate: float) -> Pushes:
        """The push for a `change` of local steps: the change itself, or, for a server function that takes gradients,
        its trained part and its rows divided by -`learning_rate`. Raises ValueError if such a function gets a rate that
        is not above 0."""
        if self.function.takes == "change":
            return change
        if not learning_rate > 0:
            raise ValueError("this --server-update takes gradients, and the optimizer tells no learning rate above 0")
        vector = change.vector.clone()
        vector[: self.parameters].div_(-learning_rate)
        return Pushes(vector, {name: rows.over(-learning_rate) for name, rows in change.rows.items()})

    def every_row(self) -> dict[str, Tensor]:
        """For each table, by its name, the numbers of all its rows: [0, 1, ..., rows - 1]."""
        return {table.name: torch.arange(table.rows) for table in self.tables}

    def details(self, moved: Pushes, held: int) -> dict[str, float]:
        """The worker's own numbers in the record of a turn: "change", the norm of the changed parameters and rows; with
        tables "rows", the number of changed rows; with filters "held_back", which is `held`. `moved`: the change by the
        turn's local steps; `held`: the number of elements that the filters held back."""
        squares = [float(torch.linalg.vector_norm(moved.vector[: self.parameters])) ** 2]
        squares += [float(torch.linalg.vector_norm(rows.values)) ** 2 for rows in moved.rows.values()]
        pushed = {"rows": float(sum(map(len, moved.rows.values())))} if self.tables else {}
        pushed |= {} if self.filters is None else {"held_back": float(held)}
        return {"change": math.sqrt(sum(squares)), **pushed}
