"""Push and pull of real processes on this machine: ours on each of its ways beside torch RPC, interleaved.

    python benchmarks/parameter_server.py [--peers 3] [--servers 1,2,4] [--size 4KiB,1MiB,16MiB] [--against torch_rpc]
                                          [--turns 5] [--quick] [--json FILE]

Each worker (`--peers` of them) pushes a vector to the servers, which add it, and pulls the values, at the same time as
the others. A time is that of the slowest worker; every pulled value is checked. Ours is `--protocol parameter_server`
with one copy of each range and with all checks: `TCP`, unencrypted as the rival; `CURVE`, encrypted. The rival is a
call of `torch.distributed.rpc` (TensorPipe over TCP) that adds a vector to the server's and returns it. The ratio is
the rival's time over ours, turn by turn. The goals are those of two idle cores.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial

from _company import MIB, Company, Work, compared, place_of
from _pushes import OurPushes, TorchRPC
from _systems import System
from common import Row, grid_parser, missed, show, with_usual

from samovar.peers.settings.link_text import parse_size

WAYS = ("TCP", "CURVE")
GOALS = {4096: 3.0, MIB: 2.0, 16 * MIB: 1.5}
"""By bytes, with 3 workers and a server: how much longer the rival is to take than ours over TCP."""
RIVAL = "torch_rpc"


def system_of(servers: int, way: str, work: Work, index: int) -> System:
    if way == RIVAL:
        return TorchRPC(index, servers, work.peers, work.store)
    return OurPushes(way, index, servers, work.peers, "127.0.0.1")


def main() -> int:
    parser = grid_parser(__doc__)
    parser.add_argument("--servers", help="numbers of servers")
    parser.add_argument("--against", default=RIVAL, choices=[RIVAL, ""], help="the rival")
    options = with_usual(parser.parse_args(), "3", "4KiB,1MiB,16MiB", 5)
    ways, rows = [*WAYS, *filter(None, [options.against])], list[Row]()
    for servers in map(int, (options.servers or ("1" if options.quick else "1,2,4")).split(",")):
        for workers in map(int, options.peers.split(",")):
            with ExitStack() as ends:
                company = Company(
                    place_of(ends, servers + workers, partial(system_of, servers), linked=False),
                    servers + workers, ways, "",
                )  # fmt: skip
                for size in options.size.split(","):
                    nbytes = int(parse_size(size))
                    times = company.measure(nbytes, ways, options.turns)
                    goal = GOALS.get(nbytes) if (servers, workers) == (1, 3) else None
                    goals = {} if goal is None else {("TCP", RIVAL): goal}
                    rows += compared(f"push-pull, {workers} workers, {servers} servers, {size}", "", times, goals, None)
                company.part()
    show(rows, options.json)
    return missed([row for row in rows if row["goal"] is not None])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
