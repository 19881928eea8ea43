"""Whether the simulation tells the truth: the same averaging rounds, and the same training, real and simulated.

Rounds: four peer processes, each in a network namespace of its own, joined by a bridge; the kernel (`tc ... tbf`) holds
what each sends and receives to 3, 30 and 300 Mbit/s. Everything is encrypted. The simulation is told the rate, and the
latency that was measured on the idle link; the peers are the same code. Goal: round times within 15 %.
Shaped: the same on cables that the kernel leaves alone, where the peers hold themselves to the rate, as with `--link`;
and, as the kernel here has no latency to give, on links of 40 ms against the simulation. Goal: within 15 % too.
Training: after 20 rounds of the digits example the two models differ by at most 1e-6.

    python benchmarks/calibration.py [--quick] [--json FILE]

Where network namespaces may not be made, the rounds are skipped. The goal is for what peers choose at these sizes, the
ring, over Reno, the congestion control that every Linux has. Without `--quick` halving_doubling, and the congestion
control that this machine prefers, are shown besides.

The simulation knows no TCP: its links are full whenever there is something to send. In halving_doubling two peers send
to each other at once; Reno fills the links even so, BBR does not always and takes up to 1.7 times as long. Nor does the
simulation charge for encryption, which four peers on two cores may feel at 300 Mbit/s.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from common import MISSED, Row, arguments, show
from netns import Town, do, enter, host, round_trip_s, shape_own, usual_tcp
from torch import Tensor

from samovar.aggregation.vector import Layout
from samovar.peers.checkpoints.checkpoint import load
from samovar.peers.launch.session import open_endpoint
from samovar.peers.peer import Peer
from samovar.peers.place import Place
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.link_text import parse_link, parse_rate
from samovar.peers.task.facts import Facts
from samovar.peers.task.task import load_task
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.link_spec import LinkSpec
from samovar.protocols.transport import Transport
from samovar.protocols.work import Update
from samovar.protocols.zeromq.transport import KeyPair
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.network import Network
from samovar.sims.world.transport import SimulatedTransport
from samovar.sims.world.world import World

PEERS, WARM_UP, PATIENCE_S = 4, 2, 30.0
WITHIN, SAME = 0.15, 1e-6
DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits.py"


@dataclass(frozen=True)
class Work:
    """Rounds over so many floats on links of `rate`."""

    rate: str
    elements: int
    schedule: str = "ring"
    tcp: str = "reno"
    link: str | None = None
    """What the peers shape their links to, in place of the kernel."""

    @property
    def name(self) -> str:
        return f"{4 * self.elements / 1e6:g} MB, {self.link or self.rate}, {self.schedule}, {self.tcp}"


WORKS = [Work("3mbit", 125_000), Work("30mbit", 1_000_000), Work("300mbit", 3_000_000)]
WIDE = "10gbit"
"""The kernel's rate where peers shape their links themselves."""
FAR = [Work(WIDE, 125_000, link="3mbit,40ms"), Work(WIDE, 1_000_000, link="30mbit,40ms")]


# A peer, the same in both worlds


def endpoint_on(transport: Transport, index: int) -> Endpoint:
    return Endpoint(transport, patience_s=PATIENCE_S, rng=random.Random(index))


async def take_part(endpoint: Endpoint, index: int, contact: str | None, work: Work, count: int) -> list[float]:
    """Seconds of each of `count` rounds, from the call to the committed result, once the links know their pace."""
    zeros, expected = torch.zeros(work.elements), torch.full((work.elements,), (PEERS - 1) / 2)
    settings = Settings(peers=PEERS, period="1", schedule=work.schedule)
    facts = Facts(layout=Layout.of({"weights": zeros}), vector=zeros)
    peer = Peer(endpoint, settings, Place(name=str(index), data_shard=index), facts)
    await peer.conversation.enter(contact, 0)
    clock, times = asyncio.get_running_loop().time, []
    brought = Update(vector=torch.full_like(zeros, float(index)), weight=1.0, loss=1.0, learning_rate=0.1, steps=1)
    for _ in range(WARM_UP + count):
        assert await peer.conversation.next() is not None
        began = clock()
        await peer.conversation.bring(brought)
        times.append(clock() - began)
        assert torch.allclose(peer.conversation.position().vector, expected), "a wrong mean"
    await peer.conversation.finish()
    await endpoint.drain()
    peer.close()
    return times[WARM_UP:]


def simulated_rounds(work: Work, latency_s: float, count: int) -> list[float]:
    """Seconds of every round of every peer, in virtual time."""
    link = LinkSpec(bandwidth_Bps=parse_rate(work.rate), latency_s=latency_s)
    network = Network(parse_link(work.link) if work.link else link, seed=1)

    async def run(index: int) -> list[float]:
        endpoint = endpoint_on(SimulatedTransport(network, str(index)), index)
        await endpoint.open()
        for other in range(PEERS):
            endpoint.admit(str(other))
        if index:
            endpoint.dial("0", "sim://0")
        return await take_part(endpoint, index, "0" if index else None, work, count)

    async def all_run() -> list[list[float]]:
        return await asyncio.gather(*(run(index) for index in range(PEERS)))

    return [seconds for times in run_virtual(all_run()) for seconds in times]


# Real processes on real links


def peer_process(index: int, line: Connection) -> None:
    """One work after another, until the line is closed."""
    torch.set_num_threads(1)
    while True:
        work, count = line.recv()
        shape_own(work.rate, work.tcp)
        asyncio.run(really_take_part(index, work, count, line))


async def really_take_part(index: int, work: Work, count: int, line: Connection) -> None:
    settings = Settings(link=work.link, listen=f"tcp://{host(index)}:0", patience_s=PATIENCE_S)
    endpoint = open_endpoint(settings, KeyPair.new().secret)
    await endpoint.open()
    line.send((endpoint.id, endpoint.address))
    everyone = await asyncio.to_thread(line.recv)
    latency_s = await asyncio.to_thread(round_trip_s, everyone[(index + 1) % PEERS][1]) / 2
    for other, _ in everyone:
        endpoint.admit(other)
    line.send("all admitted")
    await asyncio.to_thread(line.recv)
    if index:
        endpoint.dial(*everyone[0])
    times = await take_part(endpoint, index, everyone[0][0] if index else None, work, count)
    line.send((latency_s, times))


def real_rounds(town: Town, work: Work, count: int) -> tuple[float, list[float]]:
    """One-way latency of the idle links, and seconds of every round of every peer."""
    town.shape(work.rate)
    town.tell((work, count))
    town.tell(town.hear())
    town.hear()
    town.tell("go")  # not before all would let it in: a refused peer calls again, but that is not what is measured
    heard = town.hear()
    return statistics.median(latency_s for latency_s, _ in heard), [s for _, times in heard for s in times]


# The comparison


def compare_rounds(works: list[Work], count: int) -> list[Row]:
    rows: list[Row] = []
    with ExitStack() as ends:
        town = Town(ends, PEERS, peer_process)
        for work in works:
            latency_s, real = real_rounds(town, work, count)
            systems = {"real processes": real, "simulated": simulated_rounds(work, latency_s, count)}
            if work in WORKS:
                shaped = replace(work, rate=WIDE, link=f"{work.rate},0ms")
                systems["real, --link"] = real_rounds(town, shaped, count)[1]
            for system, times in systems.items():
                median_s = statistics.median(times)
                ratio = None if times is real else median_s / statistics.median(real)
                row: Row = {"work": work.name, "system": system, "median_s": median_s, "ratio": ratio, "goal": None}
                rows.append(row | {"rounds_s": times, "latency_s": latency_s})
                if work in (*WORKS, *FAR) and times is not real:
                    rows[-1] |= {"goal": 1.0, "within": WITHIN}
    return rows


def model_of_processes(seed: int) -> Tensor:
    with tempfile.TemporaryDirectory() as folder:
        do(
            sys.executable, "-m", "samovar", "train", DIGITS, "--peers", PEERS, "--period", 4, "--steps", 80,
            "--seed", seed, "--device", "cpu", "--threads", 1, "--listen", "tcp://127.0.0.1:0",
            "--run", f"{folder}/run", "--no-report", "--quiet",
        )  # fmt: skip
        files = [Path(folder) / f"run/checkpoint/peer-{index}.safetensors" for index in range(PEERS)]
        return agreed([load(file).tensors["state/vector"] for file in files])


def model_of_simulation(seed: int) -> Tensor:
    settings = Settings(peers=PEERS, period="4", steps=80, seed=seed, device="cpu", threads=1)
    world = World(load_task(DIGITS), Scenario.plain(settings))
    run_virtual(world.run(), seed=seed)
    return agreed([life.peer.conversation.position().vector for life in world.lives])


def agreed(models: list[Tensor]) -> Tensor:
    assert len(models) == PEERS
    assert all(torch.equal(models[0], model) for model in models), "peers ended with different models"
    return models[0]


def compare_models(seed: int) -> list[Row]:
    rows: list[Row] = []
    models = []
    for system, run in [("real processes", model_of_processes), ("simulated", model_of_simulation)]:
        began = time.perf_counter()
        models.append(run(seed))
        row: Row = {"work": f"digits, {PEERS} peers, 20 rounds, seed {seed}", "system": system}
        rows.append(row | {"median_s": time.perf_counter() - began, "ratio": None, "goal": None})
    rows[-1] |= {"difference": (models[0] - models[1]).abs().max().item(), "goal_difference": SAME}
    return rows


def main() -> int:
    options = arguments(__doc__)
    why_not, works = enter(), [*WORKS, *FAR]
    if not options.quick:
        by_kernel = [*WORKS, *(replace(work, schedule="halving_doubling") for work in WORKS)]
        works = [*by_kernel, *FAR]
        works += [replace(work, tcp=usual_tcp()) for work in by_kernel if usual_tcp() != "reno"]
    rows = [] if why_not else compare_rounds(works, 5 if options.quick else 7)
    for seed in range(1, 2 if options.quick else 4):
        rows += compare_models(seed)
    show(rows, options.json)
    for row in rows:
        if "difference" in row:
            print(f"{row['work']:<44} the models differ by {row['difference']:.1e} at most, goal {SAME:g}")
    if why_not:
        print(f"rounds: skipped, as network namespaces with shaped links cannot be made here: {why_not}")
    far = [row["work"] for row in rows if row["goal"] is not None and abs(row["ratio"] - 1) > WITHIN]
    far += [row["work"] for row in rows if row.get("difference", 0.0) > SAME]
    for work in far:
        print(f"simulation and reality are too far apart: {work}", file=sys.stderr)
    return MISSED if far else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
