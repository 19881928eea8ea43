"""PyTorch's lazy imports."""

from __future__ import annotations

import torch


def import_all_of_torch() -> None:
    """Import the modules that PyTorch imports when a process makes its first optimizer. That takes 1.5 s of one core
    (PyTorch 2.13), during which an event loop in another thread would hardly run."""
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])
