"""The coordinator of Sandblaster L-BFGS: it has no vectors. After the update of each step it adds the dot products that
the heads of all ranges tell, decides (`aggregation.lbfgs`), and has all ranges obey.

The head of the first range coordinates. A new one reads the last order from the ranges, has those obey that lack it,
and goes on: at most one order is under way, so ranges differ by at most that one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable

import torch
from torch import Tensor

from ...aggregation.lbfgs import BASIS, Order, decide
from ..channel import Channel
from ..link.link import PeerLost
from ..transfer.elements import of_bytes
from ..transport import PeerId
from .coordination import Measure, Measured, Obey, Obeyed
from .lost_range import LostRange, taken
from .messages import NotTaken
from .orders import MEASURES, Orders
from .tenure import Tenure


class Coordinator:
    """One server's part: in the views in which it is the head of the first range, it adds the dot products of all
    ranges after each step, and orders what all ranges do then. `steps`: the number of steps of the run."""

    def __init__(self, channel: Channel, tenure: Tenure, orders: Orders, steps: int) -> None:
        self._channel, self._tenure, self._orders, self._steps = channel, tenure, orders, steps
        self._leading: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin to coordinate in the new view, if this server is the head of its first range."""
        self.close()
        if self._tenure.head(0) == self._tenure.me:
            self._leading = asyncio.create_task(self._lead(), name="coordinator")

    def close(self) -> None:
        """Coordinate no more."""
        if self._leading is not None:
            self._leading.cancel()

    async def _lead(self) -> None:
        """Coordinate until all steps are done, or the view is over, or a range is lost, of which workers are told."""
        try:
            orders, _, _, last = await self._measured(0)
            step = max(orders)
            if min(orders) < step:
                await self._obeyed(step, last)
            while step < self._steps:
                step += 1
                _, gram, loss, _ = await self._measured(step)
                last = decide(gram, loss, last.search, last=step == self._steps)
                await self._obeyed(step, last)
        except* LostRange:
            pass

    async def _measured(self, step: int) -> tuple[list[int], Tensor, float, Order]:
        """By range, how many orders it has obeyed; the Gram matrix; the loss; and the last order that any obeyed."""
        total, loss, found = torch.zeros(BASIS, BASIS, dtype=torch.float64), 0.0, dict[int, int]()
        newest, last = -1, Order()

        async def one(head: PeerId, ranges: tuple[int, ...]) -> None:
            nonlocal total, loss, newest, last
            if head == self._tenure.me:
                orders, numbers = await self._orders.measure(step, ranges)
            else:
                epoch = self._tenure.epoch
                answer = await self._channel.ask(
                    head, lambda ask: Measure(ask, epoch, step, ranges), answers=(Measured, NotTaken)
                )
                measured: Measured = taken(answer.message)
                orders, numbers = measured.orders, of_bytes(bytes(answer.payload), torch.float64)
                answer.done()
                if len(orders) != len(ranges) or numbers.numel() != MEASURES:
                    raise PeerLost(head, f"it told {numbers.numel()} numbers of {len(orders)} ranges")
            total, loss = total + numbers[: BASIS * BASIS].view(BASIS, BASIS), loss + float(numbers[BASIS * BASIS])
            found.update(zip(ranges, orders, strict=True))
            if max(orders) > newest and any(number + 1 < self._tenure.count for number in ranges):
                newest, last = max(orders), Order.from_plain(numbers[BASIS * BASIS + 1 :].tolist())

        await self._with_heads(one)
        return [*found.values()], total, loss, last

    async def _obeyed(self, step: int, order: Order) -> None:
        plain = order.to_plain()

        async def one(head: PeerId, ranges: tuple[int, ...]) -> None:
            if head == self._tenure.me:
                await self._orders.obey(step, ranges, plain)
                return
            epoch = self._tenure.epoch
            answer = await self._channel.ask(
                head, lambda ask: Obey(ask, epoch, step, ranges, plain), answers=(Obeyed, NotTaken)
            )
            taken(answer.message)

        await self._with_heads(one)

    async def _with_heads(self, exchange: Callable[[PeerId, tuple[int, ...]], Awaitable[None]]) -> None:
        """Have `exchange` done once with each head. One that does not answer is asked again, until the view is over."""
        of: defaultdict[PeerId, list[int]] = defaultdict(list)
        for number in range(self._tenure.count):
            of[self._tenure.placement.chain(number)[0]].append(number)

        async def until_done(head: PeerId) -> None:
            while True:
                with contextlib.suppress(PeerLost):
                    return await exchange(head, tuple(of[head]))
                await asyncio.sleep(self._channel.endpoint.interval_s)
                self._channel.endpoint.retry(head)

        async with asyncio.TaskGroup() as group:
            for head in sorted(of):
                group.create_task(until_done(head), name="head")
