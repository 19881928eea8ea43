"""An event loop in a thread of its own, for a peer beside a user's own training loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
_CLOSE_S = 5.0


class Background:
    """An event loop on a daemon thread, which starts at construction. Its methods are for other threads: `call` and
    `wait` would wait for ever on the loop's own. A program that ends without `close` does not wait for the thread."""

    def __init__(self) -> None:
        running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(_until_over(running)), name="samovar", daemon=True)
        self._thread.start()
        self._loop, self._over = running.result()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and return its result, or raise its exception. An exception that interrupts the wait,
        e.g. Ctrl-C, cancels the work."""
        return self.wait(self.start(work))

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin to run `work` on the loop. Returns its future at once."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(self, started: Future[T]) -> T:
        """Wait for the future `started` and return its result, or raise its exception. An exception that interrupts the
        wait, e.g. Ctrl-C, cancels it."""
        try:
            return started.result()
        except BaseException:
            started.cancel()
            raise

    def soon(self, do: Callable[[], None]) -> None:
        """Call `do` on the loop without waiting for it."""
        self._loop.call_soon_threadsafe(do)

    def close(self) -> None:
        """End the loop, cancel the tasks that still run, and wait up to 5 s for the thread."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(_CLOSE_S)


async def _until_over(running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    over = asyncio.Event()
    running.set_result((asyncio.get_running_loop(), over))
    await over.wait()
