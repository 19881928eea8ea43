"""The trainer of one task: a peer's model, data and optimizer, and its local steps. It is plain PyTorch and knows of no
other peer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ...aggregation.vector import Layout, all_finite
from ...protocols.conversation import Begin, Evaluate, Position, Steps, Update, Work
from ..checkpoints.checkpoint import CheckpointError, Snapshot, optimizer_from_plain, optimizer_to_plain
from ..task.evaluation import metrics_of
from ..task.facts import Facts
from ..task.headline import headline_of
from ..task.model_copy import MEND, Diverged, ModelCopy
from ..task.rng import Chance, derive
from ..task.task import Task, TaskError, made_by, shown
from ..task.tensors import check_values, load_tensors, moved, samples_in, saved_tensors
from .passes import Passes
from .replica import Write


class Trainer:
    """Takes local steps on one data shard, and counts the steps, samples and losses since the last average."""

    def __init__(
        self, task: Task, *, seed: int, data_shard: int, data_shards: int, device: torch.device, inner: str = "kept"
    ) -> None:
        """All peers of one `seed` begin with the same weights; `data_shard`, from 0 to `data_shards` - 1, makes their
        data order and dropout differ. `inner` ("kept", "reset" or "averaged"): the treatment of the optimizer's own
        state at an average. Raises ValueError for a model or optimizer that cannot be averaged, and TaskError when the
        task's functions do not return a model and an optimizer."""
        self.task, self.device = task, device
        self._seed, self._data_shard, self._data_shards = seed, data_shard, data_shards
        Chance(derive(seed, "model"), device).take()
        made = made_by(task, "model", nn.Module, task.model())
        check_values(made)
        self.model = made.to(device)
        self.optimizer = made_by(task, "optimizer", torch.optim.Optimizer, task.optimizer(self.model.parameters()))
        self.copy = ModelCopy(self.model, self.optimizer, inner)
        self.steps = 0
        self.steps_in_round = 0
        self.at = "data()"
        """The function of the task that is running, as text for messages."""
        self._samples = 0
        self._losses: list[Tensor] = []
        self._halfway: Tensor | None = None
        self._passes = Passes()
        self._data: Iterable[Any] | None = None
        self._batches: Iterator[Any] | None = None
        self._chance = Chance(derive(seed, "steps", data_shard), device)

    @property
    def layout(self) -> Layout:
        """The layout of the averaged vector."""
        return self.copy.layout

    @property
    def vector(self) -> Tensor:
        """The averaged tensors as a new flat vector [n]."""
        return self.copy.vector

    def facts(self) -> Facts:
        """The facts of this trainer as a replica. Slow for a model with large constants: all of them are hashed."""
        headline = headline_of(self.task)
        return replace(self.copy.facts(self.vector, "steps", *((headline and ["evaluation"]) or ())), headline=headline)

    def set_data_shard(self, data_shard: int, data_shards: int) -> None:
        """Set this peer's data shard, known once it has joined. A change restarts its data and random generators."""
        if (data_shard, data_shards) != (self._data_shard, self._data_shards):
            self._data_shard, self._data_shards = data_shard, data_shards
            self._data, self._batches, self._passes = None, None, Passes()
            self._chance = Chance(derive(self._seed, "steps", data_shard), self.device)

    def do(self, work: Work, stopping: Callable[[], bool] = lambda: False) -> Update | None:
        """Do `work` and return its update; None: `stopping()` became true before it was done. Raises Diverged,
        EvaluationFailed, and ValueError for a gradient, which a task's trainer cannot bring."""
        self.begin(work.begin)
        job = work.job
        if isinstance(job, Evaluate):
            return Update(vector=job.vector, metrics=self.evaluate(job.vector))
        if not isinstance(job, Steps):
            raise ValueError(f"a task's peers take local steps; they cannot do {type(job).__name__}")
        if job.taken == 0:
            self.begin_round()
        self.copy.correct(job.correction)
        whole = self.train(job.count, stopping, halfway=job.halfway) == job.count
        return self.update() if whole else None

    def begin(self, begin: Begin) -> None:
        """Apply `begin` to the model, unless it was the last one applied. Reset the counts if a round begins with
        it."""
        if self.copy.begin(begin):
            self.begin_round()

    def train(self, steps: int, stopping: Callable[[], bool] = lambda: False, *, halfway: bool = False) -> int:
        """Take `steps` local steps, or fewer once `stopping()` is true. Returns the number taken. `halfway`: keep the
        model after half of them for the update. Raises Diverged when a loss is not finite."""
        taken = 0
        self._chance.take()
        self.model.train()
        while taken < steps and not stopping():
            self.at = "data()"
            batch = self._next_batch()
            self.at = "loss() and what follows"
            self._step(batch)
            taken += 1
            if halfway and taken == steps // 2:
                self._halfway = self.vector
        if not math.isfinite(self._mean_loss()):
            raise self._diverged(taken)
        return taken

    def _diverged(self, taken: int) -> Diverged:
        """The error for a loss that is not finite, found after `taken` steps whose losses had not been checked yet."""
        finite_ones = torch.stack(self._losses[-taken:]).isfinite().tolist()
        step = self.steps - taken + 1 + finite_ones.index(False)
        if step == 1:  # there was no earlier step that could have been too large
            return Diverged("the loss of the first batch is not finite: look into data(), model() and loss()")
        rate = f"(learning rate {self.copy.learning_rate:g})"
        return Diverged(f"the loss is not finite any more at local step {step} {rate}; {MEND}")

    def _step(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        loss = self.task.loss(self.model, batch)
        if not isinstance(loss, Tensor) or loss.dim():
            raise TaskError(f"{self.task.path}: loss() must return a scalar tensor, got {shown(loss)}")
        if not loss.requires_grad:
            raise TaskError(f"{self.task.path}: what loss() returned does not depend on the model: was it detached?")
        loss.backward()
        self.copy.before_step()
        self.optimizer.step()
        self.copy.after_step()
        self._losses.append(loss.detach())
        self._samples += samples_in(batch)
        self.steps += 1
        self.steps_in_round += 1

    def update(self) -> Update:
        """This peer's update: its model, weighted by the number of samples that it has seen in the round. Raises
        Diverged when the model is not finite."""
        return Update(
            vector=self.copy.bring(),
            weight=float(self._samples),
            loss=self._mean_loss(),
            learning_rate=self.copy.learning_rate,
            steps=self.steps_in_round,
            halfway=self._halfway,
            epochs=self._passes.in_round,
        )

    def _mean_loss(self) -> float:
        """Mean loss over the local steps of the round; 0 before the first. Only this call waits for the device."""
        return torch.stack(self._losses).double().mean().item() if self._losses else 0.0

    def begin_round(self) -> None:
        """Reset the counts of the round; the model stays as it is."""
        self.steps_in_round = self._samples = 0
        self._passes.begin_round()
        self._losses.clear()
        self._halfway = None

    @contextmanager
    def _as_brought(self, update: Update) -> Iterator[None]:
        """A context in which the model and the counts are those of `update`, as it was brought to the conversation. The
        optimizer's state and the place in the data are those of now."""
        vector, now = self.vector, (self.steps, self.steps_in_round, self._samples, self._losses)
        self.copy.load(update.vector)
        self.steps -= self.steps_in_round
        self.steps_in_round, self._samples = update.steps, int(update.weight)
        self._losses = [torch.tensor(update.loss, device=self.device)]
        passes, self._passes.in_round = self._passes.in_round, update.epochs
        try:
            yield
        finally:
            self.copy.load(vector)
            self.steps, self.steps_in_round, self._samples, self._losses = now
            self._passes.in_round = passes

    def save(self, position: Position, write: Write | None, *, failed: bool) -> None:
        """See `Replica.save`."""
        if isinstance(position.begin, Update):
            with self._as_brought(position.begin):
                if write is not None:
                    write(self.snapshot())
            return
        self.begin(position.begin)
        if failed:
            self.recover(position.vector)
        if write is not None:
            write(self.snapshot())

    def recover(self, vector: Tensor) -> None:
        """If the model or the loss is not finite, load `vector` [n], with which the round's local steps began, and
        discard these steps. The optimizer's state is cleared if it holds numbers that are not finite."""
        if all_finite(self.vector) and math.isfinite(self._mean_loss()):
            return
        self.steps -= self.steps_in_round
        self.copy.load(vector)
        self.begin_round()
        kept = (value for state in self.optimizer.state.values() for value in state.values())
        if not all(all_finite(value) for value in kept if isinstance(value, Tensor) and value.is_floating_point()):
            self.optimizer.state.clear()

    def evaluate(self, vector: Tensor | None = None) -> dict[str, float]:
        """The task's metrics, by name, of the present model, or of the model `vector` [n]; empty for a task without
        `evaluate`. The training is unaffected: see `task.evaluation`. Raises EvaluationFailed."""
        Chance(derive(self._seed, "evaluate"), self.device).take()
        with self.holding(vector):
            return metrics_of(self.model, self.task)

    @contextmanager
    def holding(self, vector: Tensor | None) -> Iterator[None]:
        """A context in which the model is `vector` [n]; None: as it is."""
        now = None if vector is None or self.copy.holds(vector) else self.vector
        if now is not None and vector is not None:
            self.copy.load(vector)
        try:
            yield
        finally:
            if now is not None:
                self.copy.load(now)

    def snapshot(self) -> Snapshot:
        """The state that the next local step depends on: model, optimizer, generators, counts and place in the data."""
        tensors = saved_tensors(self.model)
        optimizer, plain = optimizer_to_plain(self.optimizer.state_dict())
        tensors |= {f"optimizer/{name}": tensor for name, tensor in optimizer.items()}
        drawn, drawn_numbers = self._chance.to_plain()
        tensors |= {f"random/{name}": tensor for name, tensor in drawn.items()}
        tensors |= {"losses": torch.stack(self._losses) if self._losses else torch.zeros(0)}
        numbers = {
            "optimizer": plain,
            "optimizer_kind": type(self.optimizer).__name__,
            "random": drawn_numbers,
            "steps": self.steps,
            "steps_in_round": self.steps_in_round,
            "samples": self._samples,
            "epoch": self._passes.epoch,
            "batch": self._passes.batch,
            "passes": self._passes.to_plain(),
            "part": self._data_shard,
            "parts": self._data_shards,
            "layout": self.layout.to_plain(),
        }
        return Snapshot(tensors, numbers)

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the exact state in which `snapshot` was taken. Raises CheckpointError when it was taken of another
        model or optimizer."""
        tensors, numbers = snapshot.tensors, snapshot.numbers
        if (difference := self.layout.compare(Layout.from_plain(numbers["layout"]))) is not None:
            other = "optimizer or --inner" if "'optimizer/" in difference else "model"
            raise CheckpointError(f"the checkpoint is of another {other} than {self.task.path}: {difference}")
        mine = type(self.optimizer).__name__
        if (theirs := numbers.get("optimizer_kind", mine)) != mine:
            raise CheckpointError(f"the checkpoint is of another optimizer than {self.task.path}: {theirs}, not {mine}")
        saved = {name[6:]: tensor for name, tensor in tensors.items() if name.startswith("model/")}
        if (odd := load_tensors(self.model, saved)) is not None:
            raise CheckpointError(f"the checkpoint is of another model than {self.task.path}: tensor {odd!r} differs")
        optimizer = {name[10:]: tensor for name, tensor in tensors.items() if name.startswith("optimizer/")}
        self.optimizer.load_state_dict(optimizer_from_plain(optimizer, numbers["optimizer"]))
        self.copy.restored()
        self._losses = list(tensors["losses"].to(self.device))
        self.steps, self.steps_in_round = numbers["steps"], numbers["steps_in_round"]
        self._samples, self._data_shard, self._data_shards = numbers["samples"], numbers["part"], numbers["parts"]
        self._data, self._batches, self._passes = None, None, Passes(numbers["epoch"])
        self._chance.take()
        for _ in range(numbers["batch"]):
            self._next_batch()
        self._passes.restore(numbers.get("passes"))
        drawn = {name[7:]: tensor for name, tensor in tensors.items() if name.startswith("random/")}
        self._chance = Chance.from_plain(drawn, numbers["random"], self.device)

    def _next_batch(self) -> Any:
        for _ in range(2):
            if self._batches is None:
                self._chance.begin(derive(self._seed, "data", self._data_shard, self._passes.epoch))
                if self._data is None or isinstance(self._data, Iterator):  # a generator is spent after one epoch
                    self._data = self.task.data(self._data_shard, self._data_shards)
                self._passes.begin(self._data)
                self._batches = iter(self._data)
            try:
                batch = next(self._batches)
            except StopIteration:
                self._batches = None
                self._passes.end()
                continue
            self._passes.batch += 1
            return moved(batch, self.device)
        raise TaskError(f"{self.task.path}: data({self._data_shard}, {self._data_shards}) gives no batches")
