"""How long an averaging round of a small model takes: 650 parameters, 8 real peer processes on loopback, encrypted.

Each peer calls average() again and again without training in between; a round's time is from one peer's call to its
committed result. Every result is checked against the mean that the peers' contributions have.

    python benchmarks/round.py [--quick] [--json FILE]
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import statistics
import sys
import time
from multiprocessing.connection import Connection

import torch
from common import Row, arguments, show

from samovar.aggregation.vector import Layout
from samovar.peers.peer import Peer
from samovar.peers.place import Place
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.facts import Facts
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.work import Update
from samovar.protocols.zeromq.transport import KeyPair, ZeroMQTransport

PARAMETERS, WARM_UP, GOAL_S = 650, 5, 0.050


async def take_part(index: int, peers: int, rounds: int, line: Connection) -> None:
    keys = KeyPair.new()
    endpoint = Endpoint(ZeroMQTransport(keys, listen="tcp://127.0.0.1:0"), patience_s=20, rng=random.Random(index))
    await endpoint.open()
    layout = Layout.of({"weights": torch.zeros(PARAMETERS)})
    settings = Settings(peers=peers, period="1")
    facts = Facts(layout=layout, vector=torch.zeros(PARAMETERS))
    peer = Peer(endpoint, settings, Place(name=str(index), data_shard=index), facts)
    line.send((endpoint.id, endpoint.address))
    everyone = await asyncio.to_thread(line.recv)
    for other, _ in everyone:
        endpoint.admit(other)
    line.send("all admitted")
    await asyncio.to_thread(line.recv)
    contact = None
    if index:
        contact = everyone[0][0]
        endpoint.dial(*everyone[0])
    await peer.conversation.enter(contact, 0)
    times, expected = [], torch.full((PARAMETERS,), (peers - 1) / 2)
    for _ in range(WARM_UP + rounds):
        assert await peer.conversation.next() is not None
        brought = Update(vector=torch.full((PARAMETERS,), float(index)), weight=1.0, loss=1.0, steps=1)
        began = time.perf_counter()
        await peer.conversation.bring(brought)
        times.append(time.perf_counter() - began)
        assert torch.allclose(peer.conversation.position().vector, expected), "a wrong mean"
    await peer.conversation.finish()
    await endpoint.drain()
    peer.close()
    line.send(times[WARM_UP:])


def peer_process(index: int, peers: int, rounds: int, line: Connection) -> None:
    torch.set_num_threads(1)
    asyncio.run(take_part(index, peers, rounds, line))


def measure(peers: int, rounds: int) -> list[float]:
    """Seconds of every round of every peer."""
    context = multiprocessing.get_context("spawn")
    lines, processes = [], []
    for index in range(peers):
        ours, theirs = context.Pipe()
        process = context.Process(target=peer_process, args=(index, peers, rounds, theirs), daemon=True)
        process.start()
        theirs.close()  # else the end of a peer that failed would not be seen here
        lines.append(ours)
        processes.append(process)
    everyone = [line.recv() for line in lines]
    for line in lines:
        line.send(everyone)
    # Nobody calls before all would let it in: a refused peer calls again, but that is not what is measured.
    for line in lines:
        line.recv()
    for line in lines:
        line.send("go")
    times = [seconds for line in lines for seconds in line.recv()]
    for process in processes:
        process.join()
    return times


def main() -> int:
    options = arguments(__doc__)
    rows: list[Row] = []
    for peers in [8] if options.quick else [2, 4, 8]:
        times = measure(peers, 100 if options.quick else 300)
        rows.append(
            {
                "work": f"averaging round, {PARAMETERS} parameters, {peers} peers",
                "system": "samovar, CURVE",
                "median_s": statistics.median(times),
                "ratio": None,
                "goal": None,
                "p99_s": statistics.quantiles(times, n=100)[98],
                "goal_median_s": GOAL_S if peers == 8 else None,
            }
        )
    show(rows, options.json)
    return 0 if rows[-1]["median_s"] <= GOAL_S else 1


if __name__ == "__main__":
    sys.exit(main())
