"""Cells of a notebook, run in this process as a kernel runs them."""

from __future__ import annotations

import itertools
import linecache
import sys
import types

import pytest

IMPORTS = "import torch\nfrom torch import nn\n"
MODEL = "def model():\n    return nn.Linear(2, 1)\n"
DATA = "def data(part, parts):\n    return [torch.full((4, 2), part + 1.0)] * 4\n"
LOSS = "def loss(model, batch):\n    return model(batch).square().mean()\n"
TASK = IMPORTS + MODEL + DATA + LOSS
"""A task that trains in a moment."""

_NUMBERS = itertools.count(1)


class Kernel:
    """A main module without a file, in which cells are run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.main = types.ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", self.main)

    def run(self, cell: str) -> None:
        name = f"/tmp/ipykernel_{next(_NUMBERS)}/cell.py"
        linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
        exec(compile(cell, name, "exec", dont_inherit=True), vars(self.main))
