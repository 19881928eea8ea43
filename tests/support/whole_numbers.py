"""The task whose pushes are of whole numbers, and the sums that are due of them."""

import torch
from live import ROOT

from samovar.peers.task.task import Task, load_task

SUMS = ROOT / "tests/support/tasks/sums.py"
ADDED = {"protocol": "parameter-server", "algorithm": "downpour", "server_update": "add"}
"""The settings with which the servers' values are the sum of all pushes."""


def sums() -> Task:
    return load_task(SUMS)


def due(workers: int, steps: int) -> torch.Tensor:
    """The sum [n] of the changes of so many steps of each worker, no more than its data has batches."""
    batches = [list(sums().data(part, workers))[:steps] for part in range(workers)]
    assert all(len(those) == steps for those in batches)
    return torch.stack([torch.stack(those).sum(0) for those in batches]).sum(0)
