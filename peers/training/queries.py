"""The statistical queries of a task: the sums that its `query()` makes of the rows of a partition. The rows of a
partition are read once, and kept on the device as long as the object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...protocols.work import Begin, Query, Update
from ..task.averaged import Averaged
from ..task.precision import computing
from ..task.task import TaskError, shown, takes
from .batches import Batches
from .local_step import LocalStep
from .trainer import Trainer


class Queries:
    """The queries of one peer. The partition p of P is `data(p, P)`, once from beginning to end."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._step = LocalStep(trainer.task, trainer.model, trainer.optimizer, trainer.copy, trainer.device)
        self._averaged = Averaged(trainer.model)
        self._rows: dict[tuple[int, int], list[Any]] = {}
        """By partition and the number of partitions, its batches, on the device."""

    def sums(self, begin: Begin, job: Query) -> Update:
        """Apply `begin` to the model, call the task's on_round() for the exchanges that led to it, and compute the sums
        of `job` at this model. Returns an update: `vector` [k] holds the sums, on the CPU and in the dtype of the
        model's vector; `loss` is the mean over the partition's samples (0: all batches have 0 samples), `weight` the
        number of these, `steps` 1. With `job.of_loss` the sums are the gradient of the summed loss, and then that loss.
        Raises TaskError when query() returns anything but tensors, or not the same number of elements for each batch,
        and for a partition without rows; and the errors of the task's functions."""
        trainer = self._trainer
        trainer.end_round(begin)
        trainer.at = "data()"
        batches = self._batches(job.partition, job.partitions)
        trainer.at = "query() and loss()"
        if job.of_loss:
            return self._of_loss(batches)
        total, loss, weight = self._flat(batches[0]), 0.0, 0.0
        for batch in batches[1:]:
            more = self._flat(batch)
            if more.shape != total.shape:
                path = trainer.task.path
                raise TaskError(f"{path}: query() returned {more.numel()} numbers for a batch, {total.numel()} before")
            total += more
        for batch in batches:
            mean, samples = self._step.loss_of(batch)
            loss, weight = loss + samples * mean, weight + samples
        return Update(vector=total, weight=weight, loss=loss / weight if weight else 0.0, steps=1)

    def _of_loss(self, batches: list[Any]) -> Update:
        """The gradient [n] of the summed loss of these batches, each mean times its samples, and that loss."""
        optimizer, loss, weight = self._trainer.optimizer, 0.0, 0.0
        optimizer.zero_grad()
        for batch in batches:
            mean, samples = self._step.gradient_of(batch)
            loss, weight = loss + samples * mean, weight + samples
        parts = [torch.zeros_like(one) if one.grad is None else one.grad.to_dense() for one in self._averaged.trained()]
        gradient = torch.cat([one.reshape(-1) for one in parts]).to("cpu", self._trainer.copy.layout.dtype)
        optimizer.zero_grad()
        vector = torch.cat([gradient, gradient.new_tensor([loss])])
        return Update(vector=vector, weight=weight, loss=loss / weight if weight else 0.0, steps=1)

    def _batches(self, partition: int, partitions: int) -> list[Any]:
        trainer, key = self._trainer, (partition, partitions)
        if key not in self._rows:
            self._rows[key] = Batches(trainer.task, trainer.seed, partition, partitions, trainer.device).whole()
        return self._rows[key]

    def _flat(self, batch: Any) -> Tensor:
        """The sums of one batch as one new vector [k]."""
        trainer, task = self._trainer, self._trainer.task
        assert task.query is not None, "a replica without query() does not offer queries"
        with computing(task.precision, trainer.device):
            made = task.query(batch, trainer.model) if takes(task.query, 2) else task.query(batch)
        trainer.optimizer.zero_grad()  # query() may have called backward()
        found = [*made.values()] if isinstance(made, Mapping) else made if isinstance(made, tuple | list) else [made]
        if not found or not all(isinstance(one, Tensor) for one in found):
            raise TaskError(f"{task.path}: query() must return a tensor or a tuple of tensors, got {shown(made)}")
        dtype = trainer.copy.layout.dtype
        return torch.cat([one.detach().to_dense().reshape(-1).to("cpu", dtype) for one in found]).clone()
