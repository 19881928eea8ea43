"""One local step: forward, backward and a step of the optimizer, with the options of the task.

With ``accumulate`` a step takes that many batches and the mean of their gradients. The order at its end is that of a
PyTorch script: gradients are unscaled (``precision = "fp16"``), corrected by the conversation, clipped, and applied.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from ..task.model_copy import ModelCopy
from ..task.precision import computing
from ..task.task import Task, TaskError, shown
from ..task.tensors import samples_in


class LocalStep:
    """Local steps of `task` on `model` with `optimizer`. `copy`: the `ModelCopy` of that model, which has the
    conversation's correction of each step. `device`: the model's."""

    def __init__(
        self, task: Task, model: nn.Module, optimizer: torch.optim.Optimizer, copy: ModelCopy, device: torch.device
    ) -> None:
        self._task, self._model, self._optimizer, self._copy, self._device = task, model, optimizer, copy, device
        self._scaler = torch.amp.GradScaler(device.type) if task.precision == "fp16" else None

    def take(self, next_batch: Callable[[], Any]) -> tuple[Tensor, float]:
        """Take one step. `next_batch` is called for each of the step's batches (`accumulate` of the task), and returns
        one, on the device. Returns the mean of the batches' losses, a scalar tensor on the device, and the sum of their
        samples. In fp16 a step whose gradients are not finite leaves the parameters as they are. Raises TaskError, the
        errors of the task's functions, and ValueError when the task has changed the model in a way that the run cannot
        follow."""
        self._optimizer.zero_grad()
        batches, losses, samples = self._task.accumulate, list[Tensor](), 0.0
        with ExitStack() as held:
            for number in range(batches):
                batch = next_batch()
                if not number:
                    held.enter_context(self._copy.lock)
                loss = self._loss(batch)
                part = loss if batches == 1 else loss / batches
                (part if self._scaler is None else self._scaler.scale(part)).backward()
                losses.append(loss.detach())
                samples += self._samples(batch)
            self._finish()
        return losses[0] if batches == 1 else torch.stack(losses).mean(), samples

    def loss_of(self, batch: Any) -> tuple[float, float]:
        """The loss of one batch, and its samples. The parameters' gradients stay as they are. Raises TaskError."""
        return float(self._loss(batch).detach()), self._samples(batch)

    def gradient_of(self, batch: Any) -> tuple[float, float]:
        """The loss of one batch, and its samples. Adds the gradient of the loss times the samples to the parameters'
        gradients, without a loss scale also in fp16. Raises TaskError, and the errors of the task's functions."""
        loss, samples = self._loss(batch), self._samples(batch)
        (samples * loss).backward()
        return float(loss.detach()), samples

    def rehearse(self, batch: Any) -> None:
        """Call the task's loss(), samples() and clip() on one batch, with a backward, and take no step. Adds to the
        parameters' gradients, which the caller clears. The forward pass may change buffers, such as those of batch
        norm, which the caller restores. Raises TaskError, and the errors of these functions."""
        self._loss(batch).backward()
        self._samples(batch)
        self._clip()

    def _loss(self, batch: Any) -> Tensor:
        path = self._task.path
        with computing(self._task.precision, self._device):
            loss = self._task.loss(self._model, batch)
        if not isinstance(loss, Tensor) or loss.dim():
            raise TaskError(f"{path}: loss() must return a scalar tensor, got {shown(loss)}")
        if not loss.requires_grad:
            raise TaskError(f"{path}: what loss() returned does not depend on the model: was it detached?")
        return loss

    def _samples(self, batch: Any) -> float:
        if self._task.samples is None:
            return samples_in(batch)
        found = self._task.samples(batch)
        try:
            samples = float(found)
        except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of several elements
            samples = -1.0
        if not 0 <= samples < float("inf"):
            raise TaskError(f"{self._task.path}: samples() must return a number, 0 or more, got {found!r:.60}")
        return samples

    def _finish(self) -> None:
        """Take the optimizer's step with the gradients that backward has computed, with scaling, correction and
        clipping."""
        optimizer, scaler = self._optimizer, self._scaler
        if scaler is not None:
            scaler.unscale_(optimizer)
        self._copy.before_step()
        self._clip()
        if scaler is None:
            optimizer.step()
        else:  # it leaves out a step whose gradients are not finite
            scaler.step(optimizer)
            scaler.update()
        self._copy.after_step()

    def _clip(self) -> None:
        clip = self._task.clip
        if callable(clip):
            clip(self._model)
        elif clip is not None:
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), clip)

    def to_plain(self) -> dict[str, Any] | None:
        """The gradient scaler's state, for a checkpoint; None: there is none."""
        return None if self._scaler is None else self._scaler.state_dict()

    def restore(self, plain: dict[str, Any] | None) -> None:
        """Restore the gradient scaler's state that `to_plain` gave. Does nothing if the checkpoint or this task has no
        scaler, because one of them is not in fp16."""
        if plain is not None and self._scaler is not None:
            self._scaler.load_state_dict(plain)
