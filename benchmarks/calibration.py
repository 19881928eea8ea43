"""Whether the simulation tells the truth: the same averaging rounds, and the same training, real and simulated.

Rounds: four peer processes, each in a network namespace of its own, joined by a bridge; the kernel (`tc ... tbf`) holds
what each sends and receives to 3, 30 and 300 Mbit/s. Everything is encrypted. The simulation is told the rate, and the
latency that was measured on the idle link; the peers are the same code. Goal: round times within 15 %.
Training: after 20 rounds of the digits example the two models differ by at most 1e-6.

    python benchmarks/calibration.py [--quick] [--json FILE]

Where network namespaces may not be made, the rounds are skipped. The simulation knows no TCP: where a router queues a
second instead of the 0.1 s here, acknowledgements wait behind data, and plain TCP takes 1.2 to 1.4 times as long too.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import multiprocessing
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from common import Row, arguments, show
from torch import Tensor

from samovar.aggregation.vector import Layout
from samovar.peers.checkpoint import load
from samovar.peers.peer import Identity, Peer, first_state
from samovar.peers.settings import Settings
from samovar.peers.task import load_task
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.local_sgd import Contribution
from samovar.protocols.transport import Transport
from samovar.protocols.zeromq import KeyPair, ZeroMQTransport
from samovar.sims.links import LinkSpec, parse_rate
from samovar.sims.loop import run_virtual
from samovar.sims.network import Network, SimulatedTransport
from samovar.sims.scenario import Scenario
from samovar.sims.world import World

PEERS, WARM_UP, PATIENCE_S = 4, 2, 30.0
WITHIN, SAME = 0.15, 1e-6
DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits.py"
INSIDE = "SAMOVAR_CALIBRATION_INSIDE"
"""Set once this script runs in a network namespace of its own."""
TRY = "ip link add one type veth peer name two; ip link add bridge type bridge; tc qdisc add dev one root tbf {}"
QUEUE_S = 0.1
"""What a router keeps waiting before it drops."""
LATE_S = 0.02
"""How late the kernel may be without losing bandwidth, as it is on a busy machine: tbf's burst."""
_PACKET_BYTES, _CLONE_NEWNET = 1514, 0x40000000


@dataclass(frozen=True)
class Work:
    """Rounds over so many floats on links of `rate`."""

    rate: str
    elements: int
    schedule: str = "ring"

    @property
    def name(self) -> str:
        return f"round, {PEERS} peers, {4 * self.elements / 1e6:g} MB, {self.rate}, {self.schedule}"


WORKS = [Work("3mbit", 125_000), Work("30mbit", 1_000_000), Work("300mbit", 3_000_000)]


# A peer, the same in both worlds


def endpoint_on(transport: Transport, index: int) -> Endpoint:
    return Endpoint(transport, patience_s=PATIENCE_S, rng=random.Random(index))


async def take_part(endpoint: Endpoint, index: int, contact: str | None, work: Work, count: int) -> list[float]:
    """Seconds of each of `count` rounds, from the call to the committed result, once the links know their pace."""
    zeros, expected = torch.zeros(work.elements), torch.full((work.elements,), (PEERS - 1) / 2)
    settings = Settings(peers=PEERS, period="1", schedule=work.schedule)
    layout, state = Layout.of({"weights": zeros}), first_state(settings, zeros)
    peer = Peer(endpoint, settings, Identity(str(index), index), run="b", layout=layout, state=state)
    await peer.start(contact)
    clock, times = asyncio.get_running_loop().time, []
    brought = Contribution(torch.full_like(zeros, float(index)), 1.0, 1.0, 0.1, 0.0)
    for _ in range(WARM_UP + count):
        began = clock()
        outcome = await peer.average(brought, compute_s=0.0, steps=1)
        times.append(clock() - began)
        assert torch.allclose(outcome.state.vector, expected), "a wrong mean"
    await peer.finish()
    await endpoint.drain()
    peer.close()
    return times[WARM_UP:]


def simulated_rounds(work: Work, latency_s: float, count: int) -> list[float]:
    """Seconds of every round of every peer, in virtual time."""
    network = Network(LinkSpec(bandwidth_Bps=parse_rate(work.rate), latency_s=latency_s), seed=1)

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


def do(*words: object) -> None:
    """Run a command; raises RuntimeError with its own words."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")


def limits(rate: str) -> list[str]:
    """tbf's parameters for a link of `rate`."""
    burst, queue = (int(parse_rate(rate) * seconds) + 2 * _PACKET_BYTES for seconds in (LATE_S, QUEUE_S))
    return ["rate", rate, "burst", str(burst), "limit", str(burst + queue)]


def shape(device: str, rate: str) -> None:
    do("tc", "qdisc", "replace", "dev", device, "root", "tbf", *limits(rate))


def host(index: int) -> str:
    return f"10.0.0.{index + 1}"


def round_trip_s(address: str) -> float:
    """What a TCP connection takes to be made: there and back again, and no program has a part in it."""
    host, port = address.removeprefix("tcp://").rsplit(":", 1)
    times = []
    for _ in range(9):
        began = time.perf_counter()
        socket.create_connection((host, int(port))).close()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def ahead_of_others() -> None:
    """What else this machine is busy with is not to be measured. Linux shares its time out among sessions before it
    looks at niceness (autogroup), so this needs one of its own."""
    os.setsid()
    with contextlib.suppress(OSError):
        os.nice(-15)
        Path("/proc/self/autogroup").write_text("-15")


def peer_process(index: int, line: Connection) -> None:
    """Come into a network namespace, then run one work after another until the line is closed."""
    torch.set_num_threads(1)
    ahead_of_others()
    if ctypes.CDLL(None).unshare(_CLONE_NEWNET):  # os.unshare came with Python 3.12
        raise RuntimeError("unshare() failed")
    with contextlib.suppress(OSError):  # Linux's default, whatever this machine prefers
        Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text("cubic")
    with contextlib.suppress(EOFError, BrokenPipeError):
        line.send("alone")
        line.recv()
        do("ip", "address", "add", f"{host(index)}/24", "dev", "cable")
        for device in ("lo", "cable"):
            do("ip", "link", "set", "dev", device, "up")
        while True:
            work, count = line.recv()
            shape("cable", work.rate)
            asyncio.run(really_take_part(index, work, count, line))


async def really_take_part(index: int, work: Work, count: int, line: Connection) -> None:
    endpoint = endpoint_on(ZeroMQTransport(KeyPair.new(), listen=f"tcp://{host(index)}:0"), index)
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


class Town:
    """Peer processes, each on a cable of its own to one bridge.

    Nothing of it has a name outside the namespaces, which have none either: they end with their processes.
    """

    def __init__(self, ends: ExitStack) -> None:
        context = multiprocessing.get_context("spawn")
        do("ip", "link", "add", "bridge", "type", "bridge")
        do("ip", "link", "set", "dev", "bridge", "up")
        self._lines: list[Connection] = []
        processes: list[BaseProcess] = []
        for index in range(PEERS):
            ours, theirs = context.Pipe()
            process = context.Process(target=peer_process, args=(index, theirs), daemon=True)
            ends.callback(end, process)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # Ctrl-C is for us, who end them
            process.start()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
            theirs.close()  # else the end of a peer that failed would not be seen here
            self._lines.append(ours)
            processes.append(process)
        self._hear()
        for index, process in enumerate(processes):
            port = f"port{index}"
            do("ip", "link", "add", port, "type", "veth", "peer", "name", "cable", "netns", process.pid)
            do("ip", "link", "set", "dev", port, "master", "bridge", "up")
        self._tell("connected")

    def rounds(self, work: Work, count: int) -> tuple[float, list[float]]:
        """One-way latency of the idle links, and seconds of every round of every peer."""
        for index in range(PEERS):
            shape(f"port{index}", work.rate)
        self._tell((work, count))
        self._tell(self._hear())
        self._hear()
        self._tell("go")  # not before all would let it in: a refused peer calls again, but that is not what is measured
        heard = self._hear()
        return statistics.median(latency_s for latency_s, _ in heard), [s for _, times in heard for s in times]

    def _tell(self, what: object) -> None:
        for line in self._lines:
            line.send(what)

    def _hear(self) -> list[Any]:
        try:
            return [line.recv() for line in self._lines]
        except EOFError:
            raise RuntimeError("a peer process failed: see above") from None


def end(process: BaseProcess) -> None:
    if process.pid is not None:
        process.kill()
        process.join()


# The comparison


def compare_rounds(works: list[Work], count: int) -> list[Row]:
    rows: list[Row] = []
    with ExitStack() as ends:
        town = Town(ends)
        for work in works:
            latency_s, real = town.rounds(work, count)
            virtual = simulated_rounds(work, latency_s, count)
            ratio = statistics.median(virtual) / statistics.median(real)
            for system, times in [("real processes", real), ("simulated", virtual)]:
                row: Row = {"work": work.name, "system": system, "median_s": statistics.median(times), "ratio": None}
                rows.append(row | {"goal": None, "rounds_s": times, "latency_s": latency_s})
            rows[-1] |= {"ratio": ratio, "goal": 1.0, "within": WITHIN}
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
    return agreed([life.peer.state.vector for life in world.lives])


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


def enter() -> str:
    """Go on in a network namespace of our own, where all others are made; returns why that cannot be."""
    if INSIDE in os.environ:
        do("ip", "link", "set", "dev", "lo", "up")
        return ""
    unshare = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
    missing = [tool for tool in ("unshare", "ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"this machine has no {missing[0]}"
    attempt = [*unshare, "sh", "-ec", TRY.format(" ".join(limits("3mbit")))]
    tried = subprocess.run(attempt, capture_output=True, text=True)
    if tried.returncode:
        return " ".join(tried.stderr.split()) or "unshare failed"
    os.environ[INSIDE] = "1"
    return os.execvp(unshare[0], [*unshare, sys.executable, *sys.argv])


def main() -> int:
    options = arguments(__doc__)
    why_not, works = enter(), WORKS
    if not options.quick:
        works = [replace(work, schedule=name) for work in WORKS for name in ("ring", "halving_doubling")]
    rows = [] if why_not else compare_rounds(works, 5 if options.quick else 9)
    for seed in range(1, 2 if options.quick else 4):
        rows += compare_models(seed)
    show(rows, options.json)
    for row in rows:
        if "difference" in row:
            print(f"{row['work']:<44} the models differ by {row['difference']:.1e} at most, goal {SAME:g}")
    if why_not:
        print(f"rounds: skipped, as network namespaces with shaped links cannot be made here: {why_not}")
    far = [row["work"] for row in rows if row["ratio"] is not None and abs(row["ratio"] - 1) > WITHIN]
    far += [row["work"] for row in rows if row.get("difference", 0.0) > SAME]
    for work in far:
        print(f"simulation and reality are too far apart: {work}", file=sys.stderr)
    return 1 if far else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
