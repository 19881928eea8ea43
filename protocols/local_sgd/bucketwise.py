"""The mean of gradients, bucket by bucket, each as soon as it is complete: communication overlaps the backward pass.

A bucket is a range of the vector. Each is summed on its own, with its own schedule and the weights appended: sum of w_i
g_i, then sum of w_i. Over messages all buckets are summed concurrently. Shared memory has room for one sum, so there
they are summed one after another.
Cost: the schedule's for each bucket.
On failure: the others run the whole round again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from ...aggregation.codecs.codec import seed_of
from ...aggregation.mean import BadSum, Mean, contribute
from ...aggregation.vector import Part
from ..collectives.reducer import Reducer
from ..offload import off_loop
from ..transfer.chunks import AttemptId
from .averagers import Owed, mean_of
from .rounds import Contribution
from .state import fingerprint

T = TypeVar("T")


class BucketAverager:
    """Averages bucket by bucket, without a codec. `buckets`: parts of the vector, the same on all peers, in the order
    in which backward fills them."""

    owed: Owed | None = None

    def __init__(self, reducer: Reducer, buckets: Sequence[Part]) -> None:
        self._reducer, self._buckets = reducer, buckets

    async def mean(self, contribution: Contribution, anchor: Tensor, attempt: AttemptId) -> tuple[Mean | None, int]:
        numbers = range(len(self._buckets))
        if self._reducer.shares_memory:
            found = [await self._sum(number, contribution, anchor, attempt) for number in numbers]
        else:
            found = await _together([self._sum(number, contribution, anchor, attempt) for number in numbers])
        for mean, _ in found:
            if isinstance(mean, BadSum):
                raise mean
        mark = seed_of(*(mark for _, mark in found))
        means = [mean for mean, _ in found if isinstance(mean, Mean)]
        if len(means) < len(found):
            return None, mark
        vector = await off_loop(anchor.nbytes, lambda: self._whole(means, anchor))
        return means[-1]._replace(vector=vector, norm=math.hypot(*(mean.norm for mean in means))), mark

    def _whole(self, means: Sequence[Mean], anchor: Tensor) -> Tensor:
        vector = torch.empty_like(anchor)
        for (start, stop), mean in zip(self._buckets, means, strict=True):
            vector[start:stop] = mean.vector
        return vector

    async def _sum(
        self, number: int, contribution: Contribution, anchor: Tensor, attempt: AttemptId
    ) -> tuple[Mean | BadSum | None, int]:
        """The mean of one bucket; the last bucket also carries the signals. If it has no mean, the sums of the other
        buckets are still made, because other peers may wait for them."""
        start, stop = self._buckets[number]
        if contribution.filling is not None:
            await contribution.filling.filled(number)
        signals = contribution.signals if number == len(self._buckets) - 1 else ()
        here, nbytes = contribution.vector[start:stop], (stop - start) * contribution.vector.itemsize

        def brought() -> Tensor:
            message = contribute(here, contribution.weight, signals)
            contribution.check(message)
            return message

        def found() -> tuple[Mean | BadSum | None, int]:
            mark = fingerprint(total)
            try:
                return mean_of(self._reducer, total, anchor[start:stop], len(signals)), mark
            except BadSum as bad:
                return bad, mark

        message = await off_loop(nbytes, brought)
        total = await self._reducer.sum(message, attempt, stage=number, tail=len(signals) + 1)
        return await off_loop(nbytes, found)

    def committed(self) -> None: ...


async def _together(coroutines: Sequence[Coroutine[object, object, T]]) -> list[T]:
    """The results of all coroutines. The first error cancels the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
