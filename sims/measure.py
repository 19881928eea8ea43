"""Measuring the real time of a local step on this machine. With `--step-time measured` a simulation charges this time
for each step."""

from __future__ import annotations

import statistics
import time

import torch

from ..peers.run_settings.settings import Settings
from ..peers.task.task import Task
from ..peers.training.trainer import Trainer
from ..peers.user_code import called_with

_WARM_UP, _STEPS = 3, 20
_CPU = torch.device("cpu")


def measured_step_time(task: Task, settings: Settings) -> str:
    """The median time of 20 local steps of one peer on the CPU, after 3 others, as a text for `--step-time`: whole
    microseconds, 1 at least. A run with this text has the same digest as the measured one. Sets the number of PyTorch's
    threads. Raises what `Trainer` and `Trainer.train` raise."""
    torch.set_num_threads(settings.threads or 1)  # as in the world
    with called_with(task.path, settings.arguments):
        trainer = Trainer(
            task,
            seed=settings.seed,
            data_shard=0,
            data_shards=settings.peers,
            device=_CPU,
            steps=settings.steps_max,
        )
        trainer.hooks.setup("0", None)
        times_s = _times_s(trainer)
    return f"{max(1, round(1e6 * statistics.median(times_s)))}us"


def _times_s(trainer: Trainer) -> list[float]:
    trainer.train(_WARM_UP)
    times_s = []
    for _ in range(_STEPS):
        began = time.perf_counter()
        trainer.train(1)
        times_s.append(time.perf_counter() - began)
    return times_s
