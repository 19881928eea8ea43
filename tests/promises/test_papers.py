"""The scripts of papers run, in their quick form, and judge what can be judged there."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from live import ROOT
from tiers import soak

from samovar.peers.run_settings.settings import Settings

PAPERS = ROOT / "benchmarks" / "papers"
QUICK = {
    "adacomm": set(),
    "diloco": {"40 times fewer bytes", "150 times fewer bytes", "5 fragments: the most in any second 3 times less"},
    "gossip": {
        "the measured rate within 5 % of the spectral gap's; one-peer exponential exact after log2 n rounds",
        "20 % of the transfers broken off: mass conserved exactly, and the mean right to 1e-6",
        "errors of at most 2e-9 after 60 rounds, and above 0.1 without weights",
        "faster than allreduce at 10 ms and 100 Mbit/s",
        "a round in 1/5 of ring allreduce's time at 5 ms, 16 peers",
        "random pairs average without a deadlock, and the mean of all stays",
        "within 1 % of the plain algorithm's squared distances, from the same vectors",
        "AD-PSGD: the others keep at least 90 % of their speed",
        "exact after 3 rounds; with a tenth absent in each, 2.8e-2 / 8e-4 / 2.6e-5 of the squared distance is left "
        "after 3, 6 and 9, but for two standard errors of 20 draws; it never grows, and the mean stays",
    },
    "downpour": set(),
    "glove": {"at least 90 %", "in step: the curve within 2 % of one process"},
    "hierarchical": set(),
    "hogwild": set(),
    "large_minibatch": set(),
    "heterogeneous": {
        "steps/s of the others at least 0.95 of those without the slow peer",
        "accuracy within 0.01 of a run without it",
    },
    "sandblaster": {
        "1 and 4 workers within 1e-8 of one machine after as many evaluations",
        "one of 16 workers 10 times slower: at most 1.2 times the ideal time",
        "log-normal speeds: at most 1.2 times the ideal time",
    },
    "statistical_query": {
        "within 1e-6 of numpy's least squares, whoever is lost",
        "the steps of 1, 2 and 8 workers equal those of one machine to 1e-10",
        "with a worker lost within 1e-3 of the same steps",
    },
    "staleness": {
        "within 10 % of 1.62, 2.24, 2.78, 3.38",
        "never beyond s and the running step, at any event",
        "no gain for any finite bound",
        "about n; at most 0.1 % above 2 n",
        "at most 0.72, late workers drop it at once",
        "at most 0.78, late workers drop it when finished",
    },
}
"""What is judged even then."""


def curves_in(figure: Path) -> int:
    return len(list(ElementTree.parse(figure).getroot().iter("{http://www.w3.org/2000/svg}polyline")))


@soak
@pytest.mark.timeout(1200)  # GloVe counts its corpus for minutes where all cores are busy
@pytest.mark.parametrize("name", sorted(QUICK))
def test_a_papers_script_prints_the_claim_beside_the_result(name: str, tmp_path: Path) -> None:
    script, files = PAPERS / f"{name}.py", [tmp_path / "rows.json", tmp_path / "figure.svg"]
    command = [sys.executable, script, "--quick", "--json", files[0], "--figure", files[1]]
    ended = subprocess.run([*map(str, command)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads(files[0].read_text())
    assert {claim["goal"] for claim in told["claims"] if claim["held"]} == QUICK[name]
    assert all(claim["paper"] in ended.stdout and claim["ours"] in ended.stdout for claim in told["claims"])
    works = [row.get("work", "a:") for row in told["rows"]]
    curves = ("a:", "e: CHOCO on a ring", "f: Moshpit")  # of a script with studies; the others are tables
    drawn = [work for work in works if work != "digits" and (work[1:2] != ":" or work.startswith(curves))]
    assert curves_in(files[1]) == len(drawn) >= 3


@soak
def test_predictions_for_real_links_are_printed_beside_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real runs are played, too, but for one of a few rounds: where a step takes as long, nothing differs."""
    monkeypatch.syspath_prepend(str(PAPERS))
    links = importlib.import_module("real_links")
    begun = links.real(replace(links.usual(2, 0, 100), period="1", steps=8, link="10mbit,10ms"))
    assert begun.step_s >= links._paced.STEP_S
    assert begun.averaging_s >= 0.02  # there and back

    def real(settings: Settings) -> Any:
        return links.foretold(replace(settings, steps=10**9), 0.041, 150)

    monkeypatch.setattr(links, "real", real)
    files = [tmp_path / "rows.json", tmp_path / "figure.svg"]
    argv = ["real_links.py", "--quick", "--peers", "2", "--until", "120", "--json", *map(str, files)]
    monkeypatch.setattr(sys, "argv", [*argv[:-1], "--figure", argv[-1]])
    assert links.main() == 0
    out, rows = capsys.readouterr().out, json.loads(files[0].read_text())["rows"]
    assert [row["system"] for row in rows] == ["1", "adaptive"]
    for row in rows:
        assert row["step_s"] == pytest.approx(0.041)
        assert row["foretold_averaging_s"] == pytest.approx(4 * 0.041, rel=0.05), "the link is chosen for that"
        assert row["error"] == 0
        assert f"{row['median_s']:.1f} s" in out
    assert rows[1]["ratio"] > 1
    assert curves_in(files[1]) == 2 * len(rows), "one real, one foretold"
