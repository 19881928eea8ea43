"""Filling: a vector that is written while it is averaged already, bucket by bucket, by whoever computes it."""

from __future__ import annotations

import asyncio

from torch import Tensor


class Filling:
    """Made on the loop on which it is waited for. `vector`: [n], in so many `buckets`."""

    def __init__(self, vector: Tensor, buckets: int) -> None:
        loop = asyncio.get_running_loop()
        self.vector = vector
        self._full: list[asyncio.Future[None]] = [loop.create_future() for _ in range(buckets)]

    def fill(self, bucket: int) -> None:
        """All elements of it have been written, and are not written to any more. Twice is harmless."""
        if not self._full[bucket].done():
            self._full[bucket].set_result(None)

    async def filled(self, bucket: int) -> None:
        """Wait until it is."""
        await asyncio.shield(self._full[bucket])

    async def whole(self) -> Tensor:
        """The vector, when all of it is filled."""
        for full in self._full:
            await asyncio.shield(full)
        return self.vector
