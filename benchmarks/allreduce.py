"""Allreduce of real processes on this machine: ours on each of its ways beside Gloo and Hivemind, interleaved.

    python benchmarks/allreduce.py [--peers 2,4,8] [--size 4KiB,1MiB,16MiB,64MiB] [--against gloo,hivemind]
                                   [--link 100mbit,1gbit] [--turns 9] [--quick] [--json FILE]

Ours: `memory`, which peers on one machine share, with the vectors in it, as gradients' buckets are; `copied`, the same
from tensors elsewhere; `TCP`, unencrypted as Gloo; `CURVE`, encrypted as Hivemind. A time is from the peer's tensor to
the committed result, on the peer that takes longest; every result is checked. The ratio is the rival's time over ours,
turn by turn. The goals are those of two idle cores.

With `--link` each peer is in a network namespace of its own, and the kernel (`tc ... tbf`, Reno) holds what it sends
and receives to that rate: 4 peers and 64 MiB, unless said otherwise, over TCP and CURVE. The bound is what p peers need
to send 2 (p - 1) / p times the vector at that rate. It knows nothing of packets' headers, which take 4.4 %, nor of the
20 ms worth of data that an idle link may send at once.

Hivemind averages, which costs it no more than to sum. It is installed on first use, in an environment of its own. Where
its mean is wrong, as when a peer of its came too late, that is told and measured anew.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack

from _company import LINK_WAYS, MIB, Company, Work, below_bound, compared, place_of
from _environments import HIVEMIND
from _sums import GlooSums, Hivemind, OurSums
from _systems import WAYS, System
from common import MISSED, SKIPPED, against_options, missed, show
from netns import enter, host

from samovar.peers.settings.link_text import parse_rate, parse_size

GOALS: dict[tuple[str, str, int, int], float] = {
    ("TCP", "gloo", 4, 4096): 3.0,
    ("TCP", "gloo", 4, MIB): 1.2,
    ("TCP", "gloo", 2, 64 * MIB): 1.0,
    ("TCP", "gloo", 4, 64 * MIB): 1.0,
    ("memory", "gloo", 4, 4096): 10.0,
    ("memory", "gloo", 4, MIB): 4.0,
    ("memory", "gloo", 2, 64 * MIB): 1.8,
    ("memory", "gloo", 4, 64 * MIB): 1.8,
    ("CURVE", "hivemind", 4, 64 * MIB): 3.0,
    ("CURVE", "hivemind", 4, MIB): 10.0,
}
"""By our way, the rival, peers and bytes: how much longer the rival is to take."""
RIVALS = ("gloo", "hivemind")


def system_of(way: str, work: Work, index: int) -> System:
    address = host(index) if work.rate else "127.0.0.1"
    if way == "gloo":
        return GlooSums(index, work.peers, work.store)
    if way == "hivemind":
        return Hivemind(index, work.peers, address)
    return OurSums(way, index, work.peers, address, apart=bool(work.rate))


def main() -> int:
    options = against_options(
        __doc__, RIVALS, quick=("4", "4KiB,1MiB,64MiB", 5), whole=("2,4,8", "4KiB,1MiB,16MiB,64MiB", 9)
    )
    rivals = [rival for rival in options.against.split(",") if rival]
    if "hivemind" in rivals and (why_not := HIVEMIND.install()):
        print(f"without hivemind, which cannot be installed here: {why_not}", file=sys.stderr)
        rivals.remove("hivemind")
        sys.argv += ["--against", ",".join(rivals)]  # enter() starts this script again
    if options.link and (why_not := enter()):
        print(f"network namespaces with shaped links cannot be made here: {why_not}", file=sys.stderr)
        return SKIPPED
    ways, rows = [*(LINK_WAYS if options.link else WAYS), *rivals], []
    for peers in map(int, options.peers.split(",")):
        with ExitStack() as ends:
            place = place_of(ends, peers, system_of, linked=bool(options.link))
            for rate in options.link.split(","):
                company = Company(place, peers, ways, rate)
                for size in options.size.split(","):
                    nbytes = int(parse_size(size))
                    times = company.measure(nbytes, ways, options.turns)
                    goals = {key[:2]: goal for key, goal in GOALS.items() if key[2:] == (peers, nbytes)}
                    bound_s = 2 * (peers - 1) / peers * nbytes / parse_rate(rate) if rate else None
                    rows += compared(f"allreduce, {peers} peers, {size}", rate, times, goals, bound_s)
                company.part()
    show(rows, options.json)
    slow = below_bound(rows) if options.link else False
    return missed([row for row in rows if row["goal"] is not None]) or (MISSED if slow else 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
