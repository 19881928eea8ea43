"""A thread for numerical work beside the event loop, so that heartbeats and other peers' chunks never wait for a
kernel; and the port `Compute`, which a simulation implements in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import torch

from ..user_code import quits

T = TypeVar("T")


class Compute(Protocol):
    """An executor for numerical work: one call at a time, in the order in which they were made."""

    async def run(self, work: Callable[[], T], *, steps: int = 0) -> T:
        """Run `work` and return its result. `steps`: local steps in it, for which a simulation charges virtual time.
        Raises what `work` raises, or Quit in place of an exception that the event loop cannot pass on
        (`ThreadCompute.run`)."""
        ...


class Quit(RuntimeError):
    """A task's function raised SystemExit, KeyboardInterrupt or a stray StopIteration."""


class ThreadCompute:
    """One worker thread, which `close` ends. torch releases the GIL in its kernels, so the event loop runs beside
    it."""

    def __init__(self) -> None:
        # Asking for the number of kernel threads sets it in the thread that asks. In a thread that never did so, roots
        # of a few hundred elements are computed on all cores, and the cores wait for each other far longer.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="compute", initializer=torch.get_num_threads)

    async def run(self, work: Callable[[], T], *, steps: int = 0) -> T:
        """Run `work` on the thread, after the work of earlier calls, and return its result; `steps` has no effect here.
        Raises what `work` raises; but Quit in place of SystemExit and KeyboardInterrupt, which would end the event
        loop, and of StopIteration, which no future can carry. RuntimeError after `close`. If the caller is cancelled,
        work that has begun still goes on to its end, and its result is dropped; work that has not begun is never
        run."""

        def whole() -> T:
            try:
                return work()
            except (SystemExit, KeyboardInterrupt, StopIteration) as error:
                raise Quit(quits(error)).with_traceback(error.__traceback__) from None

        return await asyncio.get_running_loop().run_in_executor(self._pool, whole)

    def close(self) -> None:
        """End the worker thread after the work that it has begun, without waiting for it; work that has not begun is
        cancelled."""
        self._pool.shutdown(wait=False, cancel_futures=True)
