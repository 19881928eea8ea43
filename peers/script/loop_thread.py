"""An event loop in a thread of its own, for a peer that lives beside somebody's own training loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
_CLOSE_S = 5.0


class Background:
    """Begins to run when it is made. The thread is a daemon: a program that just ends does not wait for it."""

    def __init__(self) -> None:
        running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(_until_over(running)), name="samovar", daemon=True)
        self._thread.start()
        self._loop, self._over = running.result()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work` on the loop and wait for its result; whatever ends the waiting, e.g. Ctrl-C, ends the work."""
        return self.wait(self.start(work))

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Do `work` on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(self, started: Future[T]) -> T:
        """The result of what was started; whatever ends the waiting ends the work."""
        try:
            return started.result()
        except BaseException:
            started.cancel()
            raise

    def soon(self, do: Callable[[], None]) -> None:
        """Do on the loop, and do not wait for it."""
        self._loop.call_soon_threadsafe(do)

    def close(self) -> None:
        """Cancel what still goes on."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(_CLOSE_S)


async def _until_over(running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    over = asyncio.Event()
    running.set_result((asyncio.get_running_loop(), over))
    await over.wait()
