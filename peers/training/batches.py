"""The batches of one data shard, epoch after epoch, with this peer's own random generators. Their order is a function
of the run's seed, the shard and the epoch; workers of a DataLoader are seeded from it too."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ..task.rng import Chance, derive
from ..task.task import Task, TaskError
from ..task.tensors import cloned, moved
from .passes import Passes


class Batches:
    """The batches of shard `data_shard` of `data_shards` of a task, on `device`."""

    def __init__(self, task: Task, seed: int, data_shard: int, data_shards: int, device: torch.device) -> None:
        self.data_shard, self.data_shards = data_shard, data_shards
        self._task, self._seed, self._device = task, seed, device
        self._begin()

    def _begin(self) -> None:
        self.passes = Passes()
        self._data: Iterable[Any] | None = None
        self._batches: Iterator[Any] | None = None
        self._ahead: deque[tuple[Any, bool]] = deque()
        """The batches that were drawn ahead of their steps, and whether a pass over the data begins with each."""
        self._before: tuple[dict[str, Tensor], dict[str, Any]] = {}, {}
        """The generators before the first of these was drawn."""
        self._epoch = 0
        """The pass over the data from which batches are drawn."""
        self.chance = Chance(derive(self._seed, "steps", self.data_shard), self._device)

    def of_shard(self, data_shard: int, data_shards: int) -> None:
        """Give the batches of this shard from now on. If the shard changes, its first epoch begins, with new
        generators."""
        if (data_shard, data_shards) != (self.data_shard, self.data_shards):
            self.data_shard, self.data_shards = data_shard, data_shards
            self._begin()

    def next(self) -> Any:
        """The next batch, on the device. The peer's random generators must be the installed ones (`Chance.take`).
        Raises TaskError when the data give no batches."""
        batch, begins = self._ahead.popleft() if self._ahead else self._drawn()
        if begins:
            if self.passes.batch:
                self.passes.end()
            self.passes.begin(() if self._data is None else self._data)
        self.passes.batch += 1
        return batch

    def first(self) -> Any:
        """A copy of the batch that `next` returns next. The peer's random generators must be the installed ones. Raises
        TaskError."""
        return cloned(self.ahead(1)[0])

    def whole(self) -> list[Any]:
        """All batches of one pass over the data, on the device. This shard's random generators stay installed. Raises
        TaskError when there are none."""
        self.chance.take()
        batches = [moved(batch, self._device) for batch in self._epochs_data()]
        if not batches:
            raise TaskError(f"{self._task.path}: data({self.data_shard}, {self.data_shards}) gives no batches")
        return batches

    def ahead(self, count: int) -> list[Any]:
        """The batches that the next `count` calls of `next` return. The peer's random generators must be the installed
        ones. Raises TaskError."""
        if not self._ahead:
            self._before = self.chance.to_plain()
        while len(self._ahead) < count:
            self._ahead.append(self._drawn())
        return [batch for batch, _ in islice(self._ahead, count)]

    def close(self) -> None:
        """Draw nothing more. The workers of a DataLoader end."""
        self._batches = self._data = None

    def _drawn(self) -> tuple[Any, bool]:
        """The next batch of the data, on the device, and whether a pass begins with it."""
        for _ in range(2):
            begins = self._batches is None
            if self._batches is None:
                self._batches = iter(self._epochs_data())
            try:
                batch = next(self._batches)
            except StopIteration:
                self._batches = None
                self._epoch += 1
                continue
            return moved(batch, self._device), begins
        raise TaskError(f"{self._task.path}: data({self.data_shard}, {self.data_shards}) gives no batches")

    def _epochs_data(self) -> Iterable[Any]:
        """The data of an epoch, with all generators seeded for it. What data() itself draws, such as a random split, is
        the same in each epoch and after a resume."""
        task = self._task
        if self._data is None or isinstance(self._data, Iterator):  # a generator is spent after one epoch
            self._reseed("dataset")
            self._data = data = task.data(self.data_shard, self.data_shards)
            if task.seed_everything is not None and isinstance(data, DataLoader) and data.worker_init_fn is None:
                data.worker_init_fn = partial(_seed_worker, task.seed_everything)
        self._reseed("data", self._epoch)
        return self._data

    def _reseed(self, *purpose: object) -> None:
        what, *more = purpose
        seed = derive(self._seed, what, self.data_shard, *more)
        self.chance.begin(seed)
        if self._task.seed_everything is not None:
            self._task.seed_everything(seed)

    def to_plain(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The generators and the place in the data, for a checkpoint: tensors, and values that JSON carries."""
        drawn, numbers = self._before if self._ahead else self.chance.to_plain()
        passes, shard = self.passes, {"part": self.data_shard, "parts": self.data_shards}
        place = {"epoch": passes.epoch, "batch": passes.batch, "passes": passes.to_plain()}
        return drawn, {**place, **shard, "random": numbers}

    def restore(self, drawn: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Continue at the place in the data, and with the generators, that `to_plain` returned. Cost: the batches of
        the epoch so far are drawn again."""
        self.data_shard, self.data_shards = numbers["part"], numbers["parts"]
        self._begin()
        self._epoch = numbers["epoch"]
        self.passes = Passes(self._epoch)
        self.chance.take()
        for _ in range(numbers["batch"]):
            self.next()
        self.passes.restore(numbers.get("passes"))
        self.chance = Chance.from_plain(drawn, numbers["random"], self._device)


def _seed_worker(seed_everything: Callable[[int], object], worker: int) -> None:
    """Seed a DataLoader's worker with its own seed, from which PyTorch has seeded its other generators."""
    seed_everything(torch.initial_seed())
