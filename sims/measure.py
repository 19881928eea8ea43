"""Measures the real time of a local step on this machine, which `--step-time measured` makes a simulation charge."""

from __future__ import annotations

import statistics
import time

import torch

from ..peers.settings.settings import Settings
from ..peers.task.task import Task
from ..peers.training.trainer import Trainer

_WARM_UP, _STEPS = 3, 20


def measured_step_time(task: Task, settings: Settings) -> str:
    """The median over 20 local steps of one peer, as `--step-time` takes it. Given again as a number, it gives the same
    digest again."""
    torch.set_num_threads(settings.threads or 1)  # as in the world
    trainer = Trainer(task, seed=settings.seed, part=0, parts=settings.peers, device=torch.device("cpu"))
    trainer.train(_WARM_UP)
    times_s = []
    for _ in range(_STEPS):
        began = time.perf_counter()
        trainer.train(1)
        times_s.append(time.perf_counter() - began)
    return f"{max(1, round(1e6 * statistics.median(times_s)))}us"
