"""A simulated machine, which runs one process of a peer and can be crashed, paused or slowed down.

All code of a peer runs in its machine's context (`contextvars`), which every task and callback inherits. By it the loop
knows the machine of each callback, and holds back the callbacks of a dead or paused machine.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

MACHINE: contextvars.ContextVar[Machine | None] = contextvars.ContextVar("machine", default=None)
"""The machine whose code is running; None: code of the world itself."""


class Machine:
    """One simulated machine. `slowness`: factor by which its numerical work takes longer than usual."""

    def __init__(self, name: str, again: Callable[[asyncio.Handle], None], seed: int = 0) -> None:
        """`name`: number of the peer and of its process, e.g. ``3.1``. `again`: makes a kept callback ready
        (`VirtualLoop.again`). `seed`: for the order of timers that are due at the same time."""
        self.name, self._again = name, again
        self.tie = random.Random(f"{seed} {name}").random
        self.slowness = 1.0
        self.spoils: float | None = None
        """The value to be written to one element of the next contribution, as a miscalculation; None: none."""
        self.dead = False
        self.context = contextvars.Context()
        self.context.run(MACHINE.set, self)
        self._stops = 0
        self._hangs = 0
        self._goes_on = asyncio.Event()
        self._behind = False
        self._waiting: list[asyncio.Handle] = []
        self._tasks: list[asyncio.Task[Any]] = []

    @property
    def host(self) -> str:
        """The name of its hardware, which successive processes of one peer share: ``3`` for 3.0 and 3.1."""
        return self.name.partition(".")[0]

    @property
    def prompt(self) -> bool:
        """Whether a new callback may run at once: the machine is neither crashed nor paused, and no earlier callback is
        held back."""
        return not (self.dead or self._stops or self._behind)

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run `work` on this machine, as a task with this name."""
        task = asyncio.get_running_loop().create_task(work, name=name, context=self.context)
        self._tasks.append(task)
        return task

    def takes(self, handle: asyncio.Handle) -> bool:
        """Whether `handle` may run now. If not, it is kept until the machine resumes, or the world ends."""
        runs = not (self.dead or self._stops)
        if not runs:
            self._waiting.append(handle)
        return runs

    def crash(self) -> None:
        """End the process as by kill -9: none of its code runs any more, not even clean-up."""
        self.dead = True

    def pause(self) -> None:
        """Stop the process as by SIGSTOP: its callbacks and arriving frames wait, and clocks run on. A machine that was
        paused twice needs two calls of `resume`."""
        self._stops += 1

    def resume(self) -> None:
        """Undo one `pause`, as SIGCONT does."""
        self._stops -= 1
        if not (self.dead or self._stops):
            self._go_on()

    def hang(self) -> None:
        """Make numerical work not end, from now until `unhang`; all other code runs on."""
        self._hangs += 1

    def unhang(self) -> None:
        """Undo one `hang`."""
        self._hangs -= 1
        if not self._hangs:
            self._goes_on.set()

    async def works(self) -> None:
        """Wait until numerical work may end: at once, unless the machine hangs."""
        while self._hangs:
            self._goes_on.clear()
            await self._goes_on.wait()

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for handle in waiting:
            self._again(handle)
        self._behind = True
        asyncio.get_running_loop().call_soon(self._caught_up, context=contextvars.Context())

    def _caught_up(self) -> None:
        self._behind = False

    def clean_up(self) -> None:
        """Cancel the machine's tasks and let its callbacks run, so that tasks clean up. Called at the end of the
        world."""
        self.dead, self._stops = False, 0
        self._go_on()
        for task in self._tasks:
            task.cancel()
