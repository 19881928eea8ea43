"""What takes too long to be run for each change is marked: `make test` leaves it out, `make soak` runs it every night.

Every promise keeps its most telling cases in `make test`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

soak = pytest.mark.soak
left_out: set[str] = set()
"""What of the files of this session is soaked and not run, as `test_file.py::test_name[case]`."""


def soaked(*case: Any, id: str | None = None) -> Any:
    """A case of a parametrised test."""
    return pytest.param(*case, marks=soak, id=id)


def one_in(every: int, cases: Iterable[Any]) -> list[Any]:
    """All cases, but for one in so many soaked. A tuple is the arguments of one."""
    kept = list(cases)
    return [
        case if index % every == 0 else soaked(*(case if isinstance(case, tuple) else (case,)))
        for index, case in enumerate(kept)
    ]
