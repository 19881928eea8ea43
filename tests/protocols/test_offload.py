"""Numerical work in a thread holds its vectors no longer than until its result is there."""

import asyncio
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from samovar.protocols.offload import off_loop


class Keeping(ThreadPoolExecutor):
    """Keeps what it ran, as the thread of any executor does for a moment."""

    def __init__(self) -> None:
        super().__init__(1)
        self.kept: list[object] = []

    def submit(self, fn: Callable[..., Any], /, *about: Any, **more: Any) -> Future[Any]:
        self.kept.append(fn)
        return super().submit(fn, *about, **more)


async def test_the_vectors_of_a_work_are_free_when_its_result_is_there() -> None:
    keeping, vector = Keeping(), torch.ones(1 << 19)
    asyncio.get_running_loop().set_default_executor(keeping)
    there = weakref.ref(vector)
    assert await off_loop(vector.nbytes, lambda one=vector: float(one.sum())) == 1 << 19  # type: ignore[misc]
    del vector
    assert len(keeping.kept) == 1
    assert there() is None
