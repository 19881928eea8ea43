"""A mix of real processes on this machine: ours on each of its ways beside Gloo and Decent-DP, interleaved.

    python benchmarks/gossip.py [--peers 4] [--size 4KiB,1MiB,64MiB] [--against gloo,decent-dp]
                                [--link 100mbit,1gbit] [--turns 9] [--quick] [--json FILE]

Each peer mixes with both its neighbours in a ring, by D-PSGD. A time is from the peer's tensor to the mixed one, on the
peer that takes longest; every result is checked. Ours is the exchange of `--protocol gossip` and the mix, with all
checks: `memory`, which peers on one machine share; `TCP`, unencrypted as the rivals; `CURVE`, encrypted. Gloo: isend
and irecv of `torch.distributed`, and the sum. Decent-DP is installed on first use, in an environment of its own; its
time is that of a step, less the computation, over several steps, as it overlaps them; in a step a peer mixes with one
neighbour only. The ratio is the rival's time over ours, turn by turn. The goals are those of two idle cores.

A last row is of whole rounds of the conversation, empty ones: 650 parameters over CURVE.

With `--link` each peer is in a network namespace of its own, and the kernel (`tc ... tbf`, Reno) holds what it sends
and receives to that rate: 64 MiB, unless said otherwise, over TCP and CURVE. The bound is what it takes to send the
vector twice at that rate. It knows nothing of packets' headers, which take 4.4 %, nor of the 20 ms worth of data that
an idle link may send at once.
"""

from __future__ import annotations

import statistics
import sys
from contextlib import ExitStack

from _company import LINK_WAYS, MIB, Company, Work, below_bound, compared, place_of
from _environments import DECENT_DP
from _mixes import DecentDP, GlooMixes, OurMixes, OurRounds
from _systems import System
from common import MISSED, SKIPPED, Row, against_options, missed, show
from netns import enter, host

from samovar.peers.settings.link_text import parse_rate, parse_size

WAYS = ("memory", "TCP", "CURVE")
GOALS: dict[tuple[str, str, int], float] = {
    ("memory", "gloo", 4096): 3.0,
    ("memory", "gloo", MIB): 4.0,
    ("memory", "gloo", 64 * MIB): 4.0,
    ("memory", "decent-dp", 64 * MIB): 1.8,
    ("TCP", "gloo", 4096): 1.2,
    ("TCP", "gloo", MIB): 1.2,
    ("TCP", "gloo", 64 * MIB): 1.0,
}
"""By our way, the rival and bytes, with 4 peers: how much longer the rival is to take."""
RIVALS = ("gloo", "decent-dp")
EMPTY, EMPTY_PARAMETERS, EMPTY_GOAL_S = "CURVE, rounds", 650, 0.005


def system_of(way: str, work: Work, index: int) -> System:
    if way == "gloo":
        return GlooMixes(index, work.peers, work.store)
    if way == "decent-dp":
        return DecentDP(index, work.peers, work.store)
    if way == EMPTY:
        return OurRounds("CURVE", index, work.peers, "127.0.0.1")
    return OurMixes(way, index, work.peers, host(index) if work.rate else "127.0.0.1")


def empty_round(company: Company, peers: int, turns: int) -> Row:
    times = company.measure(4 * EMPTY_PARAMETERS, [EMPTY], 3 * turns)[EMPTY]
    return {
        "work": f"empty round, {EMPTY_PARAMETERS} parameters, {peers} peers",
        "system": "samovar, CURVE",
        "median_s": statistics.median(times),
        "ratio": None,
        "goal": None,
        "p99_s": statistics.quantiles(times, n=100)[98],
        "goal_median_s": EMPTY_GOAL_S,
    }


def main() -> int:
    options = against_options(__doc__, RIVALS, quick=("4", "4KiB,1MiB,64MiB", 3), whole=("4", "4KiB,1MiB,64MiB", 9))
    rivals = [rival for rival in options.against.split(",") if rival]
    if "decent-dp" in rivals and (why_not := DECENT_DP.install()):
        print(f"without decent-dp, which cannot be installed here: {why_not}", file=sys.stderr)
        rivals.remove("decent-dp")
        sys.argv += ["--against", ",".join(rivals)]  # enter() starts this script again
    if options.link and (why_not := enter()):
        print(f"network namespaces with shaped links cannot be made here: {why_not}", file=sys.stderr)
        return SKIPPED
    ways, rows = [*(LINK_WAYS if options.link else WAYS), *rivals], list[Row]()
    also = [] if options.link else [EMPTY]
    for peers in map(int, options.peers.split(",")):
        with ExitStack() as ends:
            place = place_of(ends, peers, system_of, linked=bool(options.link))
            for rate in options.link.split(","):
                company = Company(place, peers, [*ways, *also], rate)
                for size in options.size.split(","):
                    nbytes = int(parse_size(size))
                    times = company.measure(nbytes, ways, options.turns)
                    goals = {key[:2]: goal for key, goal in GOALS.items() if (4, key[2]) == (peers, nbytes)}
                    bound_s = 2 * nbytes / parse_rate(rate) if rate else None
                    rows += compared(f"mix with 2 of {peers} peers, {size}", rate, times, goals, bound_s)
                if not rate:
                    rows.append(empty_round(company, peers, options.turns))
                company.part()
    show(rows, options.json)
    slow = below_bound(rows) if options.link else any(row["median_s"] > row.get("goal_median_s", 1e9) for row in rows)
    return missed([row for row in rows if row["goal"] is not None]) or (MISSED if slow else 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
