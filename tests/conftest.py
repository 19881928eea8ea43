"""What holds for every test. The process that hands tests to workers imports no PyTorch: it would begin later."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from order import LONGEST
from slowest import lines
from tiers import left_out

if TYPE_CHECKING:
    from samovar.peers.records.run import Run


def pytest_configure(config: pytest.Config) -> None:
    """One thread a worker: the threads of two workers would wait for each other at the end of each small sum, which
    doubles the time of a simulation. In processes that tests start, threads that wait sleep: they would else keep the
    cores from others, for seven to eighteen times the processor time of a small training."""
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    if config.getoption("numprocesses", None):
        return
    import torch
    from live import heed_interrupts

    from samovar.peers.machine.torch_imports import do_without_compiler

    torch.set_num_threads(1)
    do_without_compiler()  # which no test of a worker uses, and which takes a second to import
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
    from live import stop_all

    yield
    stop_all()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run folder that was read: of four peers, one of which was lost at half time."""
    from synthetic import synthetic_run

    return synthetic_run(tmp_path / "digits-001")
