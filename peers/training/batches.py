"""The batches of one data shard, epoch after epoch, with this peer's own random generators. Their order is a function
of the run's seed, the shard and the epoch; workers of a DataLoader are seeded from it too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ..task.rng import Chance, derive
from ..task.task import Task, TaskError
from ..task.tensors import moved


class Batches:
    """The batches of shard `data_shard` of `data_shards` of a task, on `device`."""

    def __init__(self, task: Task, seed: int, data_shard: int, data_shards: int, device: torch.device) -> None:
        self.data_shard, self.data_shards = data_shard, data_shards
        self._task, self._seed, self._device = task, seed, device
        self._begin()

    def _begin(self) -> None:
        self._epoch = self._batch = 0
        self._data: Iterable[Any] | None = None
        self._batches: Iterator[Any] | None = None
        self.chance = Chance(derive(self._seed, "steps", self.data_shard), self._device)

    def of_shard(self, data_shard: int, data_shards: int) -> None:
        """Give the batches of this shard from now on. A change begins with its first epoch and other generators."""
        if (data_shard, data_shards) != (self.data_shard, self.data_shards):
            self.data_shard, self.data_shards = data_shard, data_shards
            self._begin()

    def next(self) -> Any:
        """The next batch, on the device. The peer's generators must have been taken. Raises TaskError when there is
        none."""
        for _ in range(2):
            if self._batches is None:
                self._batches = iter(self._epochs_data())
            try:
                batch = next(self._batches)
            except StopIteration:
                self._batches = None
                self._epoch, self._batch = self._epoch + 1, 0
                continue
            self._batch += 1
            return moved(batch, self._device)
        raise TaskError(f"{self._task.path}: data({self.data_shard}, {self.data_shards}) gives no batches")

    def _epochs_data(self) -> Iterable[Any]:
        """The data of an epoch, with all generators seeded for it."""
        task, seed = self._task, derive(self._seed, "data", self.data_shard, self._epoch)
        self.chance.begin(seed)
        if task.seed_everything is not None:
            task.seed_everything(seed)
        if self._data is None or isinstance(self._data, Iterator):  # a generator is spent after one epoch
            self._data = data = task.data(self.data_shard, self.data_shards)
            if task.seed_everything is not None and isinstance(data, DataLoader) and data.worker_init_fn is None:
                data.worker_init_fn = partial(_seed_worker, task.seed_everything)
        return self._data

    def first(self) -> Any:
        """The first batch of the shard, on the device. The place in the data stays as it is. Raises TaskError."""
        return Batches(self._task, self._seed, self.data_shard, self.data_shards, self._device).next()

    def to_plain(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The generators and the place in the data, for a checkpoint: tensors, and values that JSON carries."""
        drawn, numbers = self.chance.to_plain()
        place = {"epoch": self._epoch, "batch": self._batch, "part": self.data_shard, "parts": self.data_shards}
        return drawn, {**place, "random": numbers}

    def restore(self, drawn: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Restore what `to_plain` gave. Cost: the batches of the epoch so far are drawn again."""
        self.data_shard, self.data_shards = numbers["part"], numbers["parts"]
        self._begin()
        self._epoch = numbers["epoch"]
        self.chance.take()
        for _ in range(numbers["batch"]):
            self.next()
        self.chance = Chance.from_plain(drawn, numbers["random"], self._device)


def _seed_worker(seed_everything: Callable[[int], object], worker: int) -> None:
    """Seed a DataLoader's worker with its own seed, from which PyTorch has seeded its other generators."""
    seed_everything(torch.initial_seed())
