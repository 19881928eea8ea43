"""``samovar plan --protocol parameter-server``: predicts how long an exchange takes with so many servers on given
links, and how many servers pay.

Model: N workers are in step, and each pushes all ranges and reads all of them in the same exchange (`sync`, `bsp`).

    to   = max(M / up of a worker,   most bytes into a server / its down)
    from = max(M / down of a worker, most bytes out of a server / its up)
    seconds = (to_1 + from) / n + fixed + (n - 1) max(to / n, from / n, cycle / 2)
    cycle   = (to + from_1 + (k - 1) from) / n + fixed

M are the bytes of the model, k copies. n is the number of messages in which a worker exchanges the ranges of the
busiest server; it has two of them under way with each. `to_1`, `from_1`: the same where this worker alone uses a
server's link: answers come to one worker after another, so they do not push all at once. `fixed`: the latencies there,
back, and along the chain of copies. Into a server come N times the bytes of the ranges that it heads, and once those of
which it holds a later copy; as many go out, and each range once to the next copy. Ranges are placed as in a run
(`placement`), so the busiest server has more than 1/S of them.

With `async` each push travels along the chain by itself, and a worker pulls from the tails of chains while its last
push is on its way. So a turn takes what the links need for all these bytes, or the pull from a server if that is more:

    seconds = max(bytes of a link / its rate + 2 latency,  alone - own + R_N)
    answered_i = max(asked_i + wait_i + latency, answered_(i-1) - latency) + from_1 / n + latency,  alone = answered_n
    asked_i    = answered_(i-2):  two questions of a pull are under way,  0 for the first two
    wait_i     = open / up of a worker for the first two, later that - 2 latency, and at most until the push is over
    R_k        = own (1 + (k - 1) R_(k-1) / (alone - own + R_(k-1))),  R_1 = own

Questions leave behind the messages of the push (`open`: two for each server). It takes M / up of a worker, or as long
as its messages to a server take, two at a time, there, along the chain and back. `own` are the seconds that the answers
to one worker take on a server's link; the last line has those of the others that are in their way (mean value analysis
of a closed queue: Reiser & Lavenberg, J. ACM 27, 1980).

`tests/sims/test_plan_of_servers.py` compares both with simulations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median_low
from typing import NamedTuple

from rich.table import Column

from ...aggregation.schedules.cost import Links
from ...aggregation.vector import Part
from ...protocols.link.congestion import WINDOW_BYTES_MAX, suiting_chunk
from ...protocols.parameter_server.placement import Placement, ranges_of
from ..records.units import bytes_text, count_text, seconds_text
from .fitting import Folded

MOST = 64
"""The most servers that are planned."""
ELEMENT_BYTES = 4
_OPEN = 2
"""Questions that a worker has open with each server."""
_DRAWS = 5
"""Placements whose busiest servers are compared: the middle one counts, as names of peers, by which ranges are placed,
are random."""
_FEW = 32
"""A model of fewer ranges than these is not spread evenly over some servers."""
_HELPS = 0.95
"""More servers help if an exchange takes at most this share of the time."""


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """The predicted cost with `servers` servers. `copies`: servers that hold each value; `seconds`: of one exchange of
    all workers; `bound`: what these mostly wait for, "servers", "workers" or "latency". Of the busiest server: `share`:
    the share of all ranges that it heads; `server_bytes`: bytes that it sends in an exchange; `memory_bytes`: bytes of
    its values and sums, without the state of a server function."""

    servers: int
    copies: int
    seconds: float
    bound: str
    share: float
    server_bytes: int
    memory_bytes: int


class _Load(NamedTuple):
    """The elements of which one server is the head, of which it holds a copy, which it sends on to a next copy, and of
    which it is the tail."""

    heads: int
    held: int
    forwards: int
    tails: int


class _Behind(NamedTuple):
    """What the questions of a pull wait behind on the worker's link, in seconds of that link: `open_s`: the messages of
    its push that are open when the pull begins; `push_s`: how long the push goes on; `one_s`: one of its messages."""

    open_s: float
    push_s: float
    one_s: float

    def wait_s(self, asked_s: float, far_s: float) -> float:
        """How long a question waits that is asked so long after the beginning of the pull. `far_s`: see `_Turn`."""
        later_s = max(self.one_s, self.open_s - far_s)  # the other messages are on their way or answered
        return self.open_s if asked_s == 0.0 else min(later_s, max(0.0, self.push_s - asked_s))


class _Turn(NamedTuple):
    """A turn of each of so many `workers` that wait for nobody. `vector_s`: seconds in which a worker's link takes a
    model; `up_Bps`: of a server's link; `far_s`: seconds of an empty question and its answer."""

    workers: int
    message_bytes: int
    vector_s: float
    up_Bps: float
    far_s: float
    behind: _Behind


def planned(
    servers: int, copies: int, workers: Links, of_servers: Links, size: int, names: Sequence[Sequence[str]] = ()
) -> ServerPlan:
    """The plan with `servers` servers for a model of `size` bytes, where workers wait for each other (`bsp`).
    `workers`: the links of all workers; `of_servers`: links of servers, of which the first `servers` are taken.
    `names`: the servers' names in several runs, which decide where ranges are placed; the plan is for the placement
    whose busiest server has the median load; empty: five placements of made-up names."""
    copies, parts = min(copies, servers), _parts(size)
    count = parts[-1].stop
    load = median_low(max(loads) for loads in _loads(servers, copies, parts, names))
    up_Bps, down_Bps = min(of_servers.up_Bps[:servers]), min(of_servers.down_Bps[:servers])
    message_bytes = _message_bytes(parts, min(*workers.up_Bps, down_Bps / workers.world))
    messages = max(1, math.ceil(ELEMENT_BYTES * load.heads / message_bytes))
    into, out = (
        ELEMENT_BYTES * (workers.world * load.heads + load.held - load.heads),
        ELEMENT_BYTES * (workers.world * load.heads + load.forwards),
    )
    at_server_s = into / down_Bps, out / up_Bps
    at_worker_s = size / min(workers.up_Bps), size / min(workers.down_Bps)
    there_s, back_s = map(max, zip(at_server_s, at_worker_s, strict=True))
    far_s, between_s = max(*workers.alpha_s, *of_servers.alpha_s[:servers]), max(of_servers.alpha_s[:servers])
    hop_s = 2 * between_s + 2 * of_servers.overhead_s
    fixed_s = 2 * far_s + 2 * workers.overhead_s + (copies - 1) * hop_s
    copy_s = (copies - 1) * min(message_bytes, size) / up_Bps
    alone_s = [max(worker, server / workers.world) for worker, server in zip(at_worker_s, at_server_s, strict=True)]
    first_s = (alone_s[0] + back_s) / messages + copy_s + fixed_s
    cycle_s = (there_s + alone_s[1] + (copies - 1) * back_s) / messages + fixed_s
    seconds = first_s + (messages - 1) * max(cycle_s / _OPEN, there_s / messages, back_s / messages)
    latency = fixed_s > (there_s + back_s) / messages
    bound = "latency" if latency else "servers" if max(at_server_s) > 1.05 * max(at_worker_s) else "workers"
    held = ELEMENT_BYTES * (load.held + load.heads)
    return ServerPlan(servers, copies, seconds, bound, load.heads / count, out, held)


def planned_async(
    servers: int, copies: int, workers: Links, of_servers: Links, size: int, names: Sequence[Sequence[str]] = ()
) -> ServerPlan:
    """The plan for workers that wait for nobody (`async`), from the arguments of `planned`. `seconds`: of a worker's
    turn without its local steps, where all workers take turns at the same pace."""
    copies, parts, many = min(copies, servers), _parts(size), workers.world
    up_Bps, down_Bps = min(of_servers.up_Bps[:servers]), min(of_servers.down_Bps[:servers])

    def at_server_s(load: _Load) -> float:
        return ELEMENT_BYTES * many * max(load.held / down_Bps, (load.tails + load.forwards) / up_Bps)

    def busiest_s(loads: Sequence[_Load]) -> float:
        return max(map(at_server_s, loads))

    placements = sorted(_loads(servers, copies, parts, names), key=busiest_s)
    loads = placements[(len(placements) - 1) // 2]
    load = max(loads, key=at_server_s)
    worker_up_Bps, far_s = min(workers.up_Bps), max(*workers.alpha_s, *of_servers.alpha_s[:servers])
    at_worker_s = max(size / worker_up_Bps, size / min(workers.down_Bps))
    far_s = 2 * far_s + 2 * workers.overhead_s
    hop_s = 2 * max(of_servers.alpha_s[:servers]) + 2 * of_servers.overhead_s
    message_bytes = _message_bytes(parts, min(*workers.down_Bps, up_Bps / many))
    open_bytes, push_s = 0, size / worker_up_Bps
    for one in loads:
        own_bytes = min(message_bytes, ELEMENT_BYTES * one.heads)
        trip_s = far_s + own_bytes / worker_up_Bps + (copies - 1) * (hop_s + own_bytes / up_Bps)
        push_s = max(push_s, math.ceil(ELEMENT_BYTES * one.heads / message_bytes) * trip_s / _OPEN)
        open_bytes += min(_OPEN * message_bytes, ELEMENT_BYTES * one.heads)
    behind = _Behind(open_bytes / worker_up_Bps, push_s, message_bytes / worker_up_Bps)
    turn = _Turn(many, message_bytes, size / min(workers.down_Bps), up_Bps, far_s, behind)
    pull_s, one_s = max(_pull_s(one, turn) for one in loads)
    full_s = max(at_worker_s, at_server_s(load)) + far_s
    latency = pull_s > full_s and far_s > one_s
    bound = "latency" if latency else "servers" if at_server_s(load) > 1.05 * at_worker_s else "workers"
    out, held = ELEMENT_BYTES * many * (load.tails + load.forwards), ELEMENT_BYTES * (load.held + load.heads)
    return ServerPlan(servers, copies, max(full_s, pull_s), bound, load.heads / parts[-1].stop, out, held)


def _pull_s(load: _Load, turn: _Turn) -> tuple[float, float]:
    """Seconds of a pull from the server with that load, and of one of its messages."""
    messages = max(1, math.ceil(ELEMENT_BYTES * load.tails / turn.message_bytes))
    own_s, far_s = ELEMENT_BYTES * load.tails / turn.up_Bps, turn.far_s
    one_s = max(turn.vector_s, own_s) / messages
    sent_s, answered_s = 0.0, list[float]()
    for at in range(messages):
        asked_s = answered_s[at - _OPEN] if at >= _OPEN else 0.0
        sent_s = max(asked_s + turn.behind.wait_s(asked_s, far_s) + far_s / 2, sent_s) + one_s
        answered_s.append(sent_s + far_s / 2)
    elsewhere_s, shared_s, others = answered_s[-1] - own_s, own_s, 0.0
    for workers in range(1, turn.workers + 1):
        shared_s = own_s * (1 + others)
        others = workers * shared_s / (elsewhere_s + shared_s)
    return elsewhere_s + shared_s, one_s


def all_planned(copies: int, workers: Links, of_servers: Links, size: int, *, in_step: bool = True) -> list[ServerPlan]:
    """The plans for 1, 2, 4, ... servers, up to the number of links in `of_servers`, for a model of `size` bytes in
    `copies` copies, at most one a server. `in_step`: workers wait for each other (`planned`); False: they wait for
    nobody (`planned_async`)."""
    counts = [2**power for power in range(of_servers.world.bit_length())]
    plan = planned if in_step else planned_async
    return [plan(count, copies, workers, of_servers, size) for count in counts]


def enough(plans: Sequence[ServerPlan]) -> ServerPlan:
    """The first of `plans` that more servers do not make notably faster: the fastest plan takes at least 95 % of its
    time."""
    least = min(plan.seconds for plan in plans)
    return next(plan for plan in plans if least >= _HELPS * plan.seconds)


def _parts(size: int) -> tuple[Part, ...]:
    """The ranges of a model of `size` bytes."""
    count = max(1, size // ELEMENT_BYTES)
    return ranges_of(count, count, 1)


def _message_bytes(parts: Sequence[Part], rate_Bps: float) -> int:
    """The bytes of a message about ranges, on a link of that rate."""
    range_bytes = ELEMENT_BYTES * math.ceil(parts[-1].stop / len(parts))
    chunk_bytes = suiting_chunk(min(rate_Bps / 2, WINDOW_BYTES_MAX), rate_Bps)
    return range_bytes * max(1, chunk_bytes // range_bytes)


def _loads(servers: int, copies: int, parts: Sequence[Part], names: Sequence[Sequence[str]]) -> Iterator[list[_Load]]:
    """The loads of all servers in each of some placements. `names`: see `planned`."""
    for those in names or [[f"{draw} {server}" for server in range(servers)] for draw in range(_DRAWS)]:
        placement = Placement(tuple(those), copies)
        loads = {server: [0, 0, 0, 0] for server in placement.servers}
        for number, part in enumerate(parts):
            chain, size = placement.chain(number), part.stop - part.start
            loads[chain[0]][0] += size
            loads[chain[-1]][3] += size
            for place, server in enumerate(chain):
                loads[server][1] += size
                loads[server][2] += size * (place + 1 < len(chain))
        yield [_Load(*load) for load in loads.values()]


def notes(plans: Sequence[ServerPlan], size: int) -> list[str]:
    """Remarks for the user, below the table: how many servers help and what then bounds an exchange, what `memory`
    counts, and, for a model of few ranges, how to get more. `size`: bytes of the model."""
    best, one = enough(plans), plans[0]
    if best.servers == one.servers:
        told = "more servers than one do not make an exchange faster"
    else:
        times = f"{one.seconds / best.seconds:.1f} times as fast as one"
        told = f"more servers than {best.servers} do not help, {best.servers} are {times}"
    ranges = len(_parts(size))
    few = [f"the model is {count_text(ranges, 'range')}: --ranges N cuts it into more"] if ranges < _FEW else []
    return [
        *few,
        f"{told}: what is left is bound by {best.bound}",
        "memory: values and sums with --server-update add; momentum and adagrad take the values once more, adam twice",
    ]


def as_json(plans: Sequence[ServerPlan]) -> dict[str, object]:
    """The plans as plain values, and the number of servers in the plan that is `enough`."""
    return {"enough": enough(plans).servers, "plans": [asdict(plan) for plan in plans]}


def table(plans: Sequence[ServerPlan]) -> Folded:
    """The table of these plans, in their order; that of `enough` is marked."""
    heads = ("an exchange", "bound by", "of all ranges", "sent by a server", "memory of a server")
    numbers = [Column(head, justify="right", no_wrap=True) for head in heads]
    made = Folded(Column(""), Column("servers", justify="right", no_wrap=True), *numbers, repeated=2)
    best = enough(plans)
    for plan in plans:
        cells = (seconds_text(plan.seconds), plan.bound, f"{plan.share:.0%}", bytes_text(plan.server_bytes))
        marked = plan is best
        made.add_row(
            "→" if marked else "",
            f"{plan.servers}",
            *cells,
            bytes_text(plan.memory_bytes),
            style="bold" if marked else "",
        )
    return made
