"""Gradients, averaged while backward still computes them: synchronous data parallel in a user's own loop.

Source: Li et al., "PyTorch Distributed: Experiences on accelerating data parallel training" (VLDB 2020, section 3.2). A
hook on every parameter copies its gradient as soon as it is computed. A complete bucket is sent at once
(`aggregation.buckets`). At its end backward waits for the mean and writes it to every ``.grad``. Whatever the loop then
does with gradients, e.g. clipping, applies to the mean, and is equal on all peers.

Each parameter has a flag in the vector: 1 from a peer that has a gradient for it, else 0. Where the mean of the flags
is 0, no peer has a gradient and none gets one: to an optimizer with momentum or weight decay, zeros differ from None.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from ...aggregation.buckets import buckets
from ...aggregation.vector import Layout

HAD = "had a gradient."
"""Name of the flags' slot in the vector. No parameter's name can end so."""


def trained(model: nn.Module) -> dict[str, Tensor]:
    """Name -> parameter that gets a gradient (`requires_grad`), in the model's order."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def summed(model: nn.Module) -> dict[str, Tensor]:
    """The tensors that have the layout of the vector of summed gradients, by name: the parameters that get a gradient
    (`requires_grad`), themselves and no copies; and under `HAD` zeros [number of these parameters]. In the place of a
    parameter peers sum its gradient, and in the place of the zeros a flag for each parameter: whether it had one. The
    flags stand second, so that they come into one bucket with the first layer: both are known last in a backward."""
    parameters = trained(model)
    tensors = [*parameters.items()]
    tensors.insert(1, (HAD, torch.zeros(len(parameters))))
    return dict(tensors)


class Gradients:
    """Hooks on one model that copy its gradients into `vector` [n] and write the mean over all peers back to ``.grad``.

    `begin` is called at the first gradient of a backward; `full(bucket)` when all gradients of a bucket, a number in
    `buckets`, are in `vector`; `mean()` at the end of backward: it returns the mean [n] over all peers, or None to
    leave the gradients as they are. All are called within the context `guarded`, on the thread on which autograd runs.
    A backward raises ValueError when other parameters require a gradient than at construction, or another backward is
    under way. The next backward overwrites `vector`. While `accumulating` is True, the hooks do nothing.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        guarded: Callable[[], AbstractContextManager[None]],
        begin: Callable[[], None],
        full: Callable[[int], None],
        mean: Callable[[], Tensor | None],
    ) -> None:
        self._model, self._parameters = model, trained(model)
        self.layout = Layout.of(summed(model))
        self.buckets = buckets(self.layout)
        self.vector = torch.zeros(self.layout.size, dtype=self.layout.dtype)
        self.accumulating = False
        """Whether a backward only accumulates locally, without averaging."""
        self._guarded, self._begin, self._full, self._mean = guarded, begin, full, mean
        self._bucket_of = {
            slot.name: number
            for number, part in enumerate(self.buckets)
            for slot in self.layout.slots
            if part.start <= slot.start < slot.stop <= part.stop
        }
        self._slots = {slot.name: slot for slot in self.layout.slots}
        self._had = {name: self._slots[HAD].start + number for number, name in enumerate(self._parameters)}
        self._lock = threading.Lock()  # autograd runs one thread per device
        self._going: int | None = None
        """The autograd graph task id of the backward that is under way."""
        self._missing: set[str] = set()
        self._left: Counter[int] = Counter()
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(lambda _, name=name: self._computed(name))
            for name, parameter in self._parameters.items()
            if parameter.numel()
        ]

    def unhook(self) -> None:
        """Remove all hooks from the model."""
        for hook in self._hooks:
            hook.remove()

    def _computed(self, name: str) -> None:
        """The hook of a parameter, called when its gradient is complete."""
        if self.accumulating:
            return
        with self._guarded(), self._lock:
            backward: int = torch._C._current_graph_task_id()
            if self._going is None:
                self._start(backward)
            if backward != self._going or name not in self._missing:
                raise ValueError(
                    f"the gradient of {name} came outside of the backward that is under way: that failed, or this one "
                    "is within it, as a checkpoint with use_reentrant=True makes them"
                )
            self._bring(name)

    def _start(self, backward: int) -> None:
        if (now := trained(self._model).keys()) != self._parameters.keys():
            changed = ", ".join(sorted(now ^ self._parameters.keys()))
            raise ValueError(f"other parameters have gradients now than when run.wrap was called: {changed}")
        self._going = backward
        self._missing = self._bucket_of.keys() - {HAD}
        self._left = Counter(self._bucket_of.values())
        # As in DistributedDataParallel: PyTorch has no public callback for the end of a backward.
        torch.autograd.Variable._execution_engine.queue_callback(self._ended)
        self._begin()

    def _bring(self, name: str) -> None:
        slot, gradient = self._slots[name], self._parameters[name].grad
        here = self.vector[slot.start : slot.stop].view(slot.shape)
        with torch.no_grad():
            self.vector[self._had[name]] = gradient is not None
            if gradient is None:
                here.zero_()
            else:
                here.copy_(gradient.to_dense() if gradient.is_sparse else gradient)
        self._missing.remove(name)
        self._is_there(name)
        if not self._missing:
            self._is_there(HAD)

    def _is_there(self, name: str) -> None:
        bucket = self._bucket_of[name]
        self._left[bucket] -= 1
        if not self._left[bucket]:
            self._full(bucket)

    def _ended(self) -> None:
        """Called at the end of a backward. A parameter that this backward did not reach contributes its present
        ``.grad``: None, or a gradient accumulated before."""
        with self._guarded():
            for name in [name for name in self._bucket_of if name in self._missing]:
                self._bring(name)
            mean = self._mean()
            self._going = None
        if mean is not None:
            self._take(mean)

    def _take(self, mean: Tensor) -> None:
        had = mean[self._slots[HAD].start : self._slots[HAD].stop].tolist()
        with torch.no_grad():
            for (name, parameter), share in zip(self._parameters.items(), had, strict=True):
                if share > 0:
                    slot = self._slots[name]
                    if parameter.grad is None:
                        parameter.grad = torch.zeros_like(parameter)
                    parameter.grad.copy_(mean[slot.start : slot.stop].view(slot.shape))
