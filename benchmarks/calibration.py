"""Whether the simulation tells the truth: the same averaging rounds by real processes on shaped links and in virtual
time, and the same training run by both.

Rounds: four peer processes, each in a network namespace of its own, joined by a bridge; the kernel (`tc ... tbf`) holds
what each sends and what each receives to 3, 30 and 300 Mbit/s. Encrypted, over the vectors that such links are for. The
simulation is given the rate and the latency that was measured on the idle link, nothing else. Goal: within 15 %.
Training: the model after 20 rounds of the digits example, real and simulated, is the same to 1e-6.

    python benchmarks/calibration.py [--quick] [--json FILE]

Namespaces want root, or a system that lets users make their own; where neither is, the rounds are skipped.
"""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
from common import Row, arguments, show

from samovar.aggregation.vector import Layout
from samovar.peers.peer import Identity, Peer, first_state
from samovar.peers.settings import Settings
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.local_sgd import Contribution
from samovar.protocols.transport import Transport
from samovar.protocols.zeromq import KeyPair, ZeroMQTransport
from samovar.sims.links import LinkSpec, parse_rate
from samovar.sims.loop import run_virtual
from samovar.sims.network import Network, SimulatedTransport

PEERS, WARM_UP = 4, 2
WITHIN, SAME = 0.15, 1e-6
DIGITS = Path(__file__).parents[1] / "examples" / "digits.py"
INSIDE = "SAMOVAR_CALIBRATION_INSIDE"
"""Set where this script has come into a network namespace of its own."""
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_BURST_S, _QUEUE_S = 0.001, 0.1


@dataclass(frozen=True)
class Work:
    """Rounds over a vector of `elements` floats on links of `rate`."""

    rate: str
    elements: int
    schedule: str = "ring"

    @property
    def name(self) -> str:
        return f"round, {4 * self.elements / 1e6:g} MB, {PEERS} peers, {self.rate}, {self.schedule}"


WORKS = [Work("3mbit", 125_000), Work("30mbit", 1_000_000), Work("300mbit", 4_000_000)]


# What a peer does, in both worlds


class Member:
    """One peer that only averages."""

    def __init__(self, transport: Transport, index: int, work: Work) -> None:
        self.endpoint = Endpoint(transport, patience_s=30, rng=random.Random(index))
        self._index, self._work = index, work

    def _peer(self) -> Peer:
        zeros = torch.zeros(self._work.elements)
        settings = Settings(peers=PEERS, period="1", schedule=self._work.schedule)
        return Peer(
            self.endpoint, settings, Identity(str(self._index), self._index),
            run="b", layout=Layout.of({"weights": zeros}), state=first_state(settings, zeros),
        )  # fmt: skip

    async def rounds(self, contact: str | None, count: int) -> list[float]:
        """Seconds of each round, from the call to the committed result, once the links know their pace."""
        peer, clock, times = self._peer(), asyncio.get_running_loop().time, []
        await peer.start(contact)
        expected = torch.full((self._work.elements,), (PEERS - 1) / 2)
        brought = Contribution(torch.full_like(expected, float(self._index)), 1.0, 1.0, 0.1, 0.0)
        for _ in range(WARM_UP + count):
            began = clock()
            outcome = await peer.average(brought, compute_s=0.0, steps=1)
            times.append(clock() - began)
            assert torch.allclose(outcome.state.vector, expected), "a wrong mean"
        await peer.finish()
        await self.endpoint.drain()
        peer.close()
        return times[WARM_UP:]


def simulated(work: Work, latency_s: float, count: int) -> list[float]:
    """Seconds of every round of every peer, in virtual time."""
    network = Network(LinkSpec(bandwidth_Bps=parse_rate(work.rate), latency_s=latency_s), seed=1)
    members = [Member(SimulatedTransport(network, str(index)), index, work) for index in range(PEERS)]

    async def run(index: int) -> list[float]:
        endpoint = members[index].endpoint
        await endpoint.open()
        for other in members:
            endpoint.admit(other.endpoint.id)
        if index:
            endpoint.dial("0", "sim://0")
        return await members[index].rounds("0" if index else None, count)

    async def all_run() -> list[list[float]]:
        return await asyncio.gather(*(run(index) for index in range(PEERS)))

    return [seconds for times in run_virtual(all_run()) for seconds in times]


# Real processes


def command(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True)


def shape(device: str, rate: str) -> None:
    burst = max(2 * 1514, int(parse_rate(rate) * _BURST_S))
    limit = burst + max(16 * 1514, int(parse_rate(rate) * _QUEUE_S))
    command("tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst", burst, "limit", limit)


def host(index: int) -> str:
    return f"10.0.0.{index + 1}"


def peer_process(index: int, line: Connection) -> None:
    """Come into a network of one's own, and run one work after another until the line is closed."""
    torch.set_num_threads(1)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NETWORK):  # before any other thread is there; os.unshare is for Python 3.12
        raise OSError(ctypes.get_errno(), "unshare")
    line.send("alone")
    line.recv()
    command("ip", "address", "add", f"{host(index)}/24", "dev", "cable")
    for device in ("cable", "lo"):
        command("ip", "link", "set", device, "up")
    while True:
        work, count = line.recv()
        shape("cable", work.rate)
        asyncio.run(take_part(index, work, count, line))


async def take_part(index: int, work: Work, count: int, line: Connection) -> None:
    transport = ZeroMQTransport(KeyPair.new(), listen=f"tcp://{host(index)}:0")
    member = Member(transport, index, work)
    endpoint = member.endpoint
    await endpoint.open()
    line.send((endpoint.id, endpoint.address))
    everyone = await asyncio.to_thread(line.recv)
    latency_s = await asyncio.to_thread(round_trip_s, everyone[(index + 1) % PEERS][1]) / 2
    for other, _ in everyone:
        endpoint.admit(other)
    line.send("all admitted")
    await asyncio.to_thread(line.recv)
    contact = None
    if index:
        contact = everyone[0][0]
        endpoint.dial(*everyone[0])
    line.send((latency_s, await member.rounds(contact, count)))


def round_trip_s(address: str) -> float:
    """What a TCP connection takes to be made: there and back again, and no program has a part in it."""
    host, port = address.removeprefix("tcp://").rsplit(":", 1)
    times = []
    for _ in range(9):
        began = time.perf_counter()
        socket.create_connection((host, int(port))).close()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


class Town:
    """Peer processes, each behind a cable of its own to one bridge. All of it ends with the processes."""

    def __init__(self, ends: ExitStack) -> None:
        context = multiprocessing.get_context("spawn")
        command("ip", "link", "set", "lo", "up")
        command("ip", "link", "add", "bridge", "type", "bridge")
        ends.callback(command, "ip", "link", "delete", "bridge")
        command("ip", "link", "set", "bridge", "up")
        self._lines: list[Connection] = []
        for index in range(PEERS):
            ours, theirs = context.Pipe()
            process = context.Process(target=peer_process, args=(index, theirs), daemon=True)
            process.start()
            ends.callback(end, process)
            theirs.close()  # else the end of a peer that failed would not be seen here
            self._lines.append(ours)
            ours.recv()
            port = f"port{index}"
            command("ip", "link", "add", port, "type", "veth", "peer", "name", "cable", "netns", process.pid)
            command("ip", "link", "set", port, "master", "bridge", "up")
            ours.send("connected")

    def real(self, work: Work, count: int) -> tuple[float, list[float]]:
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

    def _hear(self) -> list:
        return [line.recv() for line in self._lines]


def end(process: BaseProcess) -> None:
    process.kill()
    process.join()


def rounds(works: Sequence[Work], quick: bool) -> list[Row]:
    rows: list[Row] = []
    with ExitStack() as ends:
        town = Town(ends)
        for work in works:
            count = 3 if quick else 9
            latency_s, real = town.real(work, count)
            virtual = simulated(work, latency_s, count)
            common: Row = {"work": work.name, "latency_s": latency_s}
            rows.append(
                common
                | {
                    "system": "real processes",
                    "median_s": statistics.median(real),
                    "ratio": None,
                    "goal": None,
                    "all": real,
                }
            )
            ratio = statistics.median(virtual) / statistics.median(real)
            rows.append(
                common
                | {
                    "system": "simulated",
                    "median_s": statistics.median(virtual),
                    "ratio": ratio,
                    "goal": 1.0,
                    "all": virtual,
                }
            )
            print(
                work.name,
                latency_s,
                *(f"{s:.3f}" for s in sorted(real)),
                "|",
                *(f"{s:.3f}" for s in sorted(virtual)),
                flush=True,
            )
    return rows


if __name__ == "__main__":
    o = arguments(__doc__)
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv])
    show(rounds(WORKS, o.quick), o.json)
