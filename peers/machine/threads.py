"""The number of PyTorch's threads in a peer's process: the user's own choice, else a share of the machine's cores."""

from __future__ import annotations

import os

import torch

_CHOSEN_BY = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""The environment variables by which a user chooses the number; PyTorch heeds both."""


def threads_for(wished: int, share: int) -> int:
    """The number of PyTorch threads for this process, as its calling thread is to have it. `wished`: the setting
    `threads`, which wins; 0: it is not given. Then the number stays as it is where an environment variable has chosen
    it, or the program by ``torch.set_num_threads``; that is told from a number that PyTorch does not take by itself. In
    all other cases it is `share`, this peer's share of the machine's cores, or PyTorch's own number if that is
    lower."""
    now = torch.get_num_threads()
    if wished:
        return wished
    if any(name in os.environ for name in _CHOSEN_BY) or now not in _usual():
        return now
    return min(now, share)


def _usual() -> set[int]:
    """The numbers that PyTorch may take by itself: a thread for each core, or for each two of them, which may be one
    core with two threads of its own."""
    cores = {os.cpu_count() or 1}
    if hasattr(os, "sched_getaffinity"):
        cores.add(len(os.sched_getaffinity(0)))
    return cores | {max(1, one // 2) for one in cores}
