"""Gossip while peers are killed and others come: real processes on this machine.

    python benchmarks/churn.py [--peers 16] [--seconds 120] [--every 5] [--seed 0] [--quick] [--json FILE]

16 peers train the digits example. Every 5 s a random one is killed (SIGKILL), with its launcher if it has one of its
own, so that nobody tells the others, and a new one is started by `samovar join`. Beside it an undisturbed run: nobody is
killed, and every 5 s a process is started that does what a newcomer does until it trains, and ends.

Goals: no exchange waits longer than the patience (a peer's silence is looked at four times in it); 70 % of the rounds
of the undisturbed run, of all peers together; an accuracy within 1 % of it, the mean of all peers; and in the peers
that were there all the time no more sockets, threads and tasks at the end than at the beginning, and no process left.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1] / "tests" / "support"
sys.path.append(str(TESTS))

import psutil  # noqa: E402
from live import Live  # noqa: E402

TASK = Path(__file__).with_name("_churn_task.py")
ROUNDS_KEPT, ACCURACY_LOST, PATIENCE_S = 0.7, 0.01, 5.0
WAIT_S_MAX = PATIENCE_S * 1.25
SPARE = 4
"""Sockets, threads and tasks that come and go: of one peer that is just coming."""


@dataclass
class Found:
    """What a run has shown. `held`: sockets, threads and tasks of the peers that were there all the time, at the
    beginning and at the end."""

    rounds: int
    accuracy: float
    longest_wait_s: float
    killed: int
    held: dict[str, tuple[float, float]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


class Churn:
    """A run of so many peers, from which some are killed."""

    def __init__(self, folder: Path, peers: int, seed: int, ends: ExitStack) -> None:
        self.folder, self.chance, self.killed = folder, random.Random(seed), 0
        options = ("--peers", peers, "--protocol", "gossip", "--period", 8, "--steps", 10**7, "--evaluate-every", 20)
        usual = ("--patience-s", PATIENCE_S, "--listen", "tcp://127.0.0.1:0", "--threads", 1, "--no-report")
        self.run = Live(folder, "train", TASK, *options, *usual, "--run", "run", "--json")
        self._usual, self._ends = usual, ends
        self.newcomers: list[Live] = []
        self.run.until(lambda: self.run.rounds() >= 20, "round 20")

    def all_records(self) -> list[dict[str, Any]]:
        return [row for run in (self.run, *self.newcomers) for row in run.records()]

    def alive(self) -> list[tuple[Live, psutil.Process]]:
        return [(run, peer) for run in (self.run, *self.newcomers) for peer in run.peers().values() if _lives(peer)]

    def kill(self) -> None:
        run, peer = self.chance.choice(self.alive())
        with contextlib.suppress(psutil.NoSuchProcess):
            peer.kill()
        if run is not self.run:
            run.process.kill()
        self.killed += 1

    def let_in(self) -> None:
        number = len(self.newcomers)
        words = ("join", self.folder / "run" / "join.txt", TASK, *self._usual, "--name", f"new-{number}")
        self.newcomers.append(Live(self.folder, *words, "--run", f"new-{number}", run=f"new-{number}", afresh=True))

    def let_nobody_in(self) -> None:
        """As much work as to start a newcomer."""
        words = (
            "train",
            TASK,
            "--peers",
            1,
            "--steps",
            1,
            *self._usual,
            "--quiet",
            "--run",
            f"other-{time.monotonic_ns()}",
        )
        self.newcomers.append(Live(self.folder, *words, run="none", afresh=True))
