"""Rows of a table on servers: the systems that benchmarks/parameter_server.py compares. A worker pushes changes of some
rows and gets their values back. All changes are whole numbers, so that the results are checked exactly.
"""

from __future__ import annotations

import asyncio
import time

import torch
import torch.distributed.rpc as rpc
from _pushes import ONE_AT_A_TIME, OurPushes, TorchRPC
from _systems import AllReady
from torch import Tensor

from samovar.aggregation.rows import Rows, Table
from samovar.protocols.parameter_server.keys import Keys, Model
from samovar.protocols.parameter_server.shares import Pushes

TABLE = Table("rows", 1_000_000, 64)
NOTHING = torch.empty(0)


def touched(worker: int, turn: int, count: int) -> Tensor:
    """The numbers [count] of the rows that a worker pushes in a turn, ascending. No other worker pushes those that its
    `turn` leaves at the same remainder, so that it knows their values."""
    chance = torch.Generator().manual_seed(1000 * turn + worker)
    return torch.randperm(TABLE.rows // 100, generator=chance)[:count].sort().values * 100 + worker


class Mirror:
    """The values that the rows of one worker must have: nobody else pushes them."""

    def __init__(self, worker: int) -> None:
        self.worker, self.turns = worker, 0
        self._pushes = torch.zeros(TABLE.rows // 100)

    def next(self, count: int) -> Rows:
        """The changes [count, width] of the next turn: of each row by its turn's number."""
        self.turns += 1
        ids = touched(self.worker, self.turns, count)
        self._pushes[ids // 100] += self.turns
        return Rows(ids, torch.full((count, TABLE.width), float(self.turns)))

    def check(self, ids: Tensor, values: Tensor) -> None:
        """Raises AssertionError unless these are the values of the rows `ids` [k]."""
        due = self._pushes[ids // 100].unsqueeze(1).expand(-1, TABLE.width)
        assert torch.equal(values, due), f"worker {self.worker} got other rows after {self.turns} turns"


class OurRows(OurPushes):
    """`--protocol parameter_server` with one table; `elements` is the number of rows of a push."""

    def keys(self, elements: int) -> Keys:
        return Keys((), 0, torch.float32, (TABLE,))

    def initial(self, elements: int) -> Model:
        return Model(NOTHING, {TABLE.name: torch.zeros(TABLE.rows, TABLE.width)})

    async def exchanged(self, elements: int, all_ready: AllReady, *, first: bool) -> float:
        mirror = self.mirrors.setdefault(elements, Mirror(self.index - self.servers))
        change, client = mirror.next(elements), self.clients[elements]
        read = (0,) * len(self.keys(elements))
        await all_ready()
        if first:
            await client.enlist(0)
        began = time.perf_counter()
        client.push(mirror.turns, Pushes(NOTHING, {TABLE.name: change}), read)
        await client.at_most(0)
        pulled = await client.pull(mirror.turns, {TABLE.name: change.ids})
        taken = time.perf_counter() - began
        mirror.check(change.ids, pulled.rows[TABLE.name].values)
        return taken

    def set_up(self) -> None:
        super().set_up()
        self.mirrors: dict[int, Mirror] = {}


_ROWS: dict[int, Tensor] = {}
"""The rows that this process holds as a server of torch RPC, by their numbers; one that nobody has pushed is zeros."""


def _push_rows(ids: Tensor, changes: Tensor) -> Tensor:
    with ONE_AT_A_TIME:
        for number, change in zip(ids.tolist(), changes, strict=True):
            held = _ROWS.get(number)
            _ROWS[number] = change.clone() if held is None else held.add_(change)
        return torch.stack([_ROWS[number] for number in ids.tolist()])


class RowsRPC(TorchRPC):
    """torch.distributed.rpc with a server that holds a dict of rows: a call brings changes of rows and returns their
    values. Of several servers, row r is on server r modulo their number."""

    async def taken(self, elements: int, all_ready: AllReady) -> float:
        if self.index < self.servers:
            await all_ready()
            return 0.0
        if not self.pushes:
            self.mirror = Mirror(self.index - self.servers)
        self.pushes[elements] += 1
        change = self.mirror.next(elements)
        await all_ready()
        began = time.perf_counter()
        values = await asyncio.to_thread(self._rows, change)
        taken = time.perf_counter() - began
        self.mirror.check(change.ids, values)
        return taken

    def _rows(self, change: Rows) -> Tensor:
        places = [torch.nonzero(change.ids % self.servers == server)[:, 0] for server in range(self.servers)]
        answers = [
            rpc.rpc_async(str(server), _push_rows, (change.ids[those], change.values[those]))
            for server, those in enumerate(places)
        ]
        values = torch.empty_like(change.values)
        for those, answer in zip(places, answers, strict=True):
            values[those] = answer.wait()
        return values
