"""The trainer: one peer's model, data and optimizer, and its local steps. Plain PyTorch that knows of no other peer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ...aggregation.periods.displacement import Probe
from ...aggregation.periods.policy import STILL
from ...aggregation.scaffold import ControlVariate
from ...aggregation.vector import Layout, Part, all_finite
from ...protocols.local_sgd.local_sgd import Contribution
from ..checkpoints.checkpoint import CheckpointError, Snapshot, optimizer_from_plain, optimizer_to_plain
from ..task.averaged import Averaged
from ..task.constants import Agreement
from ..task.evaluation import accuracy_of
from ..task.optimizer_state import InnerState
from ..task.rng import Chance, derive
from ..task.task import Task, TaskError, made_by, shown
from ..task.tensors import check_values, load_tensors, merged, moved, samples_in, tensors_of

_MEND = "lower the learning rate or clip gradients"


class Diverged(ValueError):
    """The training loss or the weights are no longer finite."""


def finite(vector: Tensor, layout: Layout, learning_rate: float) -> Tensor:
    """Returns `vector`. Raises Diverged when it holds numbers that are not finite."""
    if not all_finite(vector):
        first = next(slot.name for slot in layout.slots if not all_finite(vector[slot.start : slot.stop]))
        weights = f"the model's weights are not finite any more (learning rate {learning_rate:g})"
        raise Diverged(f"{weights}, first those of {first!r}; {_MEND}")
    return vector


class Trainer:
    """Takes local steps on its part of the data and counts what it did since the last average."""

    def __init__(
        self, task: Task, *, seed: int, part: int, parts: int, device: torch.device, inner: str = "kept"
    ) -> None:
        """All peers of one seed begin with the same weights; their data order and dropout differ by `part`. `inner`:
        whether the optimizer's state is kept, reset or averaged too at each average. Raises ValueError for a model or
        optimizer that cannot be averaged, TaskError when the task returns none."""
        self.task, self.device, self._inner = task, device, inner
        self._seed, self._part, self._parts = seed, part, parts
        Chance(derive(seed, "model"), device).take()
        made = made_by(task, "model", nn.Module, task.model())
        check_values(made)
        self.model = made.to(device)
        self.optimizer = made_by(task, "optimizer", torch.optim.Optimizer, task.optimizer(self.model.parameters()))
        inner_state = InnerState(self.optimizer, self.model) if inner == "averaged" else None
        self._averaged = Averaged(self.model, inner_state)
        self.steps = 0
        self.steps_in_round = 0
        self.at = "data()"
        """The part of a local step that is running, for messages."""
        self.probe: Probe | None = None
        """Measures how far the model moves, where the period policy asks for it."""
        self.variate: ControlVariate | None = None
        """Corrects each local step for drift (SCAFFOLD), where that is set."""
        self._samples = 0
        self._losses: list[Tensor] = []
        self._epoch, self._batch = 0, 0
        self._data: Iterable[Any] | None = None
        self._batches: Iterator[Any] | None = None
        self._chance = Chance(derive(seed, "steps", part), device)

    @property
    def layout(self) -> Layout:
        """The layout of the averaged vector."""
        return self._averaged.layout

    @property
    def parameters(self) -> int:
        """How many elements of the vector are parameters; they come first."""
        return self._averaged.parameters

    @property
    def vector(self) -> Tensor:
        """The model as a new flat vector, as it would be averaged now."""
        return self._averaged.vector()

    def agreement(self) -> Agreement:
        """The properties in which the models of all peers must be equal."""
        return self._averaged.agreement()

    @property
    def learning_rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def take_part(self, part: int, parts: int) -> None:
        """Set this peer's part of the data, known once it has joined. A change restarts its data and generators."""
        if (part, parts) != (self._part, self._parts):
            self._part, self._parts = part, parts
            self._epoch = self._batch = 0
            self._data = self._batches = None
            self._chance = Chance(derive(self._seed, "steps", part), self.device)

    def train(self, steps: int, stopping: Callable[[], bool] = lambda: False) -> int:
        """Take up to `steps` local steps; fewer only when `stopping()`. Returns how many. Raises Diverged."""
        taken = 0
        self._chance.take()
        self.model.train()
        while taken < steps and not stopping():
            self.at = "data()"
            batch = self._next_batch()
            self.at = "loss() and what follows"
            self._step(batch)
            taken += 1
            if self.probe is not None and taken == steps // 2:
                self.probe.amid(self.vector)
        if not math.isfinite(self._mean_loss()):
            raise self._diverged(taken)
        return taken

    def _diverged(self, taken: int) -> Diverged:
        """The error for a loss that is not finite, found after `taken` steps whose losses had not been checked yet."""
        finite_ones = torch.stack(self._losses[-taken:]).isfinite().tolist()
        step = self.steps - taken + 1 + finite_ones.index(False)
        if step == 1:  # there was no earlier step that could have been too large
            return Diverged("the loss of the first batch is not finite: look into data(), model() and loss()")
        rate = f"(learning rate {self.learning_rate:g})"
        return Diverged(f"the loss is not finite any more at local step {step} {rate}; {_MEND}")

    def _step(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        loss = self.task.loss(self.model, batch)
        if not isinstance(loss, Tensor) or loss.dim():
            raise TaskError(f"{self.task.path}: loss() must return a scalar tensor, got {shown(loss)}")
        if not loss.requires_grad:
            raise TaskError(f"{self.task.path}: what loss() returned does not depend on the model: was it detached?")
        loss.backward()
        self.optimizer.step()
        if self.variate is not None:
            self.variate.step(self._averaged.trained())
        self._losses.append(loss.detach())
        self._samples += samples_in(batch)
        self.steps += 1
        self.steps_in_round += 1

    def contribution(self, elapsed_s: float) -> Contribution:
        """This peer's contribution to the round: its model, weighted by the samples it saw."""
        vector = finite(self.vector, self.layout, self.learning_rate)
        motion = STILL if self.probe is None else self.probe.end(vector)
        return Contribution(
            vector if self.variate is None else self.variate.without(vector),
            float(self._samples),
            self._mean_loss(),
            self.learning_rate,
            elapsed_s,
            motion=motion,
            steps=self.steps_in_round,
        )

    def _mean_loss(self) -> float:
        """Mean over the local steps since the last average. Only this call waits for losses on another device."""
        return torch.stack(self._losses).double().mean().item() if self._losses else 0.0

    def take_over(self, vector: Tensor) -> None:
        """Load `vector` into the model amid a round."""
        self._averaged.load(vector)

    def load(self, vector: Tensor) -> None:
        """Load the average and begin the next round."""
        self.take_over(vector)
        if self.probe is not None:
            self.probe.begin(vector)
        if self._inner == "reset":
            self.optimizer.state.clear()
        self.begin_round()

    def begin_round(self) -> None:
        """Reset the counts of the round; the model stays as it is."""
        self.steps_in_round = self._samples = 0
        self._losses.clear()

    def merge(self, agreed: Tensor, brought: Tensor, part: Part, overlap_share: float | None = None) -> None:
        """Merge the mean of `part` from a background round to which this peer contributed `brought`: see `overlap`."""
        self.take_over(merged(self.vector, agreed, brought, part, self.parameters, overlap_share))

    def go_back(self, to: Contribution, steps: int) -> None:
        """Return to the contribution `to`, of `steps` local steps; the optimizer and the place in the data stay."""
        self.take_over(to.vector)
        self.steps -= self.steps_in_round
        self.steps_in_round, self._samples = steps, int(to.weight)
        self._losses = [torch.tensor(to.loss, device=self.device)]

    @contextmanager
    def gone_back(self, to: Contribution, steps: int) -> Iterator[None]:
        """Apply `go_back` inside the context, and undo it at the end."""
        vector, now = self.vector, (self.steps, self.steps_in_round, self._samples, self._losses)
        self.go_back(to, steps)
        try:
            yield
        finally:
            self.take_over(vector)
            self.steps, self.steps_in_round, self._samples, self._losses = now

    def recover(self, vector: Tensor) -> None:
        """If the model or the loss is not finite, return to `vector`, from which the local steps began, and clear the
        state of an optimizer that holds numbers that are not finite."""
        if all_finite(self.vector) and math.isfinite(self._mean_loss()):
            return
        self.steps -= self.steps_in_round
        self.load(vector)
        kept = (value for state in self.optimizer.state.values() for value in state.values())
        if not all(all_finite(value) for value in kept if isinstance(value, Tensor) and value.is_floating_point()):
            self.optimizer.state.clear()

    def evaluate(self, vector: Tensor | None = None) -> float | None:
        """The task's accuracy of the present model, or of `vector` loaded into it; None where the task has no
        `evaluate`. The training is unaffected: see `evaluation`. Raises EvaluationFailed."""
        if vector is not None:
            now = self.vector
            self.take_over(vector)
            try:
                return self.evaluate()
            finally:
                self.take_over(now)
        Chance(derive(self._seed, "evaluate"), self.device).take()
        return accuracy_of(self.model, self.task)

    def snapshot(self) -> Snapshot:
        """All that the next local step depends on."""
        tensors = {f"model/{name}": tensor.detach() for name, tensor in tensors_of(self.model).items()}
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
            "epoch": self._epoch,
            "batch": self._batch,
            "part": self._part,
            "parts": self._parts,
            "layout": self.layout.to_plain(),
        }
        return Snapshot(tensors, numbers)

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the exact state at which `snapshot` was taken. Raises CheckpointError when it is of another model."""
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
        self._averaged.begin()
        self._losses = list(tensors["losses"].to(self.device))
        self.steps, self.steps_in_round = numbers["steps"], numbers["steps_in_round"]
        self._samples, self._part, self._parts = numbers["samples"], numbers["part"], numbers["parts"]
        self._epoch, self._batch = numbers["epoch"], 0
        self._data = self._batches = None
        self._chance.take()
        for _ in range(numbers["batch"]):
            self._next_batch()
        drawn = {name[7:]: tensor for name, tensor in tensors.items() if name.startswith("random/")}
        self._chance = Chance.from_plain(drawn, numbers["random"], self.device)

    def _next_batch(self) -> Any:
        for _ in range(2):
            if self._batches is None:
                self._chance.begin(derive(self._seed, "data", self._part, self._epoch))
                if self._data is None or isinstance(self._data, Iterator):  # a generator is spent after one epoch
                    self._data = self.task.data(self._part, self._parts)
                self._batches = iter(self._data)
            try:
                batch = next(self._batches)
            except StopIteration:
                self._batches = None
                self._epoch, self._batch = self._epoch + 1, 0
                continue
            self._batch += 1
            return moved(batch, self.device)
        raise TaskError(f"{self.task.path}: data({self._part}, {self._parts}) gives no batches")
