"""The scripts of papers run, in their quick form, and judge what can be judged there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from live import ROOT

QUICK = {
    "adacomm": set(),
    "diloco": {"40 times fewer bytes", "150 times fewer bytes", "5 fragments: the most in any second 3 times less"},
    "large_minibatch": set(),
    "heterogeneous": {
        "steps/s of the others at least 0.95 of those without the slow peer",
        "accuracy within 0.01 of a run without it",
    },
}
"""What is judged even then."""


REAL = ("--peers", 2, "--until", 120)
"""Of real_links.py, which takes no less time than it measures."""


def played(name: str, folder: Path, *options: object) -> tuple[str, dict[str, Any], int]:
    """What the script prints, its rows and claims, and how many curves it draws."""
    script, files = ROOT / "benchmarks" / "papers" / f"{name}.py", [folder / "rows.json", folder / "figure.svg"]
    command = [sys.executable, script, "--quick", "--json", files[0], "--figure", files[1], *options]
    ended = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads(files[0].read_text())
    assert all(claim["paper"] in ended.stdout and claim["ours"] in ended.stdout for claim in told["claims"])
    drawn = ElementTree.parse(files[1]).getroot().iter("{http://www.w3.org/2000/svg}polyline")
    return ended.stdout, told, len(list(drawn))


@pytest.mark.parametrize("name", list(QUICK))
def test_a_papers_script_tells_the_claim_beside_what_came_out(name: str, tmp_path: Path) -> None:
    _, told, curves = played(name, tmp_path)
    assert {claim["goal"] for claim in told["claims"] if claim["held"]} == QUICK[name]
    assert curves == sum(row.get("work") != "digits" for row in told["rows"]) >= 5  # those are a table only


def test_what_is_foretold_of_real_links_is_told_beside_what_came_out(tmp_path: Path) -> None:
    out, told, curves = played("real_links", tmp_path, *REAL)
    assert [row["system"] for row in told["rows"]] == ["1", "adaptive"]
    for row in told["rows"]:
        assert row["foretold_s"] > 0 < row["median_s"]
        assert f"{row['median_s']:.1f} s" in out
        assert row["foretold_averaging_s"] == pytest.approx(4 * row["foretold_step_s"], rel=0.05)
    assert curves == 2 * len(told["rows"]), "one real, one foretold"
