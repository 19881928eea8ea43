"""Filling: a vector that is averaged bucket by bucket while it is still being computed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from torch import Tensor


class Filling:
    """Tracks which of the `buckets`, 0 to `buckets` - 1, of `vector` [n] are filled. It neither knows which elements
    belong to a bucket nor writes any. Construct it on the event loop that waits for it; all methods belong to that
    loop, so that a thread that has filled a bucket has the loop call `fill`."""

    def __init__(self, vector: Tensor, buckets: int) -> None:
        loop = asyncio.get_running_loop()
        self.vector = vector
        self._full: list[asyncio.Future[None]] = [loop.create_future() for _ in range(buckets)]
        self._left = buckets
        self._told: list[Callable[[], None]] = []

    def when_whole(self, told: Callable[[], None]) -> None:
        """Call `told` once, as soon as all buckets are filled; within this call if they are."""
        self._told.append(told)
        if not self._left:
            told()

    def fill(self, bucket: int) -> None:
        """Note that all elements of `bucket` are written and will not be written again. A second call does nothing.
        For the last bucket it calls the functions given to `when_whole`."""
        if not self._full[bucket].done():
            self._full[bucket].set_result(None)
            self._left -= 1
            if not self._left:
                for told in self._told:
                    told()

    async def filled(self, bucket: int) -> None:
        """Wait until `bucket` is filled."""
        await asyncio.shield(self._full[bucket])

    async def whole(self) -> Tensor:
        """Wait until all buckets are filled, and return the vector itself, no copy."""
        for full in self._full:
            await asyncio.shield(full)
        return self.vector
