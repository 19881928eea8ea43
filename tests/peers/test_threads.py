"""PyTorch's threads in a peer's process: what its user has chosen stays, whatever was called before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from live import ROOT, python

from samovar.peers.machine import threads
from samovar.peers.machine.threads import threads_for

JOINS = """
import os, sys
import torch
import samovar
from samovar.peers.machine.torch_imports import import_all_of_torch

import_all_of_torch()
for number, before in enumerate(sys.argv[2:]):
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    exec(before)
    given = {"threads": 2} if "given" in before else {}
    samovar.join(run=sys.argv[1] + f"/{number}", listen="tcp://127.0.0.1:0", report=False, **given)
    print(torch.get_num_threads(), flush=True)
    os._exit(0)
"""


def after_joining(folder: Path, environment: dict[str, str], *before: str) -> list[int]:
    """The threads of scripts that have each called one of these lines before they joined. PyTorch reads the environment
    when it is imported, so with an `environment` of their own they import it anew, which takes three seconds."""
    kept = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    path = os.pathsep.join([str(ROOT.parent), *filter(None, sys.path)])
    command, own = ["-c", JOINS, str(folder), *before], {**kept, **environment, "PYTHONPATH": path}
    afresh = {"env": own, "capture_output": True, "text": True}
    ended = subprocess.run([sys.executable, *command], **afresh) if environment else python(*command, env=own)
    assert ended.returncode == 0, ended.stderr
    return [int(line) for line in ended.stdout.split()]


def test_a_script_keeps_the_threads_that_the_environment_or_itself_has_chosen(tmp_path: Path) -> None:
    chosen = after_joining(tmp_path / "e", {"OMP_NUM_THREADS": "1"}, "", "torch.get_num_threads()", "given = 2")
    assert chosen == [1, 1, 2], "the setting wins"
    assert after_joining(tmp_path / "s", {}, "torch.set_num_threads(1)", "torch.set_num_threads(97)") == [1, 97]


@pytest.mark.parametrize(
    ("wished", "variable", "now", "share", "found"),
    [
        (0, "", 8, 2, 2),
        (0, "", 4, 8, 4),
        (0, "", 3, 2, 3),
        (0, "OMP_NUM_THREADS", 8, 2, 8),
        (0, "MKL_NUM_THREADS", 8, 2, 8),
        (5, "OMP_NUM_THREADS", 8, 2, 5),
        (5, "", 3, 2, 5),
    ],
)
def test_a_share_of_the_cores_is_taken_where_nobody_has_chosen(
    wished: int, variable: str, now: int, share: int, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, str(now))
    monkeypatch.setattr(threads, "_usual", lambda: {8, 4})
    monkeypatch.setattr(torch, "get_num_threads", lambda: now)
    assert threads_for(wished, share) == found
