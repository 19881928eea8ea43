"""The thread for numerical work of a simulated peer, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from ...protocols.work import Update
from .machine import Machine

T = TypeVar("T")


class VirtualCompute:
    """Runs numerical work at once, and then waits for the virtual time that the work takes on this machine. `step_s`:
    virtual seconds of a local step; `stepped` is called with the number of each local step, from 1 on, before this
    time."""

    def __init__(self, machine: Machine, step_s: float, stepped: Callable[[int], None]) -> None:
        self._machine, self._step_s, self._stepped = machine, step_s, stepped
        self._steps = 0

    async def run(self, work: Callable[[], T], *, steps: int = 0) -> T:
        """Run `work` at once, and return its result: without `steps` at once, else after the virtual time of so many
        local steps, and not while the machine hangs. If the machine is to spoil a contribution (`Machine.spoils`), the
        first element of an update is replaced. Raises what `work` raises."""
        result = work()
        if isinstance(result, Update) and result.weight and self._machine.spoils is not None:
            result.vector[0], self._machine.spoils = self._machine.spoils, None
        for _ in range(steps):
            self._steps += 1
            self._stepped(self._steps)
        if steps:
            await asyncio.sleep(steps * self._step_s * self._machine.slowness)
            await self._machine.works()
        return result
