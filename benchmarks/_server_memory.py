"""The resident memory of a server of the parameter server, for benchmarks/parameter_server.py.

One process is the server; another one plays all workers, which push at the same time, and then pull at the same time.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import psutil
import torch
from _processes import Room, bare_bytes
from _pushes import OurPushes

from samovar.aggregation.server.registry import parse_server_function
from samovar.peers.machine.process_memory import keep_freed_memory
from samovar.protocols.parameter_server.shares import Pushes


class _Together:
    """The peers of one process, which tell those of the others something and hear what each told."""

    def __init__(self, line: Connection, indices: Sequence[int]) -> None:
        self._line, self._indices = line, indices
        self._told: dict[int, Any] = {}
        self._heard: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

    async def exchange(self, index: int, what: Any) -> list[Any]:
        self._told[index], heard = what, self._heard
        if len(self._told) == len(self._indices):
            self._line.send([self._told[one] for one in self._indices])
            self._told, self._heard = {}, asyncio.get_running_loop().create_future()
            heard.set_result(await asyncio.to_thread(self._line.recv))
        return await heard


async def _take_part(
    way: str, function: str, elements: int, indices: Sequence[int], peers: int, line: Connection
) -> None:
    together = _Together(line, indices)
    systems = {index: OurPushes(way, index, 1, peers, "127.0.0.1") for index in indices}
    await asyncio.gather(*(one.open(partial(together.exchange, index)) for index, one in systems.items()))
    if 0 in systems:
        systems[0].function = parse_server_function(function)
        systems[0].serve(elements)
    else:
        clients = [one.client(elements) for one in systems.values()]
        ones, read = torch.ones(elements), (0,) * len(systems[indices[0]].keys(elements))
        await asyncio.gather(*(client.enlist(0) for client in clients))
        for turn in range(1, 4):
            for client in clients:
                client.push(turn, Pushes(ones, {}), read)
            await asyncio.gather(*(client.at_most(0) for client in clients))
            await asyncio.gather(*(client.pull(turn) for client in clients))
    await asyncio.gather(*(together.exchange(index, "done") for index in indices))
    for one in systems.values():
        one.close()


def _process(way: str, function: str, elements: int, workers: int, index: int, line: Connection) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    indices = [0] if index == 0 else list(range(1, workers + 1))
    asyncio.run(_take_part(way, function, elements, indices, workers + 1, line))


def server_bytes(way: str, function: str, nbytes: int, workers: int) -> int:
    """The most resident memory, above that of a bare `import torch`, of a server that holds a float32 model of `nbytes`
    bytes, while `workers` workers push and pull it on one of our ways."""
    multiprocessing.set_start_method("spawn", force=True)
    with ExitStack() as ends:
        room = Room(ends, 2, partial(_process, way, function, nbytes // 4, workers))
        server, most = psutil.Process(room.processes[0].pid), 0
        told: list[Any] = []
        while told != ["done"] * (workers + 1):
            while not all(line.poll(0.01) for line in room.lines):
                most = max(most, server.memory_info().rss)
            told = [one for those in room.hear() for one in those]
            room.tell(told)
        return most - bare_bytes()
