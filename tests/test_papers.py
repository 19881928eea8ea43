"""The scripts of papers run, in their quick form, and judge what can be judged there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from live import ROOT

QUICK = {
    "adacomm": set(),
    "diloco": {"40 times fewer bytes", "150 times fewer bytes", "5 fragments: the most in any second 3 times less"},
    "hierarchical": set(),
    "large_minibatch": set(),
    "heterogeneous": {
        "steps/s of the others at least 0.95 of those without the slow peer",
        "accuracy within 0.01 of a run without it",
    },
}
"""What is judged even then."""


@pytest.mark.parametrize("name", list(QUICK))
def test_a_papers_script_tells_the_claim_beside_what_came_out(name: str, tmp_path: Path) -> None:
    script, files = ROOT / "benchmarks" / "papers" / f"{name}.py", [tmp_path / "rows.json", tmp_path / "figure.svg"]
    command = [sys.executable, script, "--quick", "--json", files[0], "--figure", files[1]]
    ended = subprocess.run([*map(str, command)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads(files[0].read_text())
    assert {claim["goal"] for claim in told["claims"] if claim["held"]} == QUICK[name]
    assert all(claim["paper"] in ended.stdout and claim["ours"] in ended.stdout for claim in told["claims"])
    drawn = ElementTree.parse(files[1]).getroot().iter("{http://www.w3.org/2000/svg}polyline")
    assert len(list(drawn)) == sum(row.get("work") != "digits" for row in told["rows"]) >= 5  # those are a table only
