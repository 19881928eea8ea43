"""Where numerical work is done: off the event loop, so that heartbeats and other peers' chunks never wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Compute(Protocol):
    """A place for numerical work; one piece at a time, in order."""

    async def run(self, work: Callable[[], T], *, steps: int = 0) -> T:
        """The result of `work`, which takes `steps` local steps (what it costs in virtual time)."""
        ...


class Quit(RuntimeError):
    """A task's function asked for the end of the process, or of an iteration that is not its own."""


class ThreadCompute:
    """One worker thread. torch releases the GIL in its kernels, so the loop goes on beside it."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="compute")

    async def run(self, work: Callable[[], T], *, steps: int = 0) -> T:
        """Raises Quit in place of what would end the event loop, or could never come over to it."""

        def whole() -> T:
            try:
                return work()
            except (SystemExit, KeyboardInterrupt, StopIteration) as error:
                raise Quit(f"{type(error).__name__}({error})").with_traceback(error.__traceback__) from None

        return await asyncio.get_running_loop().run_in_executor(self._pool, whole)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
