"""The parts of PyTorch that take memory only when they are first needed: its late imports, and its libraries for
convolutions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import torch

COMPILER: Final = "torch._dynamo"


def import_all_of_torch() -> None:
    """Import the modules that PyTorch imports when a process makes its first optimizer. That takes 1.5 s of one core
    (PyTorch 2.13), during which an event loop in another thread would hardly run."""
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])


class _Compiler(ModuleType):
    """Stands in for PyTorch's compiler module until code needs more of it than the two functions below. Optimizers call
    these two at each step, to mark code that must not be compiled."""

    @staticmethod
    def graph_break(*about: object, **more: object) -> None:
        """Do nothing: no code is being compiled."""

    @staticmethod
    def disable(function: Callable[..., Any], *options: object, **more: object) -> Callable[..., Any]:
        """Returns `function` unchanged: it is not compiled anyway."""
        return function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        if sys.modules.get(COMPILER) is self:
            del sys.modules[COMPILER]
        return getattr(import_module(COMPILER), name)


def do_without_compiler() -> None:
    """Keep PyTorch from importing its compiler for an optimizer, unless it is imported already. The compiler takes 70
    MiB (PyTorch 2.13). `torch.compile`, for which it is there, imports it all the same."""
    if COMPILER not in sys.modules:
        sys.modules[COMPILER] = torch._dynamo = _Compiler(COMPILER)


def do_without_convolution_libraries() -> None:
    """Have PyTorch compute convolutions on the CPU by itself: without oneDNN, whose code takes 8 MB as soon as it runs,
    and without NNPACK, which keeps the workspace of the largest convolution so far, in each thread that had one (9 MB
    for 360 images of 8 x 8 pixels, from 32 to 64 channels; PyTorch 2.13, x86-64). A task whose layers are faster with
    oneDNN sets `torch.backends.mkldnn.enabled = True`."""
    torch.backends.mkldnn.set_flags(_enabled=False)
    torch.backends.nnpack.set_flags(_enabled=False)
