"""Push and pull of real processes on this machine: ours on each of its ways beside torch RPC, interleaved; rows of a
table beside a server of torch RPC that holds a dict of rows; and the resident memory of a server.

    python benchmarks/parameter_server.py [--only push-pull,rows,memory] [--peers 3] [--servers 1,2,4]
                                          [--size 4KiB,1MiB,16MiB] [--rows 1000] [--against torch_rpc] [--turns 5]
                                          [--quick] [--json FILE]

Each worker (`--peers` of them) pushes a vector to the servers, which add it, and pulls the values, at the same time as
the others. A time is that of the slowest worker; every pulled value is checked. Ours is `--protocol parameter_server`
with one copy of each range and with all checks: `memory`, shared by peers on one machine, as usual; `TCP`, unencrypted
as the rival; `CURVE`, encrypted. The rival is a
call of `torch.distributed.rpc` (TensorPipe over TCP) that adds a vector to the server's and returns it. The ratio is
the rival's time over ours, turn by turn. The goals are those of two idle cores.

rows: of a table of 1,000,000 rows of 64 elements each worker pushes changes of `--rows` random rows and gets their
values. memory: the most resident memory of a server above that of a process that has imported PyTorch, over the model's
bytes (64 MiB, one copy), with 2, 8 and 32 workers that push at the same time and pull at the same time, by its server
function, in shared memory and over TCP; with `add` at most 3 times the model. Shared memory counts in full.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from functools import partial
from itertools import product

from _company import MIB, Company, Work, compared, place_of
from _pushes import OurPushes, TorchRPC
from _row_pushes import TABLE, OurRows, RowsRPC
from _server_memory import server_bytes
from _systems import System
from common import MISSED, Row, grid_parser, missed, show, with_usual

from samovar.peers.settings.link_text import parse_size

WAYS = ("memory", "TCP", "CURVE")
GOALS = {4096: 3.0, MIB: 2.0, 16 * MIB: 1.5}
"""By bytes, with 3 workers and a server: how much longer the rival is to take than ours over TCP."""
RIVAL = "torch_rpc"
PARTS = ("push-pull", "rows", "memory")
MODEL_BYTES, MEMORY_GOAL = 64 * MIB, 3.0
"""The model of a server whose memory is measured, and how many times its bytes the server may take, with `add`."""
FUNCTIONS = ("add", "adagrad:0.01", "adam:0.001")


def system_of(servers: int, rows: bool, way: str, work: Work, index: int) -> System:
    if way == RIVAL:
        return (RowsRPC if rows else TorchRPC)(index, servers, work.peers, work.store)
    return (OurRows if rows else OurPushes)(way, index, servers, work.peers, "127.0.0.1")


def company_of(ends: ExitStack, servers: int, workers: int, ways: list[str], *, rows: bool = False) -> Company:
    place = place_of(ends, servers + workers, partial(system_of, servers, rows), linked=False)
    return Company(place, servers + workers, ways, "")


def pushes(servers: int, workers: int, sizes: list[str], ways: list[str], turns: int) -> list[Row]:
    rows = list[Row]()
    with ExitStack() as ends:
        company = company_of(ends, servers, workers, ways)
        for size in sizes:
            nbytes = int(parse_size(size))
            goal = GOALS.get(nbytes) if (servers, workers) == (1, 3) else None
            goals = {} if goal is None else {("TCP", RIVAL): goal}
            times = company.measure(nbytes, ways, turns)
            rows += compared(f"push-pull, {workers} workers, {servers} servers, {size}", "", times, goals, None)
        company.part()
    return rows


def rows_of_table(servers: int, workers: int, count: int, ways: list[str], turns: int) -> list[Row]:
    with ExitStack() as ends:
        company = company_of(ends, servers, workers, ways, rows=True)
        times = company.measure(4 * count, ways, turns)
        company.part()
    work = f"{count} rows of {TABLE.rows} x {TABLE.width}, {workers} workers, {servers} servers"
    rows = compared(work, "", times, {}, None)
    for row in rows:
        row["rows_per_s"] = workers * count / row["median_s"]
        print(f"{row['work']}, {row['system']}: {row['rows_per_s']:,.0f} rows/s")
    return rows


def memory(workers: list[int], functions: list[str]) -> list[Row]:
    rows = list[Row]()
    for function, count, way in product(functions, workers, ("memory", "TCP")):
        times = server_bytes(way, function, MODEL_BYTES, count) / MODEL_BYTES
        goal, held = MEMORY_GOAL if function == "add" else None, f"{function}, {count} workers, {way}"
        rows.append({"memory": held, "times_the_model": times, "goal": goal})
        most = "" if goal is None else f", at most {goal:g}"
        print(f"memory of a server, {held}: {times:.2f} times the model{most}", flush=True)
    return rows


def main() -> int:
    parser = grid_parser(__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="what to measure")
    parser.add_argument("--servers", help="numbers of servers")
    parser.add_argument("--rows", type=int, default=1000, help="rows of a push")
    parser.add_argument("--against", default=RIVAL, choices=[RIVAL, ""], help="the rival")
    options = with_usual(parser.parse_args(), "3", "4KiB,1MiB,16MiB", 5)
    if unknown := {*options.only.split(",")} - {*PARTS}:
        parser.error(f"--only: there is no {unknown.pop()!r}: there are {', '.join(PARTS)}")
    ways, rows, held = [*WAYS, *filter(None, [options.against])], list[Row](), list[Row]()
    parts, turns = options.only.split(","), options.turns
    for servers in map(int, (options.servers or ("1" if options.quick else "1,2,4")).split(",")):
        for workers in map(int, options.peers.split(",")):
            if "push-pull" in parts:
                rows += pushes(servers, workers, options.size.split(","), ways, turns)
            if "rows" in parts:
                rows += rows_of_table(servers, workers, options.rows, ways, turns)
    if "memory" in parts:
        held = memory([2] if options.quick else [2, 8, 32], ["add"] if options.quick else [*FUNCTIONS])
    if rows:
        show(rows, None)
    if options.json is not None:
        options.json.write_text(json.dumps([*rows, *held], indent=1) + "\n", encoding="utf-8")
    large = [row for row in held if row["goal"] is not None and row["times_the_model"] > row["goal"]]
    for row in large:
        print(f"above its goal: {row['memory']}: {row['times_the_model']:.2f} > {row['goal']:g}", file=sys.stderr)
    return MISSED if large else missed([row for row in rows if row["goal"] is not None])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
