"""A run of all tests tells which files take longest, and whether all stay within the gate's budget."""

from __future__ import annotations

from types import SimpleNamespace

from slowest import BUDGET_S, FILES_MIN, SHOWN, lines


def phases(files: int, seconds: float) -> list[SimpleNamespace]:
    """Of each file a test with two phases; the last file takes longest, and all together `seconds`."""
    each = seconds / sum(range(1, files + 1)) / 2
    return [
        SimpleNamespace(nodeid=f"tests/test_{number}.py::test_it", duration=number * each)
        for number in range(1, files + 1)
        for _ in range(2)
    ]


def test_the_files_that_take_longest_are_told_with_the_sum_of_all() -> None:
    told = [*lines(phases(FILES_MIN, 101.0))]
    assert len(told) == SHOWN + 1
    assert told[0] == f"   2.0 s  tests/test_{FILES_MIN}.py"
    assert told[-1] == f" 101.0 s  all {FILES_MIN} files, of {BUDGET_S:g} s"


def test_a_run_over_the_budget_is_told_with_advice() -> None:
    assert "soaked" in [*lines(phases(FILES_MIN, BUDGET_S + 1))][-1]
    assert "soaked" not in [*lines(phases(FILES_MIN, BUDGET_S - 1))][-1]


def test_a_run_of_a_part_of_the_files_tells_nothing() -> None:
    assert [*lines(phases(FILES_MIN - 1, 2 * BUDGET_S))] == []
