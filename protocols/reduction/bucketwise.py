"""The mean of gradients, bucket by bucket, each as soon as all of it is there: communication goes on during backward.

Each bucket is a weighted sum of its own, with its own schedule and its weight inside: sum of w_i g_i, then sum of w_i.
Over messages all buckets are under way at once; in shared memory, which has one place for sums, one after another.
Cost: the schedule's for each bucket. On loss, lateness or death of a peer: the whole round is done again by the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from ...aggregation.codecs.codec import seed_of
from ...aggregation.mean import Mean, contribute
from ...aggregation.vector import Part
from ..off_loop import off_loop
from ..rounds import Contribution, Key
from ..state import fingerprint
from .averagers import Owed, mean_of
from .reducer import Reducer

T = TypeVar("T")


class BucketAverager:
    """`buckets`: the parts of the vector, the same on all peers, in the order in which they are filled."""

    owed: Owed | None = None

    def __init__(self, reducer: Reducer, buckets: Sequence[Part]) -> None:
        self._reducer, self._buckets = reducer, buckets

    async def mean(self, contribution: Contribution, anchor: Tensor, key: Key) -> tuple[Mean | None, int]:
        numbers = range(len(self._buckets))
        if self._reducer.shares_memory:
            found = [await self._sum(number, contribution, key) for number in numbers]
        else:
            found = await _together([self._sum(number, contribution, key) for number in numbers])
        mark = seed_of(*(mark for _, mark in found))
        means = [mean for mean, _ in found if mean is not None]
        if len(means) < len(found):
            return None, mark
        vector = await off_loop(anchor.nbytes, lambda: self._whole(means, anchor))
        return means[-1]._replace(vector=vector), mark

    def _whole(self, means: Sequence[Mean], anchor: Tensor) -> Tensor:
        vector = torch.empty_like(anchor)
        for (start, stop), mean in zip(self._buckets, means, strict=True):
            vector[start:stop] = mean.vector
        return vector

    async def _sum(self, number: int, contribution: Contribution, key: Key) -> tuple[Mean | None, int]:
        """The mean of one bucket; that of the signals comes with the last."""
        start, stop = self._buckets[number]
        if contribution.filling is not None:
            await contribution.filling.filled(number)
        signals = contribution.signals if number == len(self._buckets) - 1 else ()
        here, nbytes = contribution.vector[start:stop], (stop - start) * contribution.vector.itemsize
        brought = await off_loop(nbytes, lambda: contribute(here, contribution.weight, signals))
        total = await self._reducer.sum(brought, key, stage=number)
        return await off_loop(nbytes, lambda: (mean_of(total, len(signals)), fingerprint(total)))

    def committed(self) -> None: ...


async def _together(coroutines: Sequence[Coroutine[object, object, T]]) -> list[T]:
    """The results of all of them; the first that fails ends the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
