"""A world of simulated peers: the same peers, trainers and conversations as on real machines, on a virtual network and
in virtual time. The numerical work is really done, and charged with a given virtual time for each local step."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import Any

import torch

from ...peers.records.records import Record
from ...peers.task.rng import derive
from ...peers.task.task import Task
from ...protocols.transport import PeerId
from ..scenarios.scenario import Kind, Scenario
from .event_log import Complained, Held, Log, Resumed
from .loop import VirtualLoop
from .nemesis import Nemesis
from .network import Network
from .priorities import Priorities
from .simulated_peer import Disk, Life
from .wall_clock import WallClock

BY_PRIORITIES, BEGUN_AGAIN = "messages came by priorities", "a run was begun again from checkpoints"


@dataclass(frozen=True, slots=True)
class Simulated:
    """The result of a simulation. `virtual_s`: its duration in virtual time."""

    accuracy: float | None
    virtual_s: float
    digest: str


class Hung(Exception):
    """Live peers were still running when the run should have been over."""


class World:
    """All peers of one simulated run. `record` is called with every round and event of every peer."""

    def __init__(self, task: Task, scenario: Scenario, record: Callable[[Record], None] = lambda record: None) -> None:
        self.scenario, self.log = scenario, Log()
        self._task, self._record, self._settings = task, record, scenario.settings
        self.network = Network(scenario.groups[0].link, derive(self._settings.seed, "network"))
        self.lives: list[Life] = []
        """Every life of every peer, in the order in which they began."""
        self._latest: dict[int, Life] = {}
        self._chance = random.Random(derive(self._settings.seed, "contacts"))
        self._disks = [Disk() for _ in range(scenario.peers)]
        self.ids: list[PeerId] = [f"peer-{index}" for index in range(scenario.peers)]
        self.clock = WallClock(lambda: asyncio.get_running_loop().time())
        self._expected: Counter[int] = Counter()
        self._met = False
        self._before = 0
        """Number of lives before the present run, if it was restarted from checkpoints."""
        self._dark_until_s = 0.0
        self._index = {peer: index for index, peer in enumerate(self.ids)}
        self._most_held: Counter[PeerId] = Counter()
        self.nemesis = Nemesis(self)
        for index, peer in enumerate(self.ids):
            self.network.links[peer] = scenario.group_of(index).link
            self.network.site[peer] = scenario.group_of(index).site
        if scenario.priorities is not None:
            self.log.reached[BY_PRIORITIES] += 1
            self.network.priorities = Priorities(
                self.ids,
                self._settings.seed,
                changes=scenario.priorities,
                patience_s=self._settings.patience_s,
            )
        self.network.trunks = {frozenset(ends): link for *ends, link in scenario.trunks}

    async def run(self, *, within_s: float | None = None) -> Simulated:
        """Run until all peers have ended; needs a virtual loop.

        Raises Hung when that takes longer than `within_s`; in a world without faults, also the error of a peer.
        """
        torch.set_num_threads(self._settings.threads or 1)  # more threads could sum in another order
        loop, late = asyncio.get_running_loop(), dict(self.scenario.arrivals)
        for index in range(self.scenario.peers):
            if index in late:
                self.begin_later(index, late[index])
            else:
                self.begin(index)
        self.nemesis.arm()
        if self.log.judged:
            self.network.after.append(self._measure)
        loop.set_exception_handler(self._complain)
        try:
            async with asyncio.timeout(within_s):
                with self.clock.on_the_wall():
                    await self._over()
        except TimeoutError:
            left = ", ".join(life.name for life in self.lives if life.running)
            raise Hung(f"{left} still run after {within_s:g} s") from None
        finally:
            self._close()
        errors = [life.error for life in self.lives if life.error is not None and life.index not in late]
        if errors and self.scenario.peaceful:
            raise errors[0]
        return self._simulated(loop.time())

    def _complain(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.log.add("world", Complained(f"{context.get('message')}: {context.get('exception')!r}"))

    async def _over(self) -> None:
        while self._expected or any(life.running for life in self.lives):
            for life in list(self.lives):
                await life.ended.wait()
            await asyncio.sleep(0.01)

    def expect(self, index: int) -> None:
        """Announce that the peer with this number is going to start."""
        self._expected[index] += 1

    def begin_later(self, index: int, seconds: float) -> None:
        """Start the process of the peer with this number after so many seconds."""
        self.expect(index)
        asyncio.get_running_loop().call_later(seconds, self.begin, index, context=Context())

    def begin(self, index: int) -> None:
        """Start the process of the peer with this number. It joins through one that is a member, or that is about to
        found the run; when there is neither, it founds the run itself."""
        self._expected -= Counter([index])
        if (dark_s := self._dark_until_s - asyncio.get_running_loop().time()) > 0:
            self.begin_later(index, dark_s)
            return
        running = [life for life in self.lives if life.running and life.index != index]
        if self.life(index) is not None:
            return  # it is there
        hosts = [life for life in running if life.peer.membership.view.members]
        if self._have_met() and not hosts:
            return  # the run is over
        hosts = hosts or [life for life in running if life.founds]
        contact = self._chance.choice(hosts).id if hosts else None
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        life = Life(
            index,
            sum(life.index == index for life in self.lives),
            task=self._task,
            settings=self._settings,
            network=self.network,
            log=self.log,
            disk=self._disks[index],
            records=self.scenario.buggify or any(fault.kind is not Kind.CLOCK for fault in self.scenario.faults),
            again=loop.again,
            step_s=self.scenario.group_of(index).step_s,
            buggify_until_s=self.scenario.buggify_until_s,
            record=self._record,
            stepped=self.nemesis.stepped,
            on_end=self._ended,
        )
        self.lives.append(life)
        self._latest[index] = life
        life.begin(contact, self.ids)

    def _ended(self, life: Life) -> None:
        """Restart an ended peer until the run has begun, as its user would do; later the run continues without it. In a
        world without faults a failed peer is not restarted: its error would only come again."""
        if not self._have_met() and not (life.error is not None and self.scenario.peaceful):
            self.begin_later(life.index, self._settings.patience_s)

    def _have_met(self) -> bool:
        """Whether the run has begun for any peer."""
        self._met = self._met or any(life.peer.membership.view.started for life in self.lives[self._before :])
        return self._met

    def life(self, index: int) -> Life | None:
        """The present life of the peer with this number; None: it is not running."""
        life = self._latest.get(index)
        return life if life is not None and life.running else None

    def _measure(self, peer: PeerId) -> None:
        """Record how many bytes wait at `peer` whenever they are twice the former maximum."""
        life = self.life(self._index[peer]) if peer in self._index else None
        if life is not None and life.endpoint.held_bytes >= 2 * self._most_held[peer] + 1:
            self._most_held[peer] = life.endpoint.held_bytes
            self.log.add(life.name, Held(self._most_held[peer]))

    def lose_disk(self, index: int) -> None:
        self._disks[index] = Disk()

    def outage(self, for_s: float) -> None:
        """A power failure of all peers, once the run has begun. After `for_s` seconds all peers that had been there
        restart it, from checkpoints of different rounds."""
        if not self._have_met() or any(life.result is not None for life in self.lives[self._before :]):
            return
        now = asyncio.get_running_loop().time()
        for life in self.lives:
            if life.running:
                life.crash()
        self.log.add("world", Resumed())
        self.log.reached[BEGUN_AGAIN] += 1
        self._met, self._before, self._dark_until_s = False, len(self.lives), now + for_s
        chance = random.Random(derive(self._settings.seed, "outage", self._before))
        for index in sorted({life.index for life in self.lives}):
            self._disks[index].resume(older=chance.choice((0, 0, 1, 2, 3)))
            self.begin_later(index, for_s + chance.uniform(0.0, self._settings.patience_s / 4))

    def _close(self) -> None:
        self.log.closed = True
        self.nemesis.close()
        for life in self.lives:
            self.network.close(life.id)
        for life in self.lives:
            life.machine.bury()

    def _simulated(self, virtual_s: float) -> Simulated:
        accuracies = [life.result.accuracy for life in self.lives if life.result and life.result.accuracy is not None]
        return Simulated(
            accuracy=accuracies[-1] if accuracies else None,
            virtual_s=virtual_s,
            digest=self.network.digest,
        )
