"""What holds for every test."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from live import heed_interrupts, stop_all
from order import LONGEST
from slowest import lines
from synthetic import synthetic_run
from tiers import left_out

from samovar.peers.records.run import Run


def pytest_configure() -> None:
    """One thread a worker: the threads of two workers would wait for each other at the end of each small sum, which
    doubles the time of a simulation."""
    torch.set_num_threads(1)
    heed_interrupts()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The order in which `make test` hands files to its workers."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


def pytest_collection_finish() -> None:
    """What is there now stays: many tests collect garbage, which takes a third of a second with PyTorch to look at."""
    gc.freeze()


def pytest_deselected(items: list[pytest.Item]) -> None:
    left_out.update(f"{item.path.name}::{item.name}" for item in items if item.get_closest_marker("soak"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    phases = [one for outcome in terminalreporter.stats.values() for one in outcome if hasattr(one, "duration")]
    if told := [*lines(phases)]:
        terminalreporter.section("the files that take longest")
        terminalreporter.write_line("\n".join(told))


@pytest.fixture(autouse=True)
def no_run_outlives_its_test() -> Iterator[None]:
    yield
    stop_all()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run folder that was read: of four peers, one of which was lost at half time."""
    return synthetic_run(tmp_path / "digits-001")
