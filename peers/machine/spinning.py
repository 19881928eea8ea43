"""How long the threads of a numerical kernel keep their core while they wait for each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SPINS: Final = "2000"
"""Turns of the waiting loop of GNU OpenMP before a thread sleeps. Within them a thread of the same small kernel is done
if it has a core. GNU's own number, 300,000, keeps the core for a millisecond or more, and other peers that share the
core are halted meanwhile. With 0 (`OMP_WAIT_POLICY=PASSIVE`) each small kernel takes 0.05 ms longer, because
its threads have to be woken."""
_CHOICES: Final = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def spinning(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables to add to the `environment` of a peer's process, before PyTorch is imported there, for its kernels'
    threads to sleep after `SPINS` turns. Empty if one of the two variables that set this, ``GOMP_SPINCOUNT`` and
    ``OMP_WAIT_POLICY``, is there already. Other libraries than GNU OpenMP (PyTorch's on Linux) pass them over."""
    return {} if any(name in environment for name in _CHOICES) else {_CHOICES[0]: SPINS}
