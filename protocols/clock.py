"""The clock of a run, as one peer reads it."""

from __future__ import annotations

import asyncio


class RunClock:
    """The time since the run began, in seconds. The time that the run took before it was resumed counts too. A RunClock
    is made on the running event loop and reads that loop's clock, which is virtual in simulation."""

    def __init__(self, before_s: float = 0.0, former_s: float = 0.0) -> None:
        """`before_s`: seconds that the run had taken before it was resumed from a checkpoint, 0: it was not resumed.
        `former_s`: the run's time, in seconds, at the last record of earlier processes of this peer, 0: there was none.
        The larger of the two is counted from."""
        self._now = asyncio.get_running_loop().time
        self.before_s, self._counted_s = before_s, max(before_s, former_s)
        self._began_s: float | None = None

    @property
    def started(self) -> bool:
        """Whether this peer has begun to train."""
        return self._began_s is not None

    @property
    def began_s(self) -> float:
        """When the run began, in seconds on the loop's clock; before this peer has started, as if it started now."""
        return self._now() - self._counted_s if self._began_s is None else self._began_s

    def start(self, elapsed_s: float | None = None) -> None:
        """Note that this peer begins to train now. `elapsed_s`: how many seconds the run has lasted according to the
        other peers; None: as many as were counted before this process. A later call replaces an earlier one."""
        self._began_s = self._now() - (self._counted_s if elapsed_s is None else elapsed_s)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began; until this peer has started, what was counted before this process."""
        return self._counted_s if self._began_s is None else self._now() - self._began_s
