"""The batches of one data shard, epoch after epoch, with this peer's own random generators. For each epoch the
generators, and the workers of a DataLoader, are seeded from the run's seed, the shard and the epoch. So a resumed or
repeated run has the same batches in the same order."""

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
from ..task.task import Task, TaskError, shown
from ..task.tensors import cloned, moved
from .passes import Passes


class Batches:
    """The batches of shard `data_shard` (0 to `data_shards` - 1) of a task, on `device`. `seed`: the run's. `chance`:
    the random generators from which the shard's batches and the local steps on them draw. `passes`: the place in the
    data."""

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
        generators, and batches that were drawn ahead are dropped; else nothing happens."""
        if (data_shard, data_shards) != (self.data_shard, self.data_shards):
            self.data_shard, self.data_shards = data_shard, data_shards
            self._begin()

    def next(self) -> Any:
        """Return the next batch, on the device, and count it in `passes`; after an epoch's last batch follows the first
        of the next epoch. The caller must have installed the generators (`chance.take()`). Raises TaskError when the
        data give no batches, and the errors of the task's data()."""
        batch, begins = self._ahead.popleft() if self._ahead else self._drawn()
        if begins:
            if self.passes.batch:
                self.passes.end()
            self.passes.begin(() if self._data is None else self._data)
        self.passes.batch += 1
        return batch

    def first(self) -> Any:
        """A copy of the batch that `next` returns next. The caller must have installed the generators
        (`chance.take()`). Raises as `next` does."""
        return cloned(self.ahead(1)[0])

    def whole(self) -> list[Any]:
        """All batches of one pass over the data, on the device, for an object on which nothing else is called: a place
        in the data, which `next` has, would be lost. Afterwards this shard's random generators are the installed ones.
        Raises TaskError when there are no batches, and the errors of the task's data()."""
        self.chance.take()
        batches = [moved(batch, self._device) for batch in self._epochs_data()]
        if not batches:
            raise TaskError(f"{self._task.path}: data({self.data_shard}, {self.data_shards}) gives no batches")
        return batches

    def ahead(self, count: int) -> list[Any]:
        """The batches that the next `count` calls of `next` will return, without counting them in `passes`; those that
        were not drawn yet are drawn now, and kept. The caller must have installed the generators (`chance.take()`).
        Raises as `next` does."""
        if not self._ahead:
            self._before = self.chance.to_plain()
        while len(self._ahead) < count:
            self._ahead.append(self._drawn())
        return [batch for batch, _ in islice(self._ahead, count)]

    def close(self) -> None:
        """Let go of the data, so that the workers of a DataLoader end. Nothing may be called afterwards."""
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
            data = task.data(self.data_shard, self.data_shards)
            if not isinstance(data, Iterable) and not hasattr(data, "__getitem__"):
                raise TaskError(f"{task.path}: data() must return an iterable of batches, got {shown(data)}")
            self._data = data
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
        """The generators and the place in the data, for a checkpoint: tensors, and values that JSON carries. Batches
        that were drawn ahead of their steps count as not drawn. If there are none, this installs the shard's generators
        in the process."""
        drawn, numbers = self._before if self._ahead else self.chance.to_plain()
        passes, shard = self.passes, {"part": self.data_shard, "parts": self.data_shards}
        place = {"epoch": passes.epoch, "batch": passes.batch, "passes": passes.to_plain()}
        return drawn, {**place, **shard, "random": numbers}

    def restore(self, drawn: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Continue on the shard, at the place in the data, and with the generators, that `to_plain` returned as `drawn`
        and `numbers`. Cost: the batches of the epoch so far are drawn again. Raises TaskError when the data give no
        batches."""
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
