"""The systems that benchmarks/parameter_server.py measures: workers that push a vector to servers and pull the values,
the first peers of the company being the servers.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter

import torch
import torch.distributed.rpc as rpc
from _company import MIB
from _systems import AllReady, Exchange, Joined
from torch import Tensor

from samovar.aggregation.consistency import Consistency
from samovar.aggregation.server.add import Add
from samovar.aggregation.server.function import ServerFunction
from samovar.peers.machine.process_memory import Returns
from samovar.protocols.channel import Channel
from samovar.protocols.members.attributes import SERVER
from samovar.protocols.members.joining import Entry
from samovar.protocols.members.presence import Presence
from samovar.protocols.members.view import Attributes
from samovar.protocols.meter import Meter
from samovar.protocols.parameter_server.algorithms.downpour import Downpour
from samovar.protocols.parameter_server.client import Client
from samovar.protocols.parameter_server.keys import Keys, Model
from samovar.protocols.parameter_server.messages import PARAMETER_SERVER
from samovar.protocols.parameter_server.placement import ranges_of
from samovar.protocols.parameter_server.serving import Parts
from samovar.protocols.parameter_server.shares import Pushes
from samovar.protocols.parameter_server.store import Store
from samovar.protocols.parameter_server.tenure import Tenure
from samovar.protocols.stalls.messages import STALLS
from samovar.protocols.stalls.stalls import Stalls

OWN_PUSHES = Consistency(slack=None, own=0)
"""A read contains all pushes of its reader, and whatever has arrived of the others'."""


def keys_of(elements: int) -> Keys:
    """The ranges of a vector of that length."""
    return Keys(ranges_of(elements, elements, 1), elements, torch.float32)


def checked(values: Tensor, pushes: int, workers: int) -> None:
    """Raises AssertionError unless the values contain this worker's `pushes` of ones, and no more than all workers'."""
    least, most = float(values.min()), float(values.max())
    assert pushes <= least <= most <= pushes * workers + workers, f"pulled {least} to {most} after {pushes} pushes"


class OurPushes(Joined):
    """A server or a worker of `--protocol parameter_server`, with all checks; a store for each length of vectors."""

    function: ServerFunction = Add()

    def __init__(self, way: str, index: int, servers: int, peers: int, host: str) -> None:
        super().__init__(way, index, peers, host)
        self.servers, self.pushes = servers, Counter[int]()

    @property
    def attributes(self) -> Attributes:
        return Attributes(role=SERVER if self.index < self.servers else "", data_shard=self.index)

    def set_up(self) -> None:
        self.stalls = Stalls(Channel(self.endpoint, STALLS), self.membership, Meter(), lambda: 0)
        self.presence = Presence(self.membership, Entry(self.endpoint, self.membership), 0.1)
        self.clients: dict[int, Client] = {}
        self.held: dict[int, Parts] = {}

    async def taken(self, elements: int, all_ready: AllReady) -> float:
        if self.index < self.servers:
            if elements not in self.held:
                self.serve(elements)
            await all_ready()
            return 0.0
        first = elements not in self.clients
        if first:
            self.clients[elements] = self.client(elements)
        return await self.exchanged(elements, all_ready, first=first)

    async def exchanged(self, elements: int, all_ready: AllReady, *, first: bool) -> float:
        """Seconds of a worker's exchange, which begins when all are ready. `first`: it does not take part yet."""
        vector, client = torch.ones(elements), self.clients[elements]
        await all_ready()
        if first:
            await client.enlist(0)
        seq = self.pushes[elements] + 1
        self.pushes[elements], read = seq, (0,) * len(self.keys(elements))
        began = time.perf_counter()
        client.push(seq, Pushes(vector, {}), read, reads=True)
        pulled = await client.pull(seq)
        await client.at_most(0)
        taken = time.perf_counter() - began
        checked(pulled.vector, seq, self.peers - self.servers)
        return taken

    def _channel(self, elements: int) -> Channel:
        return Channel(self.endpoint, f"{PARAMETER_SERVER} of {elements}")

    def client(self, elements: int) -> Client:
        return Client(self._channel(elements), self.presence, self.keys(elements), 1)

    def keys(self, elements: int) -> Keys:
        return keys_of(elements)

    def initial(self, elements: int) -> Model:
        return Model(torch.zeros(elements), {})

    def serve(self, elements: int) -> None:
        """Hold a vector of that length, from zeros on."""
        channel, store = self._channel(elements), Store(self.keys(elements), self.function)
        tenure, algorithm = Tenure(channel, len(store.keys), 1), Downpour()
        parts = Parts.around(channel, store, tenure, OWN_PUSHES, algorithm, self.stalls, self.initial(elements))
        parts.chains.on_entries.append(Returns())  # as in a run
        tenure.begin(self.membership.view)
        parts.takeover.begin()
        self.held[elements] = parts

    def close(self) -> None:
        for parts in self.held.values():
            parts.tenure.parcels.close()
        for one in self.clients.values():
            one.close()
        super().close()


_HELD: dict[int, Tensor] = {}
"""The values that this process holds as a server of torch RPC, by the number of elements."""
ONE_AT_A_TIME = threading.Lock()


def _push_pull(pushed: Tensor) -> Tensor:
    """Calls run in several threads, and a returned tensor is sent after the call: without the lock pushes are lost, and
    values that change while they are sent are torn."""
    with ONE_AT_A_TIME:
        held = _HELD[pushed.numel()] = _HELD[pushed.numel()] + pushed
        return held


class TorchRPC:
    """torch.distributed.rpc over TensorPipe by TCP: a call brings a part of the vector to each server, which adds it
    and returns its values."""

    def __init__(self, index: int, servers: int, peers: int, store: str) -> None:
        self.index, self.servers, self.peers, self.store = index, servers, peers, store
        self.pushes = Counter[int]()

    async def open(self, exchange: Exchange) -> None:
        options = rpc.TensorPipeRpcBackendOptions(
            num_worker_threads=self.peers,
            init_method=f"file://{self.store}-rpc",
            _transports=["uv"],  # TCP, as ours; without this it takes shared memory
            _channels=["basic"],
        )
        await asyncio.to_thread(
            rpc.init_rpc, str(self.index), rank=self.index, world_size=self.peers, rpc_backend_options=options
        )

    async def taken(self, elements: int, all_ready: AllReady) -> float:
        vector = torch.ones(elements)
        if self.index < self.servers:
            share = vector.tensor_split(self.servers)[self.index].numel()
            _HELD.setdefault(share, torch.zeros(share))
            await all_ready()
            return 0.0
        await all_ready()
        self.pushes[elements] += 1
        began = time.perf_counter()
        # A long call is made aside, lest the other systems wonder whether this process lives.
        values = self._exchanged(vector) if elements <= MIB // 4 else await asyncio.to_thread(self._exchanged, vector)
        taken = time.perf_counter() - began
        checked(values, self.pushes[elements], self.peers - self.servers)
        return taken

    def _exchanged(self, vector: Tensor) -> Tensor:
        parts = vector.tensor_split(self.servers)
        if self.servers == 1:
            values: Tensor = rpc.rpc_sync("0", _push_pull, parts)
            return values
        answers = [rpc.rpc_async(str(server), _push_pull, (part,)) for server, part in enumerate(parts)]
        return torch.cat([answer.wait() for answer in answers])

    def close(self) -> None:
        rpc.shutdown()
