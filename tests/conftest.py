"""What holds for every test."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from live import stop_all
from synthetic import synthetic_run

from samovar.peers.records.records import Run

LONGEST = (
    "test_readme test_docs test_papers test_processes test_bad_input test_script_processes test_crashes test_gallery"
    " test_overlap test_deaths test_sweep test_endpoints test_codecs test_house test_joining"
).split()
"""Files that take longest, the longest first: begun last, one of them would keep a worker when all others are done."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The order in which `make test` hands files to its workers."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


def pytest_collection_finish() -> None:
    """What is there now stays: many tests collect garbage, which takes a third of a second with PyTorch to look at."""
    gc.freeze()


@pytest.fixture(autouse=True)
def no_run_outlives_its_test() -> Iterator[None]:
    yield
    stop_all()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run folder that was read: of four peers, one of which was lost at half time."""
    return synthetic_run(tmp_path / "digits-001")
