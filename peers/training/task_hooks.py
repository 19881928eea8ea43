"""The task's own hooks into its training: ``setup(run)`` and ``on_round(record)``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from ..records.records import ExchangeRecord
from ..task.task import Task, takes


@dataclass(slots=True)
class TaskRun:
    """The argument of a task's ``setup(run)``, which may be kept: `part` and `parts` change with the data shard, and
    `model` and `optimizer` are the ones that are trained. `name`: this peer's name; `seed`: the run's. `part` of
    `parts`: its data shard; a peer that joins a run gets it only after ``setup``. `folder`: the run's folder, for files
    of the task's own; None: there is none. `steps`: local steps of each peer in the whole run; None: not known. In a
    simulation all peers are in one process and share the task file's globals: keep data of one peer under its
    `name`."""

    name: str
    seed: int
    part: int
    parts: int
    steps: int | None
    device: torch.device
    model: nn.Module
    optimizer: torch.optim.Optimizer
    folder: Path | None = None


@dataclass(slots=True)
class Hooks:
    """The hooks of `task` on one peer. `run`: their argument. Records wait here until the model is that of their
    exchange."""

    task: Task
    run: TaskRun
    _due: list[ExchangeRecord] = field(default_factory=list)

    def setup(self, name: str, folder: Path | None) -> None:
        """Call the task's setup(), if it has one. `name`: this peer's; `folder`: the run's; None: there is none."""
        self.run.name, self.run.folder = name, folder
        if self.task.setup is not None:
            self.task.setup(self.run)

    def note(self, record: ExchangeRecord) -> None:
        """Keep `record`, of an exchange that is over, until `call` passes it to the task. Nothing is kept for a task
        without on_round()."""
        if self.task.on_round is not None:
            self._due.append(record)

    def call(self) -> None:
        """Call the task's on_round() with each record that waits, in order. The model must be that of their exchange,
        and the task's generators installed."""
        on_round = self.task.on_round
        while self._due and on_round is not None:
            record = self._due.pop(0)
            on_round(*((record, self.run) if takes(on_round, 2) else (record,)))
