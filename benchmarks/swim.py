"""Membership at scale: how soon SWIM finds a failure, how seldom it suspects the living, and what it costs a peer.

    python benchmarks/swim.py [--quick] [--train 300,1000] [--json FILE]

The state machines are those of real peers. They run on a lean network (`sims.world.lean_network`): a message is handed
over after 10 to 50 ms, a loose one is lost with a given probability, and no endpoints are in between, which for 10,000
peers would take too long. 100 peers know each other; with more each has links to six to eight others. Times are in
periods of a peer's probes.

    found      until the first probe of a failed peer has failed. Each of n peers probes a random one of the others in
               a period, so a given one is probed by nobody with (1 - 1/(n-1))^(n-1) = 1/e: on average it is probed
               after 1 / (1 - 1/e) = 1.58 periods, and at the latest after 2n - 1, or 2d - 1 of d neighbours, as each
               goes round. The probe itself takes one period more.
    known      from the declaration of its death, 3 periods later, until the last peer has heard of it: O(log n)
    suspects   of live peers, at a loss of 5 % of each message of a probe. It fails if the probe or its answer is lost,
               and on each of three detours one of four messages: (1 - 0.95^2) (1 - 0.95^4)^3 = 6.2e-4
    bytes      of a peer in a second on the wire, encrypted, for a period of one second

The last rows train: 40, 130, 300 and 1,000 peers (40 with --quick) train examples/digits.py by gossip on SWIM, in the
full simulation with its endpoints, links and frames, on one core. The 1,437 images are cut into 40 shards, so that a
peer has more than one or two, and the learning rate is 0.5, as only 160 local steps are taken. --train N,... has these
rows alone, with so many peers.
"""

from __future__ import annotations

import json
import math
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from common import MISSED, Row, usual_parser

from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import Task, load_task
from samovar.protocols.limits import WHOLE_PEERS_MAX
from samovar.protocols.swim.effects import DeclaredDead, HeardDead, Suspected
from samovar.protocols.swim.timing import Timing
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.world.crowd import Crowd
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

ROOT = Path(__file__).resolve().parents[1]
LINKS, LOSS, VICTIMS, APART_S = 6, 0.05, 6, 12.0
STEPS, PERIOD, SHARDS, LEARNING_RATE = 160, 16, 40, 0.5
GOAL_SUSPECTS, GOAL_TRAINED_S, GOAL_ACCURACY = 1e-3, 300.0, 0.9
EXPECTED = 1 / (1 - math.exp(-1))


def crowd_of(count: int, *, links: int | None) -> Crowd:
    """So many peers after they have come in, each through a random one of those before it, and have settled."""
    crowd = Crowd(count, timing=Timing(period_s=1.0), links=links, seed=1)
    crowd.kept = (Suspected, DeclaredDead, HeardDead)
    if links is None:
        crowd.acquaint()
        crowd.run(5.0)
        return crowd
    chance = random.Random(1)
    crowd.begin(crowd.peers[0])
    for index in range(1, count):
        crowd.network.at(20.0 * index / count, crowd.join, index, chance.randrange(index))
    crowd.run(40.0)
    return crowd


def at(crowd: Crowd, kind: type[Suspected | DeclaredDead | HeardDead], peer: str) -> list[float]:
    return [when_s for when_s, _, event in crowd.events if isinstance(event, kind) and event.peer == peer]


@dataclass
class Failures:
    """Times of some failures, in periods."""

    found: list[float]
    known: list[float]


def failures(crowd: Crowd) -> Failures:
    """Some peers end, one after the other. All others hear of each."""
    found, known = [], []
    for victim in range(1, 1 + VICTIMS):
        ended_s, peer = crowd.network.now_s, crowd.peers[victim].id
        crowd.events.clear()
        crowd.end(victim)
        crowd.run(ended_s + APART_S)
        declared_s, heard_s = at(crowd, DeclaredDead, peer), at(crowd, HeardDead, peer)
        live = sum(one.here for one in crowd.peers)
        heard = {who for _, who, event in crowd.events if isinstance(event, HeardDead | DeclaredDead)}
        if len(heard) < live:
            print(f"of {live} peers {len(heard)} have heard within {APART_S:g} periods", file=sys.stderr)
        found.append(min(at(crowd, Suspected, peer)) - ended_s)
        known.append(max(heard_s + declared_s) - min(declared_s))
    return Failures(found, known)


def quiet(crowd: Crowd, periods: float) -> tuple[float, float, int]:
    """Share of the probes that made a live peer a suspect, bytes of a peer a second, and live peers declared dead."""
    crowd.events.clear()
    probes, began_s = sum(peer.swim.detector.probes for peer in crowd.peers), crowd.network.now_s
    crowd.network.measured, crowd.network.sent_bytes = True, 0
    crowd.run(began_s + periods)
    crowd.network.measured = False
    probes = sum(peer.swim.detector.probes for peer in crowd.peers) - probes
    live = sum(peer.here for peer in crowd.peers)
    suspects = sum(isinstance(event, Suspected) for *_, event in crowd.events)
    dead = sum(isinstance(event, DeclaredDead) for *_, event in crowd.events)
    return suspects / probes, crowd.network.sent_bytes / live / periods, dead


def membership(count: int, links: int | None) -> Row:
    """One row of the table."""
    began = time.monotonic()
    crowd = crowd_of(count, links=links)
    _, idle_Bps, _ = quiet(crowd, 5.0)
    told = failures(crowd)
    degree = count - 1 if links is None else max(len(peer.swim.table) for peer in crowd.peers if peer.here)
    crowd.network.loss = LOSS
    share, lossy_Bps, dead = quiet(crowd, max(10.0, 60_000 / count))
    return {
        "work": f"{count:,} peers, {'each knows all' if links is None else f'{links} links each'}",
        "peers": count,
        "found_mean": statistics.mean(told.found),
        "found_max": max(told.found),
        "found_bound": 2 * degree,
        "known_mean": statistics.mean(told.known),
        "known_max": max(told.known),
        "log2_peers": math.log2(count),
        "suspects": share,
        "dead": dead,
        "idle_Bps": idle_Bps,
        "lossy_Bps": lossy_Bps,
        "wall_s": time.monotonic() - began,
    }


def shortcomings(rows: list[Row]) -> list[str]:
    """The goals that were missed."""
    short = []
    for row in rows:
        checks: dict[str, bool] = {
            "found": row["found_mean"] <= EXPECTED + 1.5 and row["found_max"] <= row["found_bound"],
            "known": row["known_max"] <= row["log2_peers"],
            "suspects": row["suspects"] < GOAL_SUSPECTS and row["dead"] == 0,
        }
        short += [f"{row['work']}: {name}" for name, well in checks.items() if not well]
    for column in ("idle_Bps", "lossy_Bps"):
        each = [row[column] for row in rows if "links" in row["work"]]
        if each and max(each) > 1.1 * min(each):
            short.append(f"{column} grow with the number of peers: {each}")
    return short


def digits() -> Task:
    """The example's task with fewer shards and another learning rate."""
    task = load_task(ROOT / "examples" / "digits.py")
    return replace(
        task,
        data=lambda part, parts: task.data(part % SHARDS, min(parts, SHARDS)),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=LEARNING_RATE),
    )


def trained(count: int) -> Row:
    """`count` peers train digits by gossip, in the full simulation."""
    torch.set_num_threads(1)
    settings = Settings(
        peers=count,
        protocol="gossip",
        membership=f"swim:{LINKS}",
        steps=STEPS,
        period=str(PERIOD),
        evaluate_every=10**6,  # each peer evaluates after its last mix
        device="cpu",
        threads=1,
    )
    began = time.monotonic()
    world = World(digits(), Scenario.plain(settings))
    world.log.judged = False
    simulated = run_virtual(world.run(), seed=settings.seed)
    accuracies = [life.result.metrics["accuracy"] for life in world.lives if life.result is not None]
    return {
        "work": f"{count:,} peers train digits",
        "peers": count,
        "wall_s": time.monotonic() - began,
        "virtual_s": simulated.virtual_s,
        "frames": world.network.delivered,
        "accuracy_min": min(accuracies),
        "accuracy_mean": statistics.mean(accuracies),
        "finished": len(accuracies),
    }


def tell_trained(row: Row) -> None:
    print(
        f"{row['work']:<30} accuracy {row['accuracy_mean']:.4f}, at least {row['accuracy_min']:.4f}, "
        f"{row['finished']} finished, {row['virtual_s']:.1f} virtual s, {row['frames']:,} frames, "
        f"{row['wall_s']:.0f} s",
        flush=True,
    )


def too_little(row: Row) -> bool:
    """Whether the training missed its goals."""
    learned = row["accuracy_min"] >= GOAL_ACCURACY and row["finished"] == row["peers"]
    return row["wall_s"] > GOAL_TRAINED_S or not learned


COLUMNS: dict[str, Callable[[Row], str]] = {
    "found": lambda row: f"{row['found_mean']:.2f}, at most {row['found_max']:.2f}",
    "known": lambda row: f"{row['known_mean']:.2f}, at most {row['known_max']:.2f}",
    "log2 n": lambda row: f"{row['log2_peers']:.1f}",
    "suspects": lambda row: f"{row['suspects']:.2e}",
    "dead": lambda row: str(row["dead"]),
    "B/s idle": lambda row: f"{row['idle_Bps']:.0f}",
    "B/s, 5 % lost": lambda row: f"{row['lossy_Bps']:.0f}",
    "seconds": lambda row: f"{row['wall_s']:.0f}",
}


def memberships(*, quick: bool) -> list[Row]:
    """The rows of the membership alone, each told as soon as it is measured."""
    rows = []
    print(f"{'':<30}" + "".join(f"{name:>22}" for name in COLUMNS))
    for count, links in [(100, None), (100, LINKS), (1000, LINKS), *(() if quick else ((10_000, LINKS),))]:
        assert links is not None or count <= WHOLE_PEERS_MAX
        rows.append(membership(count, links))
        print(f"{rows[-1]['work']:<30}" + "".join(f"{text(rows[-1]):>22}" for text in COLUMNS.values()), flush=True)
    return rows


def main() -> int:
    parser = usual_parser(__doc__)
    parser.add_argument("--train", metavar="N,...", help="only train, with so many peers")
    options = parser.parse_args()
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    print(f"{machine}, Python {platform.python_version()}, torch {torch.__version__}")
    rows = [] if options.train else memberships(quick=options.quick)
    short = shortcomings(rows)
    for count in map(int, (options.train or ("40" if options.quick else "40,130,300,1000")).split(",")):
        rows.append(last := trained(count))
        tell_trained(last)
        if too_little(last):
            short.append(f"{last['work']}: in {GOAL_TRAINED_S:g} s, all of them, each to {GOAL_ACCURACY}")
    for one in short:
        print(f"missed: {one}", file=sys.stderr)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return MISSED if short else 0


if __name__ == "__main__":
    sys.exit(main())
