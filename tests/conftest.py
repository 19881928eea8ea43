"""What holds for every test."""

from collections.abc import Iterator

import pytest
from live import stop_all


@pytest.fixture(autouse=True)
def no_run_outlives_its_test() -> Iterator[None]:
    yield
    stop_all()
