"""MLP-S as a task file with local steps of a known length: in each `STEP_S` are waited, as for an accelerator of the
peer's own, so that four peers on two cores do not hold each other up. Its seed is `SEED_VARIABLE` of the environment.
"""

from __future__ import annotations

import os
import time

from _tasks import Batch, mlp_s
from torch import Tensor, nn

STEP_S, RATE = 0.04, 0.3
SEED_VARIABLE = "MLP_S_SEED"

_task = mlp_s(int(os.environ.get(SEED_VARIABLE, "0")), RATE)
model = _task.model
data = _task.data
evaluate = _task.evaluate
optimizer = _task.optimizer


def loss(model: nn.Module, batch: Batch) -> Tensor:
    time.sleep(STEP_S)
    return _task.loss(model, batch)
