"""The workspaces that MKL, PyTorch's library for matrix products, keeps from one product to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

UNKEPT: Final[Mapping[str, str]] = {"MKL_DISABLE_FAST_MM": "1"}
"""The variables of the environment, set before PyTorch is imported, for MKL to free each workspace after its product.
It keeps 3 MB otherwise, for each thread that multiplies. Small products then take a quarter longer."""
