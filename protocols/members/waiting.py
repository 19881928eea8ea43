"""Waits for changes in one peer's knowledge of the others, and raises the errors that make waiting hopeless."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable

TELL_EVERY_S = 30.0
"""Seconds between two notices that this peer waits for others."""


class Waiting:
    """A peer's conditions that are waited for. Code that changes anything on which a condition may depend calls
    `notify`. The listeners of `on_waiting` hear the reason when this peer waits for absent peers; those of `on_short`
    are called when it trains on in place of waiting."""

    def __init__(self) -> None:
        self.failed: Exception | None = None
        """The error that has ended this peer's part in the run, and that its waits raise; None: there is none. The
        owner sets it to None when this peer joins again."""
        self.on_waiting: list[Callable[[str], None]] = []
        """Called with the reason when this peer waits for absent peers."""
        self.on_short: list[Callable[[], None]] = []
        """Called when too few members answer to decide a view, and this peer trains on."""
        self._told_at_s = -math.inf
        self.on_change: list[Callable[[], None]] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._limits: dict[asyncio.Timeout, Callable[[], bool]] = {}

    def tell_waiting(self, why: str) -> None:
        """Report to `on_waiting` that this peer waits, and `why`; at most once in 30 s, so callers may repeat it."""
        now = asyncio.get_running_loop().time()
        if now >= self._told_at_s + TELL_EVERY_S:
            self._told_at_s = now
            for told in self.on_waiting:
                told(why)

    def falls_short(self, why: str, *, trains_on: bool) -> None:
        """Note that too few members answer to decide a view: report the wait for them (`tell_waiting`), or, if this
        peer `trains_on` meanwhile, tell `on_short`."""
        if not trains_on:
            self.tell_waiting(why)
            return
        self._told_at_s = asyncio.get_running_loop().time()
        for told in self.on_short:
            told()

    @property
    def waits(self) -> bool:
        """Whether a wait was reported (`tell_waiting`, `falls_short`) that is not over yet."""
        return self._told_at_s > -math.inf

    def waits_no_more(self) -> None:
        """Record that the wait is over, so that the next one is reported at once."""
        self._told_at_s = -math.inf

    def fail(self, error: Exception) -> None:
        """Set `failed`, and raise `error` in all waiters, also in later ones for as long as `failed` is set."""
        self.failed = error
        self.notify()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition()` holds. It is tested at once, and again after each `notify`, without a time limit.
        Raises the error passed to `fail`, also if `fail` was called before and although the condition holds."""
        while True:
            if self.failed is not None:
                raise self.failed
            if condition():
                return
            await self._change()

    @contextlib.asynccontextmanager
    async def only_while(self, condition: Callable[[], bool]) -> AsyncIterator[None]:
        """Context whose body is cancelled as soon as `condition` does not hold, or `failed` is set. The condition is
        tested at once, and again on each `notify`. Ends without an error in the first case; raises the error of
        `failed` in the second, also if it is set at the beginning."""
        if self.failed is not None:
            raise self.failed
        limit = asyncio.timeout(None if condition() else 0.0)
        try:
            async with limit:
                self._limits[limit] = condition
                yield
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            self._limits.pop(limit, None)
        if self.failed is not None:
            raise self.failed

    async def change_within(self, seconds: float) -> None:
        """Wait for the next `notify`, but for `seconds` at most. Returns in both cases."""
        try:
            async with asyncio.timeout(seconds):
                await self._change()
        except TimeoutError:
            pass

    async def _change(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def notify(self) -> None:
        """Call the listeners of `on_change`, and test all conditions that are waited for. To be called when something
        has changed on which a condition may depend."""
        for told in self.on_change:
            told()
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
        for limit, condition in list(self._limits.items()):
            if self.failed is not None or not condition():
                del self._limits[limit]
                limit.reschedule(0.0)
