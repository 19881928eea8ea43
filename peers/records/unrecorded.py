"""What a peer has done since the record of its last exchange."""

from __future__ import annotations

from typing import NamedTuple

from ...protocols.conversation import Outcome
from ...protocols.work import Job, Steps


class Since(NamedTuple):
    """What a record tells since the one before: bytes, and local steps of a process before this one."""

    bytes_sent: int
    bytes_received: int
    bytes_shared: int
    steps_before: int


class Unrecorded:
    """Counts one peer's bytes, local steps and their seconds since its last record. Times are in seconds on the event
    loop's clock."""

    def __init__(self) -> None:
        self._bytes = (0, 0, 0)
        self._steps_recorded = 0
        """Local steps of this process that records have counted."""
        self._steps_before: int | None = None
        """Local steps of a process before this one, with which this peer has gone on amid a round, until a record has
        counted them; None: it has not begun to take steps."""
        self._compute_s = 0.0
        self._works_since_s: float | None = None
        """When the work under way began; None: none is."""

    def begins(self, job: Job, now_s: float) -> None:
        """Note that a work begins that is no evaluation."""
        self._works_since_s = now_s
        if self._steps_before is None and isinstance(job, Steps):
            self._steps_before = job.taken

    def ends(self, now_s: float) -> None:
        """Note that the work under way has ended, if there is one."""
        if self._works_since_s is not None:
            self._compute_s += now_s - self._works_since_s
        self._works_since_s = None

    def take(self, outcome: Outcome, sent: int, received: int, shared: int) -> Since:
        """Note that a record tells of `outcome`. `sent`, `received`, `shared`: the bytes of the peer in all."""
        before = self._steps_before or 0
        if before:
            self._steps_before = 0
        self._steps_recorded += outcome.steps - before
        self._compute_s = max(0.0, self._compute_s - outcome.compute_s)
        told, self._bytes = self._bytes, (sent, received, shared)
        return Since(sent - told[0], received - told[1], shared - told[2], before)

    def at_end(self, steps_made: int, now_s: float) -> tuple[int, float]:
        """The local steps of this process that no record has counted, and their seconds. `steps_made`: all that it has
        taken."""
        self.ends(now_s)
        steps = max(0, steps_made - self._steps_recorded)
        return steps, self._compute_s if steps else 0.0
