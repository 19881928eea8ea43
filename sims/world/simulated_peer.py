"""One life of a simulated peer: from the start of its process to its end, on a machine of its own."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from ...peers.checkpoints.checkpoint import CheckpointError, Snapshot
from ...peers.conversations.policies import first_state
from ...peers.errors import is_plain, one_line
from ...peers.peer import Identity, Peer
from ...peers.records.records import Record
from ...peers.settings.settings import Settings
from ...peers.task.rng import derive
from ...peers.task.task import Task
from ...peers.training.devices import pick_device
from ...peers.training.loop import Ended, resume
from ...peers.training.overlap import training_of
from ...peers.training.stop import Stop
from ...peers.training.trainer import Trainer
from ...protocols.local_sgd.local_sgd import Contribution
from ...protocols.members.roster import TRY_FOR
from ...protocols.testpoints import WITNESS
from ...protocols.transport import PeerId
from .event_log import Began, Gone, Log, Observer, Refused
from .machine import MACHINE, Machine
from .network import Network
from .overheard import Overheard
from .transport import SimulatedTransport

T = TypeVar("T")

SYNC_S = 0.002
"""How long a disk takes for an entry of a record."""
_CHECKPOINTS = 4


def dead() -> bool:
    """Whether the machine whose code runs is crashed already, by what this code did just now."""
    machine = MACHINE.get()
    return machine is not None and machine.dead


class Shelf:
    """A few kilobytes by name on a machine's disk, each written whole or not at all (`members.ledger.Store`)."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._entries: dict[str, bytes] = {}

    @property
    def empty(self) -> bool:
        return not self._entries

    def load(self, name: str) -> bytes | None:
        """The entry last saved under `name`; None: there is none."""
        return self._entries.get(name)

    async def save(self, name: str, entry: bytes) -> None:
        """Save an entry. Raises OSError on a full disk; the previous entry is still there."""
        await asyncio.sleep(SYNC_S)
        if self._disk.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if not dead():
            self._entries[name] = entry

    def clear(self) -> None:
        """Remove all entries."""
        if not dead():
            self._entries.clear()


class Disk:
    """One machine's disk, with its checkpoint, and its votes in `record`."""

    def __init__(self) -> None:
        self.full = 0
        """The number of faults that fill it now."""
        self._checkpoints: deque[Snapshot] = deque(maxlen=_CHECKPOINTS)
        self.record = Shelf(self)

    def save(self, snapshot: Snapshot) -> None:
        """Save a checkpoint. Raises CheckpointError on a full disk; the previous checkpoint is still there."""
        if self.full:
            raise CheckpointError("cannot save the checkpoint: no space left on device")
        if dead():
            return
        tensors = {name: tensor.clone() for name, tensor in snapshot.tensors.items()}
        self._checkpoints.append(Snapshot(tensors, snapshot.numbers))

    @property
    def kept(self) -> Snapshot | None:
        """The last checkpoint."""
        return self._checkpoints[-1] if self._checkpoints else None

    def resume(self, older: int) -> None:
        """For a restarted run: go back to the checkpoint of `older` saves ago, as if this peer saved less often than
        the others; and drop the votes, because it is another run."""
        for _ in range(min(older, len(self._checkpoints) - 1)):
            self._checkpoints.pop()
        self.record = Shelf(self)


class VirtualCompute:
    """Runs numerical work at once, and lets its virtual time on this machine pass."""

    def __init__(self, machine: Machine, step_s: float, stepped: Callable[[int], None]) -> None:
        self._machine, self._step_s, self._stepped = machine, step_s, stepped
        self._steps = 0

    async def run(self, work: Callable[[], T], *, steps: int = 0) -> T:
        result = work()
        if isinstance(result, Contribution) and result.weight and self._machine.spoils is not None:
            result.vector[0], self._machine.spoils = self._machine.spoils, None
        for _ in range(steps):
            self._steps += 1
            self._stepped(self._steps)
        if steps:
            await asyncio.sleep(steps * self._step_s * self._machine.slowness)
            await self._machine.works()
        return result


class Life:
    """One life of a peer. `number` counts the lives of one peer, from 0. `ended` is set when its process has ended."""

    def __init__(
        self,
        index: int,
        number: int,
        *,
        task: Task,
        settings: Settings,
        network: Network,
        log: Log,
        disk: Disk,
        records: bool,
        again: Callable[[asyncio.Handle], None],
        step_s: float,
        buggify_until_s: float,
        record: Callable[[Record], None],
        stepped: Callable[[int, int], None],
        on_end: Callable[[Life], None],
    ) -> None:
        """`records`: whether it keeps its votes for its next life. `stepped` is called with (index, local step) before
        that step counts as done, `on_end` at its end."""
        self.index, self.number, self.disk = index, number, disk
        self.machine = Machine(f"{index}.{number}", again, settings.seed)
        self.ended = asyncio.Event()
        self.result: Ended | None = None
        self.error: Exception | None = None
        self.founds = False
        self._log, self._network, self._record, self._on_end = log, network, record, on_end
        observer = Observer(log, self.name, settings.seed, buggify_until_s=buggify_until_s)
        self.machine.context.run(WITNESS.set, observer)
        self._compute = VirtualCompute(self.machine, step_s, lambda step: stepped(index, step))
        self.machine.context.run(self._build, task, settings, records)

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def id(self) -> PeerId:
        return self.endpoint.id

    @property
    def running(self) -> bool:
        return not self.ended.is_set()

    def _build(self, task: Task, settings: Settings, records: bool) -> None:
        rng = random.Random(derive(settings.seed, "incarnations", self.index, self.number))
        transport = SimulatedTransport(self._network, f"peer-{self.index}")
        self.endpoint = Overheard(transport, patience_s=settings.patience_s, rng=rng)
        device = pick_device(settings.device, self.index)
        self.trainer = Trainer(
            task, seed=settings.seed, part=self.index, parts=settings.peers, device=device, inner=settings.inner
        )
        state = first_state(settings, self.trainer.vector)
        residual = None
        if self.disk.kept is not None:
            state, _, residual = resume(self.disk.kept, self.trainer)
        limit_s = settings.give_up_after_s or 2 * TRY_FOR * settings.patience_s  # so that a simulation comes to its end
        self.peer = Peer(
            self.endpoint,
            replace(settings, give_up_after_s=limit_s),
            Identity(str(self.index), self.index, site=settings.of_peer(self.index).site or ""),
            run="simulation",
            layout=self.trainer.layout,
            agreement=self.trainer.agreement(),
            state=state,
            parameters=self.trainer.parameters,
            residual=residual,
            steps=settings.steps,
            record=self._tell,
            store=self.disk.record if records else None,
        )

    def _tell(self, record: Record) -> None:
        self._record(replace(record, peer=str(self.index)))

    def begin(self, contact: PeerId | None, known: list[PeerId]) -> None:
        """Start its process: it joins through `contact`, None to found the run, and lets `known` talk to it."""
        self.founds = contact is None
        self._log.add(self.name, Began(not self.disk.record.empty, self.peer.state.round))
        self.machine.spawn(self._live(contact, known), f"peer {self.name}")

    async def _live(self, contact: PeerId | None, known: list[PeerId]) -> None:
        try:
            await self.endpoint.open()
            for other in known:
                self.endpoint.admit(other)
            whom: asyncio.Future[PeerId | None] = asyncio.get_running_loop().create_future()
            whom.set_result(contact)
            if contact is not None:
                self.endpoint.dial(contact, f"sim://{contact}")
            training = training_of(self.peer, self.trainer, self._compute, Stop(), self.disk.save)
            if contact is None:
                await training.rehearse()
            self.result = await training.run(whom)
            await self.endpoint.close()
        except Exception as error:
            self.error = error
        for peer, why in self.endpoint.refused.items():
            self._log.add(self.name, Refused(peer, why))
        self.peer.close()
        self._end(finished=self.result is not None and self.result.finished)

    def crash(self) -> None:
        """Crash the process: none of its code runs from here on."""
        self.machine.crash()
        self._network.close(self.id)
        self._end(finished=False, crashed=True)

    def _end(self, *, finished: bool, crashed: bool = False) -> None:
        if self.running:
            error = self.error
            foreseen, told = error is None or is_plain(error), "" if error is None else one_line(error)
            self._log.add(self.name, Gone(finished, crashed, told, foreseen))
            self.ended.set()
            self._on_end(self)
