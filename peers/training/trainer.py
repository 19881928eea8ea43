"""The trainer of one task: a peer's model, data and optimizer, and its local steps. It knows nothing of other peers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ...aggregation.vector import all_finite
from ...protocols.conversation import Position
from ...protocols.work import Begin, Evaluate, Steps, Update, Work
from ..checkpoints.checkpoint import Snapshot, optimizer_from_plain, optimizer_to_plain
from ..task.evaluation import metrics_of, untouched
from ..task.facts import Facts
from ..task.headline import headline_of
from ..task.model_copy import ModelCopy
from ..task.optimizer_state import forget_if_bad
from ..task.precision import computing
from ..task.rng import Chance, derive
from ..task.row_tables import RowTables
from ..task.task import Task, TaskError, made_by
from ..task.tensors import check_values, saved_tensors
from .batches import Batches
from .counts import Counts, diverged
from .local_step import LocalStep
from .origin import another, check_groups, origin_of, restore_model
from .replica import Write
from .schedule import Schedule
from .task_hooks import Hooks, TaskRun

_SCHEDULE = "schedule"
"""The key, in a checkpoint, of the schedule's state, which is stored with that of the optimizer."""


class Trainer:
    """Takes local steps on one data shard, and counts the steps, samples and losses of the present round."""

    def __init__(
        self,
        task: Task,
        *,
        seed: int,
        data_shard: int,
        data_shards: int,
        device: torch.device,
        inner: str = "kept",
        steps: int | None = None,
    ) -> None:
        """All peers of one `seed` begin with the same weights; `data_shard`, from 0 to `data_shards` - 1, makes their
        data order and dropout differ. `inner` ("kept", "reset" or "averaged"): the treatment of the optimizer's own
        state at an average. `steps`: local steps of the whole run, for the task's lr_schedule(); None: not known.
        Raises ValueError for a model or optimizer that cannot be averaged, and TaskError when the task's functions do
        not return a model, an optimizer and a schedule."""
        self.task, self.device, self.seed, self.steps = task, device, seed, 0
        Chance(derive(seed, "model"), device).take()
        if task.seed_everything is not None:
            task.seed_everything(derive(seed, "model"))
        made = made_by(task, "model", nn.Module, task.model())
        check_values(made)
        self.model = made.to(device)
        self.optimizer = task.optimizer_of(self.model)
        self.copy = ModelCopy(self.model, self.optimizer, inner, tables=RowTables.of(task, self.model))
        self._schedule = Schedule(task, self.optimizer, steps)
        self._step = LocalStep(task, self.model, self.optimizer, self.copy, device)
        self.batches = Batches(task, seed, data_shard, data_shards, device)
        run = TaskRun("", seed, data_shard, data_shards, steps, device, self.model, self.optimizer)
        self.hooks = Hooks(task, run)
        self.at = "data()"
        """The function of the task that is running, as text for messages."""
        self._counts = Counts(skips=task.precision == "fp16")

    @property
    def steps_in_round(self) -> int:
        """Local steps since the round began."""
        return self._counts.steps

    @property
    def vector(self) -> Tensor:
        """The averaged tensors as a new flat vector [n]. Raises ValueError as `ModelCopy.vector` does."""
        return self.copy.vector

    def facts(self) -> Facts:
        """The properties of the task and its model that a peer needs before it joins. Slow for a model with large
        constants: all of them are hashed."""
        headline, scales = headline_of(self.task), self.task.metrics or {}
        can = [name for name, has in (("evaluation", headline), ("queries", self.task.query)) if has is not None]
        facts = self.copy.facts(self.vector, "steps", *can).on(self.task.defined)
        return replace(facts, scales=scales, headline=headline)

    def set_data_shard(self, data_shard: int, data_shards: int) -> None:
        """Set this peer's data shard, which is known once it has joined. A change restarts its data and random
        generators."""
        self.batches.of_shard(data_shard, data_shards)
        self.hooks.run.part, self.hooks.run.parts = data_shard, data_shards

    def do(self, work: Work, stopping: Callable[[], bool] = lambda: False) -> Update | None:
        """Do `work`: `end_round`, then its local steps or evaluation. Returns its update; None: `stopping()` became
        true before. Raises Diverged, EvaluationFailed and TaskError, and ValueError for any other job."""
        self.end_round(work.begin)
        job = work.job
        if isinstance(job, Evaluate):
            return Update(vector=job.vector, metrics=self.evaluate(job.vector))
        if not isinstance(job, Steps):
            raise ValueError(f"a task's peers take local steps; they cannot do {type(job).__name__}")
        if job.taken == 0:
            self.begin_round()
        self.copy.prepare(job)
        whole = self.train(job.count, stopping, halfway=job.halfway, step=job.step) == job.count
        return self.update() if whole else None

    def foresee(self, steps: int) -> Update:
        """The update for a `Foresee` job, without a model: its `needed` names, by table, the rows of sparse embeddings
        that the batches of the next `steps` local steps need. Raises TaskError."""
        self.at = "rows()"
        self.batches.chance.take()
        needed = self.copy.needed(self.batches.ahead(steps * self.task.accumulate))
        return Update(vector=torch.empty(0), needed=needed)

    def begin(self, begin: Begin) -> None:
        """Apply `begin`, the change with which a work of the conversation begins, to the model, unless it was the last
        one applied. Reset the counts if a round begins with it."""
        if self.copy.begin(begin):
            self.begin_round()

    def end_round(self, begin: Begin | Update) -> None:
        """Apply `begin` to the model, and call the task's on_round() for the exchanges that led to it. If it is an
        update, the exchange is not over, and nothing is done."""
        if not isinstance(begin, Update):
            self.begin(begin)
            self.batches.chance.take()  # for what on_round() draws
            self.hooks.call()

    def train(
        self,
        steps: int,
        stopping: Callable[[], bool] = lambda: False,
        *,
        halfway: bool = False,
        step: int | None = None,
    ) -> int:
        """Take `steps` local steps, or fewer once `stopping()` is true. Returns the number taken. `halfway`: the update
        gets the model after half of them. `step`: earlier steps of the run, for the learning rate; None: this peer's.
        Raises Diverged if a loss of the round is not finite (fp16: none is), and as `LocalStep.take`."""
        taken, before = 0, self.steps if step is None else step
        self.batches.chance.take()
        self.model.train()
        while taken < steps and not stopping():
            self._schedule.go_to(before + taken)
            loss, samples = self._step.take(self._next_batch)
            self._counts.add(loss, samples)
            self.steps, taken = self.steps + 1, taken + 1
            if halfway and taken == steps // 2:
                self._counts.halfway = self.vector
        if not math.isfinite(self._counts.mean_loss()):
            raise diverged(self._counts.losses[-taken:], self.steps - taken + 1, self.copy.learning_rate)
        self.optimizer.zero_grad()  # during an exchange gradients would take the memory of another model
        return taken

    def _next_batch(self) -> Any:
        self.at = "data()"
        batch = self.batches.next()
        self.at = "loss() and what follows"
        return batch

    def update(self) -> Update:
        """This peer's update: its model, weighted by the number of samples that it has seen in the round. Raises
        Diverged and ValueError as `ModelCopy.bring` does, and TaskError when all batches of the round had 0 samples."""
        if self._counts.steps and not self._counts.samples:
            raise TaskError(f"{self.task.path}: samples() returned 0 for all batches of a round")
        return self.copy.update(
            weight=self._counts.samples,
            loss=self._counts.mean_loss(),
            steps=self.steps_in_round,
            halfway=self._counts.halfway,
            epochs=self.batches.passes.in_round,
        )

    def begin_round(self) -> None:
        """Reset the counts of the round; the model stays as it is."""
        self._counts = Counts(self._counts.skips)
        self.batches.passes.begin_round()

    @contextmanager
    def _as_brought(self, update: Update) -> Iterator[None]:
        """While in this context, the model and the counts are those of `update`, as it was brought to the conversation.
        The optimizer's state and the place in the data are the present ones."""
        vector, steps, now, passes = self.vector, self.steps, self._counts, self.batches.passes
        self.copy.load(update.vector, update.grown)
        self.steps -= now.steps
        losses = [torch.tensor(update.loss, device=self.device)]
        self._counts = Counts(now.skips, update.steps, update.weight, losses)
        made, passes.in_round = passes.in_round, update.epochs
        try:
            yield
        finally:
            self.copy.load(vector)
            self.steps, self._counts, passes.in_round = steps, now, made

    def save(self, position: Position, write: Write | None, *, failed: bool) -> None:
        """Apply the begin of `position`, and write a checkpoint by `write`; None: write none. Where the begin is an
        update, whose exchange is not over, the checkpoint has the model of that update, and nothing is applied.
        `failed`: the training failed; if the model or its loss is not finite, the agreed model is loaded first."""
        if isinstance(position.begin, Update):
            with self._as_brought(position.begin):
                if write is not None:
                    write(self.snapshot())
            return
        if not self.copy.has_begun(position.begin):
            self.begin(position.begin)
        if failed:
            self.copy.unfrozen.settle(position.grown)
            self.recover(position.vector)
        if write is not None:
            write(self.snapshot())

    def recover(self, vector: Tensor) -> None:
        """If the model or the loss is not finite, load `vector` [n], with which the round's local steps began, and
        discard these steps. The optimizer's state is cleared if it holds numbers that are not finite."""
        if all_finite(self.vector) and math.isfinite(self._counts.mean_loss()):
            return
        self.steps -= self._counts.steps
        self.copy.show(vector)
        self.begin_round()
        forget_if_bad(self.optimizer)

    def evaluate(self, vector: Tensor | None = None) -> dict[str, float]:
        """The task's metrics, by name, of the present model, or of the model `vector` [n]; empty for a task without
        `evaluate`. The training is unaffected: see `task.evaluation`. Raises EvaluationFailed."""
        Chance(derive(self.seed, "evaluate"), self.device).take()
        with self.holding(vector), computing(self.task.precision, self.device), self.copy.resting.evaluated(self.model):
            return metrics_of(self.model, self.task)

    @contextmanager
    def holding(self, vector: Tensor | None) -> Iterator[None]:
        """While in this context, the model is `vector` [n]; None: it stays as it is."""
        if vector is None or self.copy.holds(vector):
            self.copy.resting.lie_in(vector)
            yield
            return
        with self.copy.being(vector):
            yield

    def rehearse(self) -> dict[str, float]:
        """Try loss(), samples(), clip() and rows() of the task on the first batch, and evaluate(), whose metrics are
        returned. The model, the generators and the place in the data are unchanged; gradients are cleared. Raises
        TaskError, EvaluationFailed and the functions' own errors."""
        self.batches.chance.take()
        batch = self.batches.first()
        Chance(derive(self.seed, "rehearse"), self.device).take()
        with untouched(self.model, training=True):
            self.copy.needed([batch])
            self._step.rehearse(batch)
        self.optimizer.zero_grad()
        return self.evaluate()

    def snapshot(self) -> Snapshot:
        """The state that the next local step depends on: model, optimizer, generators, counts and place in the data."""
        self.copy.notice()
        base, unfrozen = self.copy.unfrozen.to_plain()
        optimizer, plain = optimizer_to_plain({**self.optimizer.state_dict(), _SCHEDULE: self._schedule.to_plain()})
        tensors = saved_tensors(self.model) | base | {f"optimizer/{name}": tensor for name, tensor in optimizer.items()}
        drawn, place = self.batches.to_plain()
        tensors |= {f"random/{name}": tensor for name, tensor in drawn.items()}
        losses = self._counts.losses
        tensors |= {"losses": torch.stack(losses) if losses else torch.zeros(0)}
        numbers = {
            "optimizer": plain,
            "scaler": self._step.to_plain(),
            "steps": self.steps,
            "steps_in_round": self.steps_in_round,
            "samples": self._counts.samples,
            **origin_of(self.task, self.copy.layout, self.optimizer),
            **unfrozen,
            **place,
        }
        return Snapshot(tensors, numbers)

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the state in which `snapshot` was taken, on a newly made trainer. Raises CheckpointError when it is
        of another model, an optimizer of another class or with other groups, or when only one has an lr_schedule."""
        tensors, numbers = snapshot.tensors, snapshot.numbers
        restore_model(snapshot, self.task, self.model, self.copy)
        optimizer = {name[10:]: tensor for name, tensor in tensors.items() if name.startswith("optimizer/")}
        state = optimizer_from_plain(optimizer, numbers["optimizer"])
        check_groups(state, numbers, self.task, self.optimizer)
        if wrong := self._schedule.unlike(schedule := state.pop(_SCHEDULE, None)):
            raise another("lr_schedule()", numbers, self.task, wrong)
        self.optimizer.load_state_dict(state)
        self._schedule.restore(schedule)
        self.copy.restored()
        losses = list(tensors["losses"].to(self.device))
        self._counts = Counts(self._counts.skips, numbers["steps_in_round"], float(numbers["samples"]), losses)
        self.steps = numbers["steps"]
        self._step.restore(numbers.get("scaler"))
        self.batches.restore({name[7:]: one for name, one in tensors.items() if name.startswith("random/")}, numbers)
