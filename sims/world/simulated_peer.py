"""One process of a simulated peer, from its start to its end, on a machine of its own."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from ...peers.checkpoints.checkpoint import CheckpointError, Snapshot
from ...peers.errors import is_plain, one_line
from ...peers.peer import Peer
from ...peers.place import Place
from ...peers.records.records import Record
from ...peers.run_settings.settings import Settings
from ...peers.settings.edge import budget_of
from ...peers.task.headline import headline_of
from ...peers.task.rng import derive
from ...peers.task.task import Task
from ...peers.training.devices import pick_device
from ...peers.training.loop import Ended, Training
from ...peers.training.no_model import NoModel
from ...peers.training.stop import Stop
from ...peers.training.task_replica import TaskReplica
from ...peers.training.trainer import Trainer
from ...protocols.members.roster import TRY_FOR
from ...protocols.shaping.budgeted_transport import Budgeted
from ...protocols.testpoints import WITNESS
from ...protocols.transport import PeerId, Transport
from ..scenarios.scenario import Group
from .common_memory import CommonMemory
from .event_log import Began, Gone, Log, Observer, Refused
from .machine import MACHINE, Machine
from .network import Network
from .outbound import transport_of
from .overheard import Overheard
from .virtual_compute import VirtualCompute

SYNC_S = 0.002
"""Virtual seconds that a disk takes to save an entry of a `Shelf`."""
_CHECKPOINTS = 4


def dead() -> bool:
    """Whether the machine whose code is running has crashed. A fault may crash it in the middle of a callback, which
    then runs on to its end."""
    machine = MACHINE.get()
    return machine is not None and machine.dead


class Shelf:
    """Small entries by name on a machine's disk, each written whole or not at all: the `members.ledger.Store` of a
    simulated peer."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._entries: dict[str, bytes] = {}

    @property
    def empty(self) -> bool:
        """Whether it has no entry."""
        return not self._entries

    def load(self, name: str) -> bytes | None:
        """The entry last saved under `name`; None: there is none."""
        return self._entries.get(name)

    async def save(self, name: str, entry: bytes) -> None:
        """Save an entry under `name`, in `SYNC_S` virtual seconds. Raises OSError on a full disk; the previous entry is
        then still there. Does nothing for a machine that has crashed."""
        await asyncio.sleep(SYNC_S)
        if self._disk.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if not dead():
            self._entries[name] = entry

    def clear(self) -> None:
        """Remove all entries. Does nothing for a machine that has crashed."""
        if not dead():
            self._entries.clear()


class Disk:
    """One machine's disk, with the peer's last checkpoints, and its Paxos votes in `record`; and the `memory` of the
    machine, in which all peers of a world can share vectors."""

    def __init__(self, memory: CommonMemory) -> None:
        self.memory = memory
        self.full = 0
        """The number of faults that keep the disk full now."""
        self._checkpoints: deque[Snapshot] = deque(maxlen=_CHECKPOINTS)
        self.record = Shelf(self)

    def save(self, snapshot: Snapshot) -> None:
        """Save a copy of a checkpoint; the last four are kept. Raises CheckpointError on a full disk; the previous ones
        are then still there. Does nothing for a machine that has crashed."""
        if self.full:
            raise CheckpointError("cannot save the checkpoint: no space left on device")
        if dead():
            return
        tensors = {name: tensor.clone() for name, tensor in snapshot.tensors.items()}
        self._checkpoints.append(Snapshot(tensors, snapshot.numbers))

    @property
    def kept(self) -> Snapshot | None:
        """The last checkpoint; None: there is none."""
        return self._checkpoints[-1] if self._checkpoints else None

    def resume(self, older: int) -> None:
        """Prepare the disk for a resumed run: drop the last `older` checkpoints, but keep one, as if this peer had
        saved less often than the others; and drop the votes, because they belong to the former run."""
        for _ in range(min(older, len(self._checkpoints) - 1)):
            self._checkpoints.pop()
        self.record = Shelf(self)


def _begun_anew(kept: Snapshot) -> Snapshot:
    """The checkpoint for a process that is restarted during a run. Its elapsed time is 0, because the process joins as
    a newcomer does and is told the run's time."""
    return Snapshot(kept.tensors, {**kept.numbers, "elapsed_s": 0.0})


class Life:
    """One process of a simulated peer, from its start to its end. `index`: number of the peer; `number`: number of its
    process, counted from 0. `ended` is set when the process has ended."""

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
        group: Group,
        buggify_until_s: float,
        record: Callable[[Record], None],
        stepped: Callable[[int, int], None],
        on_end: Callable[[Life], None],
    ) -> None:
        """`records`: it keeps its votes on `disk` for its next process. `again`: makes a callback ready that its
        machine has held back. `group`: its group. `record` is called with each record, `stepped` with (index, local
        step) when the peer takes that step, `on_end` when the process has ended."""
        self.index, self.number, self.disk = index, number, disk
        self.machine = Machine(f"{index}.{number}", again, settings.seed)
        self.ended = asyncio.Event()
        self.result: Ended | None = None
        self.error: Exception | None = None
        self.founds = False
        self._log, self._network, self._record, self._on_end = log, network, record, on_end
        observer = Observer(log, self.name, settings.seed, buggify_until_s=buggify_until_s)
        self.machine.context.run(WITNESS.set, observer)
        self._compute = VirtualCompute(self.machine, group.step_s, lambda step: stepped(index, step))
        self.machine.context.run(self._build, task, settings, records, group.role)

    @property
    def name(self) -> str:
        """The number of the peer and of its process: ``3.1``."""
        return self.machine.name

    @property
    def id(self) -> PeerId:
        """The peer's id, which all its processes share: ``peer-3`` for 3.0 and 3.1."""
        return self.endpoint.id

    @property
    def role(self) -> str:
        """The peer's role in the run, as "server"; "": it trains."""
        return self.peer.membership.me.attributes.role

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return not self.ended.is_set()

    @property
    def begun(self) -> bool:
        """Whether the run has begun for this peer: enough peers have gathered."""
        return self.peer.membership.view.started

    @property
    def reachable(self) -> bool:
        """Whether others can join the run through this peer."""
        return bool(self.peer.membership.view.members)

    def leader(self, place: int) -> PeerId | None:
        """By the view of this peer, the coordinator (`place` 0), or the peer that would coordinate if the coordinator
        were gone (1); None: there is none."""
        return next(iter(self.peer.membership.leaders[place : place + 1]), None)

    @property
    def model_bytes(self) -> int:
        """The size of the model's vector, in bytes."""
        return self.trainer.copy.layout.nbytes

    def _build(self, task: Task, settings: Settings, records: bool, role: str) -> None:
        rng = random.Random(derive(settings.seed, "incarnations", self.index, self.number))
        transport: Transport = transport_of(self._network, f"peer-{self.index}")
        if (budget := budget_of(settings)) is not None:
            transport = Budgeted(transport, budget, encrypted=True)
        self.endpoint = Overheard(transport, patience_s=settings.patience_s, rng=rng)
        device = pick_device(settings.device, self.index)
        self.trainer = Trainer(
            task if settings.own.takes_rows() else replace(task, rows=None),
            seed=settings.seed,
            data_shard=self.index,
            data_shards=settings.peers,
            device=device,
            inner=settings.own.optimizer_state(),
            steps=settings.steps_max,
        )
        self.trainer.hooks.setup(str(self.index), None)
        if self.disk.kept is not None and not role:
            self.trainer.restore(self.disk.kept)
        facts = self.trainer.facts()
        facts = facts.without_model() if role else facts
        limit_s = settings.give_up_after_s or 2 * TRY_FOR * settings.patience_s  # so that a simulation comes to its end
        self.peer = Peer(
            self.endpoint,
            replace(settings, give_up_after_s=limit_s),
            Place(
                name=str(self.index),
                data_shard=self.index,
                run="simulation",
                site=settings.of_peer(self.index).site or "",
                role=role,
                store=self.disk.record if records else None,
                memories=self.disk.memory,
            ),
            facts,
            steps=settings.steps_max,
            resumed=None if self.disk.kept is None else _begun_anew(self.disk.kept),
            record=self._tell,
        )

    def _tell(self, record: Record) -> None:
        if not self._log.closed:  # at the world's end the held-back callbacks of dead and paused machines run
            self._record(replace(record, peer=str(self.index)))

    def begin(self, contact: PeerId | None, known: list[PeerId]) -> None:
        """Start the process. `contact`: the peer to join through; None: it founds the run. `known`: the peers whose
        messages it accepts."""
        self.founds = contact is None
        self._log.add(self.name, Began(not self.disk.record.empty, self.peer.conversation.version))
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
            replica = NoModel(self._compute) if self.role else TaskReplica(self.trainer, self._compute)
            training = Training(self.peer, replica, Stop(), self.disk.save)
            if contact is None and isinstance(replica, TaskReplica):
                metrics, headline = await replica.rehearse(self.peer.stalls), headline_of(self.trainer.task)
                scales, name = self.trainer.task.metrics or {}, "" if headline is None else headline.name
                self.peer.settings.own.check_metrics(metrics, name, scales)
            self.result = await training.run(whom)
            await self.endpoint.close()
        except Exception as error:
            self.error = error
        for peer, why in self.endpoint.refused.items():
            self._log.add(self.name, Refused(peer, why))
        self.peer.close()
        self._end(finished=self.result is not None and self.result.finished)

    def crash(self) -> None:
        """Crash the process: none of its code runs any more, and its port is closed."""
        self.machine.crash()
        self._network.close(self.id)
        self._end(finished=False, crashed=True)

    def _end(self, *, finished: bool, crashed: bool = False) -> None:
        if self.running:
            error = self.error
            foreseen, told = error is None or is_plain(error), "" if error is None else one_line(error)
            self._log.add(self.name, Gone(finished, crashed, told, foreseen))
            self.trainer.batches.close()
            self.ended.set()
            self._on_end(self)
