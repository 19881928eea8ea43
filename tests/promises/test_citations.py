"""The tests that pages and lists name are there."""

import re
from functools import cache

from library import ROOT, library
from order import LONGEST


def test_the_files_that_are_run_first_are_there() -> None:
    assert {name for name in LONGEST if not [*(ROOT / "tests").rglob(f"{name}.py")]} == set()


def cited(page: str) -> set[str]:
    """The tests and promises that a page names: what is `code` and has four words or more."""
    return set(re.findall(r"`([a-z]+(?:_[a-z0-9]+){3,})`", page))


@cache
def written() -> set[str]:
    """Every function of tests/."""
    texts = (path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py"))
    return {name for text in texts for name in re.findall(r"^ *(?:async )?def (\w+)\(", text, re.MULTILINE)}


def test_every_trap_of_zeromq_is_told_and_every_test_that_is_cited_exists() -> None:
    page = (ROOT / "docs" / "zeromq.md").read_text("utf-8")
    rows = re.findall(r"^\| Z(\d+) \| [^|]+ \| [^|]+ \|$", page, re.MULTILINE)
    assert rows == [str(n) for n in range(1, len(rows) + 1)]
    named = set(re.findall(r"\bZ(\d+)\b", "".join(source for _, source in library())))
    assert {"1", "26"} <= named <= set(rows)
    assert len(cited(page)) > 20
    assert cited(page) - written() == set()


def test_a_test_that_is_cited_and_was_never_written_is_found() -> None:
    assert cited("`test_it_always_works` and `maxmsgsize`, `of_three_words`") == {"test_it_always_works"}
    assert "test_it_always_works" not in written()
    assert "test_a_test_that_is_cited_and_was_never_written_is_found" in written()
