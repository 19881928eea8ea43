"""A task's learning-rate schedule. It follows the local steps of the run, not the steps that this peer has taken: a
peer that catches up with the others goes on with their learning rate."""

from __future__ import annotations

import copy
from typing import Any

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ..task.task import Task, TaskError, made_by


class Schedule:
    """The schedule that the task's `lr_schedule` makes for `optimizer`, in a run of `steps` local steps of each peer.
    For a task without `lr_schedule` there is no schedule, and `go_to` and `restore` do nothing."""

    def __init__(self, task: Task, optimizer: Any, steps: int | None) -> None:
        """`steps` None: the number is not known. Raises TaskError when the task has an `lr_schedule` and the number is
        not known, or it returns no scheduler, or one that follows a metric (ReduceLROnPlateau)."""
        self._optimizer, self._steps = optimizer, steps
        self._scheduler: LRScheduler | None = None
        self.step = 0
        """The local steps of the run to which the optimizer's present learning rate belongs."""
        if task.lr_schedule is None:
            return
        if steps is None:
            raise TaskError(f"{task.path}: lr_schedule() needs the number of local steps: give --steps")
        made = made_by(task, "lr_schedule", LRScheduler, task.lr_schedule(optimizer, steps))
        if isinstance(made, ReduceLROnPlateau):
            raise TaskError(
                f"{task.path}: lr_schedule() returns a ReduceLROnPlateau, which follows a metric that only one peer "
                "has; return one that follows the steps"
            )
        self._scheduler = made
        optimizer._opt_called = True  # a peer that catches up moves the schedule before its first step, on purpose
        self._first = copy.deepcopy(made.state_dict()), _options(optimizer)

    def go_to(self, step: int) -> None:
        """Set the learning rate that is due after `step` local steps of the run. From the run's last step on, beyond
        which a peer at its own pace may go, it stays. Cost: one call of the schedule for each step between; from the
        beginning when `step` is before the present one."""
        if self._scheduler is None or self._steps is None:
            return
        step = min(step, self._steps - 1)
        if step < self.step:
            self._rewind(self._scheduler)
        while self.step < step:
            self._scheduler.step()
            self.step += 1

    def _rewind(self, scheduler: LRScheduler) -> None:
        state, options = self._first
        scheduler.load_state_dict(copy.deepcopy(state))
        for group, first in zip(self._optimizer.param_groups, options, strict=True):
            group.update(copy.deepcopy(first))
        self.step = 0

    def to_plain(self) -> dict[str, Any] | None:
        """The state for a checkpoint; None: there is no schedule. The optimizer's own state has the learning rates."""
        if self._scheduler is None:
            return None
        return {"step": self.step, "steps": self._steps, "state": self._scheduler.state_dict()}

    def unlike(self, plain: dict[str, Any] | None) -> str:
        """The difference between this peer's task and a checkpoint, in words, if one of them has a schedule and the
        other none; "": there is no difference. `plain`: the result of `to_plain` in the checkpoint."""
        if (plain is None) == (self._scheduler is None):
            return ""
        return "none there, one here" if plain is None else "one there, none here"

    def restore(self, plain: dict[str, Any] | None) -> None:
        """Restore the state that `to_plain` gave; does nothing where the checkpoint or this task has no schedule.
        Called after the optimizer's own state was restored, which has the learning rates. If the run now has another
        number of steps, the schedule begins anew, and the next `go_to` moves it to its place."""
        if plain is None or self._scheduler is None:
            return
        if plain["steps"] != self._steps:
            self._rewind(self._scheduler)
        else:
            self._scheduler.load_state_dict(plain["state"])
            self.step = plain["step"]


def _options(optimizer: Any) -> list[dict[str, Any]]:
    """The options of each parameter group, such as its learning rate and momentum."""
    return [
        {name: copy.deepcopy(value) for name, value in group.items() if name != "params"}
        for group in optimizer.param_groups
    ]
