"""rich, which draws tables and takes 2 MB, is imported only where something is drawn."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import json, sys
import samovar.peers.cli.join
from samovar.peers.cli.output import Output
from samovar.peers.records.columns import ROUNDS
from samovar.peers.records.records import EventRecord
from samovar.peers.records.result import Result

def drawn():
    return "rich" in {name.partition(".")[0] for name in sys.modules}

output = Output(steps=10, columns=ROUNDS, **json.loads(sys.argv[1]))
before = drawn()
with output:
    output.put(EventRecord(peer="a", time_s=1.0, event="joined"))
    output.say("a line")
during = drawn()
output.end(Result(metrics={}, loss=1.0, wall_s=1.0, exchanges=0, run=sys.argv[2]))
print(before, during, drawn(), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("said", "at_its_end"), [('{"as_json": true}', False), ('{"quiet": true}', False), ("{}", True)]
)
def test_a_run_that_draws_nothing_does_without_what_draws(tmp_path: Path, said: str, at_its_end: bool) -> None:
    words = [sys.executable, "-c", CODE, said, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == f"False False {at_its_end}"
