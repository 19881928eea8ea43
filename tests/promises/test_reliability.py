"""The pages on reliability and security: every row names tests that exist, or says that there is none yet."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
ROWS = [line.strip("| \n").split(" | ") for line in PAGE.splitlines() if re.match(r"\| \d+ \|", line)]
FURTHER = [line for line in PAGE.splitlines() if line.startswith("| ") and not re.match(r"\| (\d+|#|fault) \|", line)]


def named_in(folder: Path) -> set[str]:
    return {
        name
        for path in folder.rglob("*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }


def test_every_fault_of_the_table_has_a_row_with_its_tests_or_says_not_yet() -> None:
    assert [int(row[0]) for row in ROWS] == list(range(1, 31))
    known = named_in(ROOT / "tests")
    for row in ROWS:
        named = re.findall(r"`(test_\w+)`", row[3])
        assert named or row[3] == "not yet", row
        assert set(named) <= known, set(named) - known
    for line in FURTHER:
        named = re.findall(r"`(test_\w+)`", line)
        assert named, line
        assert set(named) <= known, set(named) - known


def test_every_row_on_security_names_its_tests_or_says_not_yet() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith(("| attempt", "| ---"))]
    known = named_in(ROOT / "tests")
    assert len(rows) > 15
    for row in rows:
        shown = row.strip("| \n").split(" | ")[2]
        named = re.findall(r"`(test_\w+)`", shown)
        assert named or shown == "not yet", row
        assert set(named) <= known, set(named) - known


def test_a_name_that_is_no_test_would_be_noticed(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("def test_a():\n    pass\n")
    assert named_in(tmp_path) == {"test_a"}
