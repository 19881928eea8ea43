"""A world of simulated peers: the peers, trainers and conversations of real runs, on a virtual network and in virtual
time. The numerical work is really computed. Each local step takes a given virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import dataclass
from typing import Any

import torch

from ...peers.records.records import Record
from ...peers.records.tally import told_by
from ...peers.task.rng import derive
from ...peers.task.task import Task
from ...protocols.conversation import End
from ...protocols.transport import PeerId
from ..scenarios.scenario import Kind, Scenario
from .common_memory import CommonMemory
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
    """The result of a simulation. `metrics`: those of the final model, empty if it was not evaluated; `scales`: theirs,
    by name; `metrics_of`: the number of the peer whose model they are of, "" if the peers' models have equal ones;
    `virtual_s`: the duration in virtual seconds; `digest`: hash over all deliveries; `end`: why the run is over; None:
    no peer tells."""

    metrics: Mapping[str, float]
    scales: Mapping[str, str]
    virtual_s: float
    digest: str
    end: End | None = None
    metrics_of: str = ""


class Hung(Exception):
    """Peers were still running at the virtual time by which the run should have been over."""


class World:
    """All peers of one simulated run, their network, clocks and faults; `run` runs it once. `record` is called with
    every record of every peer."""

    def __init__(self, task: Task, scenario: Scenario, record: Callable[[Record], None] = lambda record: None) -> None:
        self.scenario, self.log = scenario, Log()
        self._task, self._record, self._settings = task, record, scenario.settings
        self.network = Network(scenario.groups[0].link, derive(self._settings.seed, "network"))
        self.lives: list[Life] = []
        """Every process of every peer, in the order in which they were started."""
        self._latest: dict[int, Life] = {}
        self._chance = random.Random(derive(self._settings.seed, "contacts"))
        memory = CommonMemory()
        self._disks = [Disk(memory) for _ in range(scenario.peers)]
        self.ids: list[PeerId] = [f"peer-{index}" for index in range(scenario.peers)]
        self.clock = WallClock(lambda: asyncio.get_running_loop().time())
        self._expected: Counter[int] = Counter()
        self._met = False
        self._before = 0
        """Number of processes that were started before an outage, after which the run was resumed from checkpoints."""
        self._dark_until_s = 0.0
        self._index = {peer: index for index, peer in enumerate(self.ids)}
        self._most_held: Counter[PeerId] = Counter()
        self.nemesis = Nemesis(self)
        for index, peer in enumerate(self.ids):
            self.network.links[peer] = scenario.group_of(index).link
            self.network.site[peer] = scenario.group_of(index).site
            if not scenario.group_of(index).dialable:
                self.network.doors.outbound.add(peer)
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
        """Run until all peers have ended. To be called on a `VirtualLoop`. Raises Hung when that takes longer than
        `within_s` virtual seconds, and in a world without faults the error of a peer."""
        torch.set_num_threads(self._settings.threads or 1)  # more threads could sum in another order
        loop, late = asyncio.get_running_loop(), dict(self.scenario.arrivals)
        for index in sorted(range(self.scenario.peers), key=lambda index: not self.scenario.group_of(index).dialable):
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
        """Announce that the peer with this number will be started, so that the world does not end before that."""
        self._expected[index] += 1

    def begin_later(self, index: int, seconds: float) -> None:
        """Start a process of the peer number `index` after `seconds` virtual seconds."""
        self.expect(index)
        asyncio.get_running_loop().call_later(seconds, self.begin, index, context=Context())

    def begin(self, index: int) -> None:
        """Start a process of the peer number `index`, unless one is running or the run is over. It joins through a peer
        that is a member, or else through one that is about to found the run; if there is none, it founds the run. If
        the contact, or a founder, would be a peer that cannot be dialled, the start is postponed."""
        self._expected -= Counter([index])
        if (dark_s := self._dark_until_s - asyncio.get_running_loop().time()) > 0:
            self.begin_later(index, dark_s)
            return
        running = [life for life in self.lives if life.running and life.index != index]
        if self.life(index) is not None:
            return  # it is there
        hosts = [life for life in running if life.reachable]
        if self._have_met() and not hosts:
            return  # the run is over
        hosts = hosts or [life for life in running if life.founds]
        contacts = [life for life in hosts if self.network.can_be_dialled(life.id)]
        if not contacts and (hosts or not self.network.can_be_dialled(self.ids[index])):
            self.begin_later(index, self._settings.patience_s)
            return
        contact = self._chance.choice(contacts).id if contacts else None
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        life = Life(
            index,
            sum(life.index == index for life in self.lives),
            task=self._task,
            settings=self.scenario.settings_of(index),
            network=self.network,
            log=self.log,
            disk=self._disks[index],
            records=self.scenario.buggify or any(fault.kind is not Kind.CLOCK for fault in self.scenario.faults),
            again=loop.again,
            group=self.scenario.group_of(index),
            buggify_until_s=self.scenario.buggify_until_s,
            record=self._record,
            stepped=self.nemesis.stepped,
            on_end=self._ended,
        )
        self.lives.append(life)
        self._latest[index] = life
        life.begin(contact, self.ids)

    def _ended(self, life: Life) -> None:
        """Restart a peer that ended before the run has begun, as its user would do; later the run continues without
        it. In a world without faults a failed peer is not restarted, because it would only fail again."""
        if not self._have_met() and not (life.error is not None and self.scenario.peaceful):
            self.begin_later(life.index, self._settings.patience_s)

    def _have_met(self) -> bool:
        """Whether the run has begun for any peer; of a resumed run, since it was resumed."""
        self._met = self._met or any(life.begun for life in self.lives[self._before :])
        return self._met

    def life(self, index: int) -> Life | None:
        """The running process of the peer with this number; None: there is none."""
        life = self._latest.get(index)
        return life if life is not None and life.running else None

    def _measure(self, peer: PeerId) -> None:
        """Record the number of bytes that wait at `peer`, whenever it is more than twice the number recorded last."""
        life = self.life(self._index[peer]) if peer in self._index else None
        if life is not None and life.endpoint.held_bytes >= 2 * self._most_held[peer] + 1:
            self._most_held[peer] = life.endpoint.held_bytes
            self.log.add(life.name, Held(self._most_held[peer]))

    def lose_disk(self, index: int) -> None:
        """Give the peer with this number an empty disk: the processes started from now on have it. One that runs keeps
        the old one."""
        self._disks[index] = Disk(self._disks[index].memory)

    def outage(self, for_s: float) -> None:
        """Crash all peers, as in a power failure, if the run has begun and no peer has finished it; else do nothing.
        After `for_s` virtual seconds all peers of which a process was ever started resume the run, from checkpoints of
        different rounds."""
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
            life.machine.clean_up()

    def _simulated(self, virtual_s: float) -> Simulated:
        ended = [(str(life.index), life.result) for life in self.lives if life.result and life.result.metrics]
        last = ended[-1][1] if ended else None
        return Simulated(
            metrics=last.metrics if last else {},
            metrics_of=told_by([(name, result.metrics) for name, result in ended]),
            scales=last.scales if last else {},
            end=next((life.result.end for life in self.lives if life.result and life.result.end), None),
            virtual_s=virtual_s,
            digest=self.network.digest,
        )
