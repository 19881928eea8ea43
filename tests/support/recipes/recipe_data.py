"""Data for the recipes: in local step k all peers together take batch k of `table`, in equal parts."""

from collections.abc import Iterator

import torch
from torch import Tensor

ROWS, STEPS, FEATURES, CLASSES = 8, 40, 12, 4
Batch = tuple[Tensor, Tensor]


def table() -> Batch:
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(ROWS * STEPS, FEATURES, generator=generator)
    return inputs, inputs[:, :CLASSES].argmax(1)


def batches(part: int, parts: int) -> Iterator[Batch]:
    inputs, labels = table()
    for step in range(STEPS):
        rows = slice(step * ROWS + part * ROWS // parts, step * ROWS + (part + 1) * ROWS // parts)
        yield inputs[rows], labels[rows]
