"""One life of a simulated peer: from the start of its process to its end, on a machine of its own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from ..peers.checkpoint import CheckpointError, Snapshot
from ..peers.errors import is_plain, one_line
from ..peers.overlap import training_of
from ..peers.peer import Identity, Peer
from ..peers.policies import first_state
from ..peers.records import Record
from ..peers.settings import Settings
from ..peers.stop import Stop
from ..peers.task import Task
from ..peers.tensors import parameters_in
from ..peers.trainer import Trainer, derive, pick_device
from ..peers.training import Ended, resume
from ..protocols.endpoint import Endpoint
from ..protocols.transport import PeerId
from ..protocols.witness import WITNESS
from .log import Began, Gone, Log, Observer, Refused
from .machine import Machine
from .network import Network, SimulatedTransport

T = TypeVar("T")


class Disk:
    """Where one machine keeps its checkpoint."""

    def __init__(self) -> None:
        self.full = 0
        """How many have filled it up."""
        self.kept: Snapshot | None = None

    def save(self, snapshot: Snapshot) -> None:
        """Raises CheckpointError when there is no room; the checkpoint before is still there."""
        if self.full:
            raise CheckpointError("cannot save the checkpoint: no space left on device")
        self.kept = Snapshot({name: tensor.clone() for name, tensor in snapshot.tensors.items()}, snapshot.numbers)


class VirtualCompute:
    """Does the work at once and lets the time pass that it would have taken on this machine."""

    def __init__(self, machine: Machine, step_s: float, stepped: Callable[[int], None]) -> None:
        self._machine, self._step_s, self._stepped = machine, step_s, stepped
        self._steps = 0

    async def run(self, work: Callable[[], T], *, steps: int = 0) -> T:
        result = work()
        for _ in range(steps):
            self._steps += 1
            self._stepped(self._steps)
        if steps:
            await asyncio.sleep(steps * self._step_s * self._machine.slowness)
        return result


class Life:
    """`number` counts the lives of one peer, from 0. `ended` is set when its process is no more."""

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
        again: Callable[[asyncio.Handle], None],
        step_s: float,
        buggify_until_s: float,
        record: Callable[[Record], None],
        stepped: Callable[[int, int], None],
        on_end: Callable[[Life], None],
    ) -> None:
        """`stepped` is told of (index, local step) before that step counts as done, `on_end` of its end."""
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
        self.machine.context.run(self._build, task, settings)

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def id(self) -> PeerId:
        return self.endpoint.id

    @property
    def running(self) -> bool:
        return not self.ended.is_set()

    def _build(self, task: Task, settings: Settings) -> None:
        rng = random.Random(derive(settings.seed, "incarnations", self.index, self.number))
        transport = SimulatedTransport(self._network, f"peer-{self.index}")
        self.endpoint = Endpoint(transport, patience_s=settings.patience_s, rng=rng)
        device = pick_device(settings.device, self.index)
        self.trainer = Trainer(
            task, seed=settings.seed, part=self.index, parts=settings.peers, device=device, inner=settings.inner
        )
        state = first_state(settings, self.trainer.layout.flatten(self.trainer.tensors))
        residual = None
        if self.disk.kept is not None:
            state, _, residual = resume(self.disk.kept, self.trainer)
        self.peer = Peer(
            self.endpoint,
            settings,
            Identity(str(self.index), self.index, site=settings.of_peer(self.index).site or ""),
            run="simulation",
            layout=self.trainer.layout,
            state=state,
            parameters=parameters_in(self.trainer.model),
            residual=residual,
            steps=settings.steps,
            record=self._tell,
        )

    def _tell(self, record: Record) -> None:
        self._record(replace(record, peer=str(self.index)))

    def begin(self, contact: PeerId | None, known: list[PeerId]) -> None:
        """Start its process: it joins through `contact`, None to found the run, and lets `known` talk to it."""
        self.founds = contact is None
        self._log.add(self.name, Began())
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
            self.result = await training.run(whom)
            await self.endpoint.drain()
        except Exception as error:
            self.error = error
        for peer, why in self.endpoint.refused.items():
            self._log.add(self.name, Refused(peer, why))
        self.peer.close()
        self._end(finished=self.result is not None and self.result.finished)

    def crash(self) -> None:
        """Nothing of it is done any more, from here on."""
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
