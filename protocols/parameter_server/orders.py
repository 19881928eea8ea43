"""Orders: the head of a range tells a coordinator the dot products of the range's vectors, and has the range obey what
the coordinator orders (`aggregation.lbfgs`).

Both wait for all copies: a coordinator never knows of an update, or of an order, that the loss of a server can undo.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import torch
from torch import Tensor

from ...aggregation.lbfgs import BASIS, ORDER, Order
from ...aggregation.server.lbfgs import gram, last_order
from ..channel import Channel, Envelope
from ..transfer.elements import raw
from ..wire.frames import PeerMisbehaved
from .chain import Chains
from .coordination import Measure, Measured, Obey, Obeyed
from .messages import COORDINATOR
from .store import Entry, Store
from .tenure import Tenure

MEASURES = BASIS * BASIS + 1 + ORDER
"""The numbers that a head tells: a Gram matrix, a loss and an order."""


class Orders:
    """One server's part, for the ranges of which it is the head: answers the coordinator with the dot products of their
    vectors, and applies its orders to all copies."""

    def __init__(self, channel: Channel, store: Store, tenure: Tenure, chains: Chains) -> None:
        self._channel, self._store, self._tenure, self._chains = channel, store, tenure, chains
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: list[Envelope] = []
        tenure.handler(Measure, self._on_measure, tenure.from_coordinator_to_head)
        tenure.handler(Obey, self._on_obey, tenure.from_coordinator_to_head)
        chains.on_entries.append(lambda ranges, workers: self._news.set())
        tenure.on_settled.append(self._news.set)

    def begin(self) -> None:
        """Refuse the coordinator's questions and orders that are not answered yet, because a new view begins. The
        coordinator asks again."""
        self.close()
        asked, self._asked = self._asked, []
        for envelope in asked:
            self._tenure.refuse(envelope)

    def close(self) -> None:
        """Answer no more questions."""
        for task in self._tasks:
            task.cancel()

    async def measure(self, step: int, ranges: Sequence[int]) -> tuple[tuple[int, ...], Tensor]:
        """Wait until all copies of `ranges` have the updates of `step` steps. Then return two things: for each range,
        the number of the coordinator's orders that it has obeyed; and, as one vector [MEASURES] in float64, the sum of
        the ranges' Gram matrices, the loss (0 unless its range is among them), and the last order of a range that has
        obeyed most."""
        copies = self._store.copies
        await self._until(lambda: all(one in self._tenure.ready and copies[one].updates >= step for one in ranges))
        await self._everywhere(ranges)
        total, loss = torch.zeros(BASIS, BASIS, dtype=torch.float64), 0.0
        orders = tuple(copies[one].clocks[COORDINATOR] - 1 for one in ranges)
        newest = Order()
        for number, obeyed in zip(ranges, orders, strict=True):
            copy = copies[number]
            if self._store.keys.is_buffer(number):
                loss = float(copy.values)
                continue
            total += gram(copy.state)
            if obeyed == max(orders):
                newest = last_order(copy.state)
        rest = torch.tensor([loss, *newest.to_plain()], dtype=torch.float64)
        return orders, torch.cat([total.reshape(-1), rest])

    async def obey(self, step: int, ranges: Sequence[int], order: tuple[float, ...]) -> None:
        """Have all copies of `ranges` obey the coordinator's order after step number `step`, and return when they have.
        `order`: the numbers of an `aggregation.lbfgs.Order`. A range that has obeyed this order already does not obey
        it twice. First waits until all of the ranges are settled (`tenure`)."""
        await self._until(lambda: self._tenure.ready >= {*ranges})
        copies = self._store.copies
        new = [number for number in ranges if copies[number].clocks[COORDINATOR] == step]
        self._chains.enter([Entry((number,), None, {COORDINATOR: step + 1}, order=order) for number in new])
        await self._everywhere(ranges)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._news.clear()
            await self._news.wait()

    async def _everywhere(self, ranges: Sequence[int]) -> None:
        """Wait until all copies of these ranges have the entries that this server's have."""
        there = asyncio.Event()
        self._chains.after(ranges, there.set)
        await there.wait()

    def _on_measure(self, envelope: Envelope) -> None:
        asked: Measure = envelope.message

        async def answer() -> None:
            orders, numbers = await self.measure(asked.step, asked.ranges)
            self._asked.remove(envelope)
            await self._channel.send(envelope.sender, Measured(asked.ask, orders), raw([numbers]))

        self._answer(envelope, answer())

    def _on_obey(self, envelope: Envelope) -> None:
        asked: Obey = envelope.message
        if len(asked.order) != ORDER:
            raise PeerMisbehaved(f"gave an order of {len(asked.order)} numbers")

        async def answer() -> None:
            await self.obey(asked.step, asked.ranges, asked.order)
            self._asked.remove(envelope)
            self._channel.post(envelope.sender, Obeyed(asked.ask))

        self._answer(envelope, answer())

    def _answer(self, envelope: Envelope, work: Coroutine[Any, Any, None]) -> None:
        self._asked.append(envelope)
        task = asyncio.create_task(work, name="orders")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
