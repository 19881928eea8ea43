"""A throttle: it delays functions so that the bytes that they send keep to a rate."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

_BURST_S = 0.1
"""Of a rate that was not used, the bytes of this many seconds may be sent at once later."""


class Throttle:
    """Calls functions at once or later, in order, so that the bytes that they send keep to `rate_Bps`, in bytes a
    second. After a pause, the bytes of 0.1 s may go at once."""

    def __init__(self, rate_Bps: float) -> None:
        self._rate_Bps, self._free_s = rate_Bps, 0.0
        self._waiting = deque[tuple[int, Callable[[], None]]]()

    def take(self, size: int, do: Callable[[], None]) -> None:
        """Call `do`, which sends `size` bytes, at once or later, after all functions that were given before. An error
        of a function that is called at once is raised here; that of one that is called later goes to the event loop."""
        self._waiting.append((size, do))
        if len(self._waiting) == 1:
            self._pass()

    def _pass(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            if (wait_s := self._free_s - loop.time()) > 0:
                loop.call_later(wait_s, self._pass)
                return
            size, do = self._waiting.popleft()
            self._free_s = max(self._free_s, loop.time() - _BURST_S) + size / self._rate_Bps
            try:
                do()
            except Exception:
                if self._waiting:
                    loop.call_soon(self._pass)
                raise
