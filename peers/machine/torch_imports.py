"""PyTorch's lazy imports."""

from __future__ import annotations

import torch


def import_all_of_torch() -> None:
    """Import now what PyTorch would import with a process's first optimizer. That takes 1.5 s of a core (PyTorch 2.13),
    in which an event loop in another thread would hardly run."""
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])
