"""Gossip while peers are killed and others come: real processes on this machine.

    python benchmarks/churn.py [--peers 16] [--seconds 120] [--every 5] [--seed 0] [--quick] [--json FILE]

16 peers train the digits example. Every 5 s a random one is killed (SIGKILL), and a new one is started by `samovar
join`. Of a peer of the beginning its launcher tells that it was killed, of a newcomer nobody does. Beside it an
undisturbed run, in which nobody is killed, and every 5 s a process is started that does what a newcomer does until it
trains, and ends.

Goals: no exchange waits longer than the patience, and the quarter of it after which silence is looked for again; 70 %
of the rounds of the undisturbed run, all peers together; an accuracy within 1 % of it, the mean of all peers; and in
the peers that were there all the time no more sockets, threads and tasks at the end than at the beginning, and no
process left.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from _processes import lives
from common import MISSED, usual_parser

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import psutil
from live import Live, heed_interrupts, stop_all

TASK = Path(__file__).with_name("_churn_task.py")
ROUNDS_KEPT, ACCURACY_LOST, PATIENCE_S = 0.7, 0.01, 5.0
WAIT_S_MAX = 1.25 * PATIENCE_S
ENDS_WITHIN_S = 600.0
"""The launcher has the lowest share of busy cores while 16 peers train, and reads most of their records at the end."""
SPARE = 4
"""Sockets, threads and tasks that come and go, as with a peer that is just coming."""
USUAL = ("--patience-s", PATIENCE_S, "--listen", "tcp://127.0.0.1:0", "--threads", 1, "--no-report")
HELD = ("sockets", "threads", "tasks")
Held = dict[str, float]
"""How many of each a process holds."""


@dataclass
class Found:
    """What a run has shown: `rounds` a minute of all peers together; `grown`: by how much any peer that was there all
    the time holds more than at the beginning; `left`: processes that outlived it."""

    rounds: float
    accuracy: float
    longest_wait_s: float
    killed: int
    peers: int
    grown: Held
    left: int


class Run:
    """A run of gossip, with the newcomers that were started."""

    def __init__(self, folder: Path, peers: int, chance: random.Random) -> None:
        self.folder, self._chance, self.killed = folder, chance, 0
        words = ("train", TASK, "--peers", peers, "--protocol", "gossip", "--period", 8, "--steps", 10**8)
        self.first = Live(folder, *words, *USUAL, "--evaluate-every", 20, "--run", "run", "--json")
        self.newcomers: list[Live] = []
        self.others: list[Live] = []
        self.first.until(lambda: len(self.told()) == peers, "an accuracy of each peer")

    @property
    def all(self) -> list[Live]:
        return [self.first, *self.newcomers]

    def alive(self) -> dict[str, tuple[Live, psutil.Process]]:
        """The peers that live, by name."""
        founders = {process.name().rsplit("-", 1)[-1]: process for process in self.first.peers().values()}
        found = {name: (self.first, process) for name, process in founders.items()}
        for run in self.newcomers:  # each is its own launcher
            with contextlib.suppress(psutil.NoSuchProcess):
                found[run.folder.name] = run, psutil.Process(run.process.pid)
        return {name: one for name, one in found.items() if lives(one[1].pid)}

    def replace(self) -> None:
        """Kill a peer, and start another one."""
        run, peer = self._chance.choice([*self.alive().values()])
        peer.kill()
        if run is not self.first:
            run.process.wait()
        self.first.until(lambda: not lives(peer.pid), "the end of a killed peer")
        self.killed += 1
        name = f"new{len(self.newcomers)}"
        way = self._way_in().split()
        words = ("join", way[2], TASK, "--invite", way[-1], *USUAL, "--name", name, "--run", name, "--json")
        self.newcomers.append(Live(self.folder, *words, run=name, afresh=True))

    def _way_in(self) -> str:
        """A line by which to join, through a peer of the beginning that lives."""
        lines = (self.folder / "run" / "join.txt").read_text(encoding="utf-8").splitlines()
        living = [process for run, process in self.alive().values() if run is self.first]
        open_ports = {one.laddr.port for process in living for one in process.net_connections("tcp") if not one.raddr}
        return self._chance.choice([line for line in lines if int(line.split()[2].rpartition(":")[2]) in open_ports])

    def replace_none(self) -> None:
        """As much work as to start another one."""
        name = f"other{len(self.others)}"
        words = ("train", TASK, "--peers", 1, "--steps", 1, *USUAL, "--run", name, "--json")
        self.others.append(Live(self.folder, *words, run=name, afresh=True))

    def held(self) -> dict[str, Held]:
        """What each peer holds, by name, as far as it has told."""
        last = self.told()
        return {
            name: {
                "sockets": len(process.net_connections("all")),
                "threads": process.num_threads(),
                "tasks": last[name]["tasks"],
            }
            for name, (_, process) in self.alive().items()
            if name in last
        }

    def rounds(self) -> int:
        """The exchanges so far but those of peers that went on from the others' models. Records are not parsed here: of
        100 MB that would take half a minute, from the peers too."""
        return sum(b'"caught_up":false' in line for line in self._lines() if line.startswith(b'{"kind":"exchange"'))

    def told(self) -> dict[str, dict[str, float]]:
        """The last metrics of each peer, by its name."""
        rows = map(json.loads, (line for line in self._lines() if b'"tasks"' in line))
        return {row["peer"]: row["metrics"] for row in rows}

    def _lines(self) -> Iterator[bytes]:
        """The records of all peers as they are written; the last of a peer may be torn, and is left out then."""
        files = (file for run in self.all for file in run.folder.glob("peer-*.jsonl"))
        return (line for file in files for line in file.read_bytes().split(b"\n")[:-1])

    def longest_wait_s(self) -> float:
        rows = [row for run in self.all for row in run.records() if row["kind"] == "exchange"]
        return max(float(row["wait_s"]) for row in rows if not row["caught_up"])

    def end(self) -> int:
        """Stop all that is left. Returns how many processes outlive it."""
        for run in self.all:
            if run.process.poll() is None:
                run.signal(signal.SIGINT)
        return sum(len(run.end(ENDS_WITHIN_S).left) for run in [*self.all, *self.others])


def measured(options: argparse.Namespace, *, disturbed: bool) -> Found:
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        ends.callback(stop_all)
        run = Run(folder, options.peers, random.Random(options.seed))
        before, held, began = run.rounds(), run.held(), time.monotonic()
        for number in range(1, int(options.seconds / options.every)):
            time.sleep(max(0.0, began + number * options.every - time.monotonic()))
            (run.replace if disturbed else run.replace_none)()
        time.sleep(max(0.0, began + options.seconds - time.monotonic()))
        took_s, rounds, now, last = time.monotonic() - began, run.rounds(), run.held(), run.told()
        stayed, left = held.keys() & now.keys(), run.end()
        return Found(
            rounds=60 * (rounds - before) / took_s,
            accuracy=statistics.mean(last[name]["accuracy"] for name in now),
            longest_wait_s=run.longest_wait_s(),
            killed=run.killed,
            peers=len(now),
            grown={what: max(now[name][what] - held[name][what] for name in stayed) for what in HELD},
            left=left,
        )


def told(name: str, found: Found) -> None:
    grown = ", ".join(f"{count:+.0f} {what}" for what, count in found.grown.items())
    print(
        f"{name:<12} {found.rounds:>8.0f} rounds a minute  accuracy {100 * found.accuracy:.2f} %  "
        f"longest wait {found.longest_wait_s:.2f} s  {found.killed} killed, {found.peers} there  "
        f"{grown}, {found.left} processes left",
        flush=True,
    )


def missed(calm: Found, churned: Found) -> list[str]:
    """The goals that were missed, in words."""
    kept, lost = churned.rounds / calm.rounds, calm.accuracy - churned.accuracy
    most = max(churned.grown.values())
    faults = {
        f"a peer waited for {churned.longest_wait_s:.2f} s": churned.longest_wait_s > WAIT_S_MAX,
        f"only {kept:.2f} of the rounds": kept < ROUNDS_KEPT,
        f"{100 * lost:.2f} % of accuracy lost": lost > ACCURACY_LOST,
        f"a peer holds {most:.0f} more of something": most > SPARE,
        f"{churned.left} processes are left": churned.left > 0,
    }
    return [fault for fault, is_so in faults.items() if is_so]


def main() -> int:
    parser = usual_parser(__doc__)
    parser.add_argument("--peers", type=int, help="peers at a time")
    parser.add_argument("--seconds", type=float, help="how long each of the two runs is looked at")
    parser.add_argument("--every", type=float, default=5.0, help="seconds from one kill to the next")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of whom to kill")
    options = parser.parse_args()
    options.peers = options.peers or (8 if options.quick else 16)
    options.seconds = options.seconds or (30.0 if options.quick else 120.0)
    heed_interrupts()
    told("undisturbed", calm := measured(options, disturbed=False))
    told("churned", churned := measured(options, disturbed=True))
    print(f"{churned.rounds / calm.rounds:.2f} of the rounds, goal {ROUNDS_KEPT:g}")
    if options.json:
        rows = [{"run": name} | vars(found) for name, found in (("undisturbed", calm), ("churned", churned))]
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    faults = missed(calm, churned)
    for fault in faults:
        print(f"missed: {fault}", file=sys.stderr)
    return MISSED if faults else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
