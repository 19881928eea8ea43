"""Edge peers behind thin links: two peers that can only dial out, and one that they reach.

    python benchmarks/edge.py [--quick] [--rest] [--loopback] [--json FILE]

Each of the three has a network namespace of its own. The links of the two edge peers, which join by `--edge --budget`,
are held to 1 Mbit/s in each direction by the kernel (tbf), and no packet passes between them but through the third
peer's process. They train the network of the digits example, and a convolutional network of 1.6 million parameters.
All three mix with each other, so the two talk through a relay. One of them is then suspended (SIGSTOP) for a minute.

Goals: in every second at most the budget and one chunk in either direction, as the edge's network interface counts it,
with all headers; nobody is lost who was not suspended; the suspended peer mixes again; resident
memory of at most 64 MiB and three models above that of a process that has imported PyTorch, at rest and at any time
since the start, and at rest at most 1 % of a core. At rest is an
edge whose local steps are over and that waits for its neighbours' vectors; it is looked at several times, and the most
memory counts, of the process itself and of the files that it maps.
The namespaces end with this script. Where it may not make any, it says so and ends with code 77.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import _edge_cnn
import _edge_digits
import psutil
from _edge_trio import BUDGET, RATE, WINDOW_S, Home, Loopback, Three, Trio, Work, most_in_a_window, watched
from _processes import Resident, bare, most_resident, resident
from common import MISSED, SKIPPED, Row, usual_parser
from netns import enter

from samovar.peers.settings.link_text import parse_rate
from samovar.protocols.budget import Budget

Figures = dict[str, tuple[float, float | None]]
"""What was found, each with its goal, which is an upper bound."""
SPARE_BYTES, IDLE_CPU, IDLE_S, SAMPLES, FEW = 64 << 20, 0.01, 4.0, 16, 12
SETTLE_S, LOOKS, LOOK_S = 5.0, 40, 0.025
"""How long the local steps of an edge may take before it waits. It waits when all its threads sleep at so many looks
one after another, so many seconds apart."""
FRAME_BYTES = 1024
"""What a chunk takes beside its payload, at most: the headers of its message and of its packets."""

DIGITS = Work("digits", Path(_edge_digits.__file__), ("--period", "16"), 30, 4 * 4810)
CNN = Work(
    "CNN of 1.6 M parameters", Path(_edge_cnn.__file__),
    ("--period", "16", "--algorithm", "choco", "--codec", "top_k:0.01"), 6,
    4 * sum(parameter.numel() for parameter in _edge_cnn.model().parameters()),
)  # fmt: skip


def listeners(pid: int) -> int:
    """Sockets that listen at an address other than the loopback's, in the namespace of a process."""
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(row[3] == "0A" and not row[1].startswith("0100007F") for row in rows)


class Rest(NamedTuple):
    """An edge that waits for the hub: the share of a core that it takes, and the most memory that was resident."""

    share: float
    held: Resident


def sleeps(pid: int) -> bool:
    """Whether no thread of a process runs, or would run if a core were free."""
    try:
        states = [file.read_text().rpartition(")")[2].split()[0] for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):  # one has just ended
        return False
    return {*states} == {"S"}


def at_rest(trio: Trio, name: str) -> Rest:
    """Look at an edge that waits for the hub, which is suspended for less than a patience: the edge's local steps are
    over, its vector is published, and no mix is under way. It holds its model and all its estimates then."""
    hub, edge = psutil.Process(trio.pids["0"]), psutil.Process(trio.pids[name])
    stopped = [hub, *hub.children(recursive=True)]
    for process in stopped:
        process.suspend()
    ends, looks = time.monotonic() + SETTLE_S, 0
    while looks < LOOKS and time.monotonic() < ends:  # it still takes the local steps of its round
        looks = looks + 1 if sleeps(edge.pid) else 0
        time.sleep(LOOK_S)
    before, samples = sum(edge.cpu_times()[:2]), [resident(edge.pid)]
    for _ in range(SAMPLES):
        time.sleep(IDLE_S / SAMPLES)
        samples.append(resident(edge.pid))
    share = (sum(edge.cpu_times()[:2]) - before) / IDLE_S
    for process in stopped:
        process.resume()
    return Rest(share, max(samples))


def rest_figures(trio: Trio, work: Work) -> Figures:
    """What is found of the edges at rest, beside a bare process that begins then: both map the same files."""
    rests, beside = [at_rest(trio, name) for name in trio.edges], bare()
    held, most = max(rest.held for rest in rests), max(most_resident(trio.pids[name]) for name in trio.edges)
    return {
        "bytes resident at most above PyTorch's": (most - beside.all, SPARE_BYTES + 3 * work.model_bytes),
        "bytes resident at rest above PyTorch's": (held.all - beside.all, SPARE_BYTES + 3 * work.model_bytes),
        "of these not pages of files": (held.own - beside.own, None),
        "share of a core at rest": (statistics.median(rest.share for rest in rests), IDLE_CPU),
    }


def rest_alone(home: Home, work: Work) -> list[Row]:
    """The figures at rest alone, after few mixes."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ends:
        trio = Trio(home, work, Path(folder))
        ends.callback(trio.end)
        began = time.monotonic()
        for name in trio.edges:
            trio.until(partial(trio.has_mixed, name, FEW), f"{FEW} mixes of {name}")
        return rows_of(work, time.monotonic() - began, rest_figures(trio, work))


def rows_of(work: Work, took_s: float, found: Figures) -> list[Row]:
    return [
        {"work": f"{work.name}: {what}", "system": "samovar", "median_s": took_s, "ratio": None, "goal": goal,
         "figure": figure}
        for what, (figure, goal) in found.items()
    ]  # fmt: skip


def measured(town: Three, work: Work, suspended_s: float) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ends:
        trio = Trio(town, work, Path(folder))
        ends.callback(trio.end)
        began = time.monotonic()
        edges = {name: trio.pids[name] for name in trio.edges}
        with watched(edges) as traffic:
            for name in edges:
                trio.until(partial(trio.has_mixed, name, work.mixes), f"{work.mixes} mixes of {name}")
        took_s = time.monotonic() - began
        listening = max(map(listeners, edges.values()))
        lost = trio.lost()
        rest = rest_figures(trio, work)
        accuracy = [row["metrics"]["accuracy"] for row in trio.rows("0", "exchange") if row["metrics"]][-1]
        resumed_s = suspend(trio, suspended_s) if suspended_s else None
        lost += [line for line in trio.lost() if "edge1" not in line and line not in lost]
    limit = parse_rate(BUDGET) * WINDOW_S + (Budget(parse_rate(BUDGET), None, 0).chunk_bytes or 0) + FRAME_BYTES
    found: Figures = {
        "bytes up in a second, at most": (
            max(most_in_a_window(one.times_s, one.up) for one in traffic.values()), limit,
        ),
        "bytes down in a second, at most": (
            max(most_in_a_window(one.times_s, one.down) for one in traffic.values()), limit,
        ),
        "peers lost": (len(lost), 0),
        "ports open to the network": (listening, 0),
        **rest,
        "accuracy": (accuracy, None),
    }  # fmt: skip
    if resumed_s is not None:
        found["seconds until it mixes again"] = (resumed_s, None)
    for line in lost:
        print(f"  {line}", file=sys.stderr)
    return rows_of(work, took_s, found)


def suspend(trio: Trio, for_s: float) -> float:
    """Stop the first edge for so long. Returns the seconds until it has mixed with another peer again."""
    name = trio.edges[0]
    before, process = trio.mixes(name, 2), psutil.Process(trio.pids[name])
    process.suspend()
    time.sleep(for_s)
    process.resume()
    began = time.monotonic()
    trio.until(lambda: trio.mixes(name, 2) >= before + 2, f"mixes of {name} after its suspension")
    return time.monotonic() - began


def main() -> int:
    parser = usual_parser(__doc__)
    parser.add_argument("--rest", action="store_true", help="only memory and share of a core at rest")
    parser.add_argument("--loopback", action="store_true", help="these on the loopback, without namespaces")
    options = parser.parse_args()
    if not options.loopback and (why := enter()):
        print(f"skipped: no network namespaces can be made here: {why}", file=sys.stderr)
        return SKIPPED
    rows, works = list[Row](), (DIGITS,) if options.quick else (DIGITS, CNN)
    with ExitStack() as ends:
        home = Loopback() if options.loopback else Three(ends)
        for work in works:
            if isinstance(home, Loopback) or options.rest:
                rows += rest_alone(home, work)
            else:
                rows += measured(home, work, 0.0 if work is CNN else 10.0 if options.quick else 60.0)
    links = "the loopback" if options.loopback else f"links of {RATE}"
    print(f"two edges on {links}, budget {home.budget}; {os.cpu_count()} cores")
    for row in rows:
        goal = "" if row["goal"] is None else f"  at most {row['goal']:g}"
        print(f"{row['work']:<64} {row['figure']:>14,.4g}{goal}")
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    short = [row for row in rows if row["goal"] is not None and row["figure"] > row["goal"]]
    return MISSED if short else 0


if __name__ == "__main__":
    sys.exit(main())
