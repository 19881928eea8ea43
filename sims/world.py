"""A world of simulated peers: the same peers, trainers and conversations as on real machines, on a virtual network and
in virtual time. The numerical work is really done, and charged at a given time a local step."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..peers.records import PeerSummary, Record
from ..peers.task import Task
from ..peers.trainer import derive
from ..protocols.transport import PeerId
from .life import Disk, Life
from .log import Log
from .loop import VirtualLoop
from .nemesis import Nemesis
from .network import Network
from .scenario import Scenario
from .wall_clock import WallClock


@dataclass(frozen=True, slots=True)
class Simulated:
    """How a simulation ended. `virtual_s`: how long it took in its own world."""

    summaries: list[PeerSummary]
    accuracy: float | None
    virtual_s: float
    digest: str


class Hung(AssertionError):
    """Peers that live were still at it when all should have been over."""


class World:
    """All peers of one simulated run. `record` is told of every round and event of every peer."""

    def __init__(self, task: Task, scenario: Scenario, record: Callable[[Record], None] = lambda record: None) -> None:
        self.scenario, self.log = scenario, Log()
        self._task, self._record, self._settings = task, record, scenario.settings
        self.network = Network(scenario.groups[0].link, derive(self._settings.seed, "network"))
        self.lives: list[Life] = []
        """Every life of every peer, in the order in which they began."""
        self._chance = random.Random(derive(self._settings.seed, "contacts"))
        self._disks = [Disk() for _ in range(scenario.peers)]
        self.ids: list[PeerId] = [f"peer-{index}" for index in range(scenario.peers)]
        self.clock = WallClock(lambda: asyncio.get_running_loop().time())
        self.nemesis = Nemesis(self)
        for index, peer in enumerate(self.ids):
            self.network.links[peer] = scenario.group_of(index).link
            self.network.site[peer] = scenario.group_of(index).site
        self.network.trunks = {frozenset(ends): link for *ends, link in scenario.trunks}

    async def run(self, *, within_s: float | None = None) -> Simulated:
        """Run until all peers have ended; needs a virtual loop.

        Raises Hung when that takes longer than `within_s`, and, where nothing was to go wrong, what a peer raises.
        """
        torch.set_num_threads(self._settings.threads or 1)  # more threads could sum in another order
        loop, late = asyncio.get_running_loop(), dict(self.scenario.arrivals)
        founders = [index for index in range(self.scenario.peers) if index not in late]
        for index in founders:
            self.begin(index, None if index == founders[0] else self.ids[founders[0]])
        for index, at_s in self.scenario.arrivals:
            loop.call_at(at_s, self.begin, index)
        self.nemesis.arm()
        try:
            async with asyncio.timeout(within_s):
                with self.clock.on_the_wall():
                    await self._over(max((at_s for _, at_s in self.scenario.arrivals), default=0.0))
        except TimeoutError:
            left = ", ".join(life.name for life in self.lives if life.running)
            raise Hung(f"{left} still run after {within_s:g} s") from None
        finally:
            self._close()
        errors = [life.error for life in self.lives if life.error is not None]
        if errors and not self.scenario.faults:
            raise errors[0]
        return self._simulated(loop.time())

    async def _over(self, last_arrival_s: float) -> None:
        while True:
            for life in list(self.lives):
                await life.ended.wait()
            busy = any(life.running for life in self.lives) or self.nemesis.owes_a_start
            if not busy and asyncio.get_running_loop().time() >= last_arrival_s:
                return
            await asyncio.sleep(0.01)

    def begin(self, index: int, contact: PeerId | None = None) -> None:
        """Start the process of the peer with this number; it joins through `contact`, or through whoever runs."""
        before = [life for life in self.lives if life.index == index]
        if contact is None and self.lives:
            running = [life.id for life in self.lives if life.running and life.index != index]
            if not running:
                return  # there is no run to join any more
            contact = self._chance.choice(running)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        life = Life(
            index,
            len(before),
            task=self._task,
            settings=self._settings,
            network=self.network,
            log=self.log,
            disk=self._disks[index],
            again=loop.again,
            step_s=self.scenario.group_of(index).step_s,
            buggify=self.scenario.buggify,
            record=self._record,
            stepped=self.nemesis.stepped,
        )
        self.lives.append(life)
        life.begin(contact, self.ids)

    def life(self, index: int) -> Life | None:
        """The life that the peer with this number leads now."""
        return next((life for life in reversed(self.lives) if life.index == index and life.running), None)

    def lose_disk(self, index: int) -> None:
        self._disks[index] = Disk()

    def _close(self) -> None:
        for life in self.lives:
            self.network.close(life.id)
        for life in self.lives:
            life.machine.bury()

    def _simulated(self, virtual_s: float) -> Simulated:
        accuracies = [life.result.accuracy for life in self.lives if life.result and life.result.accuracy is not None]
        return Simulated(
            summaries=[life.peer.summary() for life in self.lives],
            accuracy=accuracies[-1] if accuracies else None,
            virtual_s=virtual_s,
            digest=self.network.digest,
        )
