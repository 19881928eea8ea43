"""What PyTorch imports late."""

from __future__ import annotations

import torch


def import_all_of_torch() -> None:
    """Have it import now what it would with a process's first optimizer: that takes 1.5 s of a core (PyTorch 2.13), in
    which an event loop in another thread hardly gets to answer anybody."""
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])
