"""What an attacker with a valid invite costs a run: rounds, and memory.

Three real peers train; a hostile process (`tests/support/attacker.py`) does the attacks of `tests/support/attacks.py`,
each on a run of its own, by keys that are no members and as a member. After each stretch of an attack a process that
sends nothing burns as much processor time for a stretch of its own: the ratio is the rounds per second beside the
attack over those beside that process, each the mean of all stretches. The memory is the largest growth of the resident
size of any of the peers over all stretches. `named`: an event in the records has one of its keys. Goals: a ratio of
0.8, 64 MiB, and named.

    python benchmarks/hostile.py [--quick] [--json FILE] [--attacks NAME,...]
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from common import MISSED, Row, usual_parser

TESTS = Path(__file__).resolve().parents[1] / "tests" / "support"
sys.path.append(str(TESTS))

from live import STEADY, Live, stop_all  # noqa: E402
from villain import Grown, Villain  # noqa: E402

PEERS, KEPT, MIB_MAX, PATIENCE_S = 3, 0.8, 64.0, 5.0
ATTACKS = (
    *(("key", name) for name in ("chunks", "extremes", "rejoins", "joiners", "garbage", "state")),
    *(("member", name) for name in ("chunks", "ballots", "proposals", "deals")),
)
BURN = """
import sys, time
share, ends = float(sys.argv[1]), time.monotonic() + float(sys.argv[2])
while (began := time.monotonic()) < ends:
    used = time.process_time()
    while time.process_time() - used < share * 0.01:
        pass
    time.sleep(max(0.0, began + 0.01 - time.monotonic()))
"""


def burn(share: float, for_s: float) -> None:
    """Use that share of a core, or of several, and send nothing."""
    count = max(1, math.ceil(share))
    words = [sys.executable, "-c", BURN, str(share / count), str(for_s)]
    for process in [subprocess.Popen(words) for _ in range(count)]:
        process.wait()


def pace(run: Live, do: Any) -> float:
    """Rounds a second of the first peer while that is done."""
    before, began = run.rounds("0"), time.monotonic()
    do()
    return (run.rounds("0") - before) / (time.monotonic() - began)


def measured(who: str, attack: str, pairs: int, attack_s: float, control_s: float) -> Row:
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        ends.callback(stop_all)
        options = ("--peers", PEERS, "--period", 8, "--steps", 10**6, "--patience-s", PATIENCE_S)
        run = Live(folder, "train", STEADY, *options, "--run", "run", "--json", "--no-report")
        run.until(lambda: run.rounds() >= 20, "round 20")
        peers, join_txt = list(run.peers().values())[:PEERS], run.folder / "join.txt"
        villain = ends.enter_context(Villain(join_txt, STEADY, folder if who == "member" else None))
        beside, without, shares, keys = list[float](), list[float](), list[float](), set[str]()
        grown = ends.enter_context(Grown(peers))
        for _ in range(pairs):
            done: dict[str, Any] = {}
            beside.append(pace(run, lambda done=done: done.update(villain.attack(attack, for_s=attack_s))))
            keys |= {*done["keys"]}
            shares.append(done["cpu_s"] / attack_s)
            without.append(pace(run, lambda share=shares[-1]: burn(share, control_s)))
        told = " ".join(f"{row['why']} {row['key']}" for row in run.records() if row["kind"] == "event")
        return {
            "work": f"{attack}, {who}",
            "rounds_per_s": statistics.mean(beside),
            "control_rounds_per_s": statistics.mean(without),
            "ratio": sum(beside) / sum(without),
            "goal": KEPT,
            "processor_share": statistics.mean(shares),
            "grown_mib": grown.mib,
            "goal_mib": MIB_MAX,
            "named": any(key in told for key in keys),
        }


def main() -> int:
    parser = usual_parser(__doc__)
    parser.add_argument("--attacks", help="only these, by name")
    options = parser.parse_args()
    chosen = [(who, name) for who, name in ATTACKS if options.attacks is None or name in options.attacks.split(",")]
    pairs, attack_s, control_s = (2, 5.0, 5.0) if options.quick else (4, 15.0, 5.0)
    rows = []
    print(f"{'attack, of':<20} {'rounds/s':>9} {'control':>9} {'ratio':>6} {'cores':>6} {'MiB':>6} named")
    for who, name in chosen:
        row = measured(who, name, pairs, attack_s, control_s)
        rows.append(row)
        print(
            f"{row['work']:<20} {row['rounds_per_s']:>9.1f} {row['control_rounds_per_s']:>9.1f} {row['ratio']:>6.2f}"
            f" {row['processor_share']:>6.2f} {row['grown_mib']:>6.1f} {row['named']}",
            flush=True,
        )
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    short = [row["work"] for row in rows if row["ratio"] < KEPT or row["grown_mib"] > MIB_MAX or not row["named"]]
    if short:
        print(f"missed its goal: {'; '.join(short)}", file=sys.stderr)
    return MISSED if short else 0


if __name__ == "__main__":
    sys.exit(main())
