"""The workspaces that MKL, PyTorch's library for matrix products, keeps from one product to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_CHOICE: Final = "MKL_DISABLE_FAST_MM"


def unkept(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables to add to the `environment` of a process, before PyTorch is imported there, for MKL to free each
    workspace after its product. It keeps 3 MB otherwise, for each thread that multiplies. Small products then take a
    quarter longer. Empty if the variable that sets this, ``MKL_DISABLE_FAST_MM``, is there already."""
    return {} if _CHOICE in environment else {_CHOICE: "1"}
