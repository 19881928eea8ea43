"""How long a local step takes on this machine, in real time: what `--step-time measured` has a simulation charge."""

from __future__ import annotations

import statistics
import time

import torch

from ..peers.settings.settings import Settings
from ..peers.task.task import Task
from ..peers.training.trainer import Trainer

_WARM_UP, _STEPS = 3, 20


def measured_step_time(task: Task, settings: Settings) -> str:
    """The median over 20 local steps of one peer, as `--step-time` takes it: what is measured once can be given again,
    and then the digest is the same again."""
    torch.set_num_threads(settings.threads or 1)  # as the world does
    trainer = Trainer(task, seed=settings.seed, part=0, parts=settings.peers, device=torch.device("cpu"))
    trainer.train(_WARM_UP)
    times_s = []
    for _ in range(_STEPS):
        began = time.perf_counter()
        trainer.train(1)
        times_s.append(time.perf_counter() - began)
    return f"{max(1, round(1e6 * statistics.median(times_s)))}us"
