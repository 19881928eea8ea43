"""The request to stop a peer, and the exception by which a user's program learns that its run was stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Stopped(SystemExit):
    """The run was stopped by its user, e.g. by Ctrl-C; its text `why` is one line. A program that does not catch it
    ends, with the exit code `code`: 130, but 0 in a script that `samovar train` started, which itself ends with 130.
    An ``optimizer.step()`` of a script that raises it has taken its step.
    `result`: the `samovar.Result` so far, if `samovar.train` raises it and the run had begun; else None."""

    def __init__(self, why: str, code: int, result: Any = None) -> None:
        super().__init__(why)
        self.code, self.result = code, result

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle and copy, which would otherwise call the class with the text alone."""
        return type(self), (str(self), self.code, self.result)


class Stop:
    """A flag that asks a peer to stop. Once it is set, it stays set. `set` belongs to the event loop. Any thread may
    read `flag`, and one that has the loop call `set` may set it before."""

    def __init__(self) -> None:
        self.flag = False
        self._running: set[asyncio.Timeout] = set()

    def set(self) -> None:
        """Set the flag, and cancel all work that runs in `unless`, at the event loop's next turn."""
        self.flag = True
        running, self._running = self._running, set()
        for work in running:
            work.reschedule(0.0)

    async def unless(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T | None:
        """Await `work()` and return its result. Returns None when the flag is set before it is done: `work` is then
        cancelled, or not called at all. Raises what `work` raises."""
        if self.flag:
            return None
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._running.add(limit)
                return await work()
        except TimeoutError:
            if not limit.expired():
                raise
            return None
        finally:
            self._running.discard(limit)
