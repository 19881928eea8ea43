"""Two peers that train the same task in virtual time, are stopped, and go on from their checkpoints. With them are the
servers of their conversation."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from simulated import endpoint_in

from samovar.peers.checkpoints.checkpoint import Snapshot
from samovar.peers.peer import Peer
from samovar.peers.place import Place
from samovar.peers.records.records import ExchangeRecord, Record
from samovar.peers.run_settings.roles import role_of
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.link_text import parse_link
from samovar.peers.task.task import Task
from samovar.peers.training.loop import Training
from samovar.peers.training.no_model import NoModel
from samovar.peers.training.stop import Stop
from samovar.peers.training.task_replica import TaskReplica
from samovar.peers.training.trainer import Trainer
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.network import Network

T = TypeVar("T")
STEP_S = 0.001


class AtOnce:
    """Does numerical work at once, and lets `step_s` of virtual time pass for each local step."""

    def __init__(self, step_s: float = STEP_S) -> None:
        self.steps, self._step_s = 0, step_s

    async def run(self, work: Callable[[], T], *, steps: int = 0) -> T:
        self.steps += steps
        await asyncio.sleep(self._step_s * steps)
        return work()


class End(NamedTuple):
    """Where a peer ended: the number of its last exchange, its local steps, and the agreed model."""

    version: int
    steps: int
    model: torch.Tensor


class TwoPeers:
    """A run of two peers that train, and of the servers that the settings ask for. `begun`: the checkpoint that each
    goes on from. `stop_s`: when all are stopped, as by Ctrl-C; `stop`: the flag that stops all of them, for a task's
    function to set.

    `kept` has each one's last checkpoint, `snapshots` those of every exchange by its number, and `ends` where each that
    trains ended. The last exchange of these was over after `took_s`. `computes`: where each took its local steps."""

    def __init__(
        self,
        task: Task,
        settings: Settings,
        *,
        latency: str = "5ms",
        stop_s: float | None = None,
        stop: Stop | None = None,
        begun: Mapping[int, Snapshot] | None = None,
    ) -> None:
        self.settings, self._task, self._stop_s, self._begun = settings, task, stop_s, begun or {}
        self._stop = stop or Stop()
        self._network_link = parse_link(f"100gbit,{latency}")
        self.kept: dict[int, Snapshot] = {}
        self.snapshots: dict[int, dict[int, Snapshot]] = defaultdict(dict)
        self.records: list[Record] = []
        self.took_s = 0.0
        self.computes = [AtOnce() for _ in range(settings.founders)]
        self.ends = run_virtual(self._main())

    async def _main(self) -> list[End]:
        network = Network(self._network_link, 0)
        ends = await asyncio.gather(*(self._peer(network, part) for part in range(self.settings.founders)))
        return ends[: self.settings.peers]

    async def _peer(self, network: Network, part: int) -> End:
        endpoint, stop, settings = endpoint_in(network, f"p{part}"), self._stop, self.settings
        role = role_of(settings, part)
        trainer = Trainer(
            self._task,
            seed=0,
            data_shard=part,
            data_shards=settings.peers,
            device=torch.device("cpu"),
            inner=settings.own.optimizer_state(),
            steps=settings.steps_max,
        )
        trainer.hooks.setup(str(part), None)
        await endpoint.open()
        for other in range(settings.founders):
            endpoint.admit(f"p{other}")
        begun = self._begun.get(part)
        if begun is not None and not role:
            trainer.restore(begun)
        if part:
            endpoint.dial("p0", "sim://p0")
        place = Place(name=str(part), data_shard=part, site=settings.of_peer(part).site or "", role=role)
        facts = trainer.facts()
        peer = Peer(
            endpoint, settings, place, facts.without_model() if role else facts,
            steps=settings.steps_max, resumed=begun, record=self._record,
        )  # fmt: skip
        contact: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        contact.set_result("p0" if part else None)
        if self._stop_s is not None:
            asyncio.get_running_loop().call_later(self._stop_s, stop.set)

        def keep(snapshot: Snapshot) -> None:
            copies = {name: tensor.clone() for name, tensor in snapshot.tensors.items()}
            self.kept[part] = self.snapshots[peer.conversation.version][part] = Snapshot(copies, snapshot.numbers)

        compute = self.computes[part]
        await Training(peer, NoModel(compute) if role else TaskReplica(trainer, compute), stop, keep).run(contact)
        peer.close()
        trainer.batches.close()
        return End(peer.conversation.version, self._steps_of(part), peer.conversation.position().vector)

    def _record(self, record: Record) -> None:
        self.records.append(record)
        if isinstance(record, ExchangeRecord) and not role_of(self.settings, int(record.peer)):
            self.took_s = asyncio.get_running_loop().time()

    def _steps_of(self, part: int) -> int:
        told = [record for record in self.records if isinstance(record, ExchangeRecord) and record.peer == str(part)]
        return told[-1].step if told else 0

    @property
    def everything(self) -> list[dict[str, Any]]:
        """What the last checkpoints hold: every tensor to the bit, and every number but the time and measured links. Of
        servers no number: theirs count views and entries, of which a resumed run has others."""
        passing = ("elapsed_s", "saved", "state")
        found: list[dict[str, Any]] = []
        for part, snapshot in sorted(self.kept.items()):
            found.append({name: tensor.numpy().tobytes() for name, tensor in snapshot.tensors.items()})
            if not role_of(self.settings, part):
                found[-1] |= {name: number for name, number in snapshot.numbers.items() if name not in passing}
                state = snapshot.numbers.get("state", {}).items()
                found[-1] |= {name: number for name, number in state if name != "links"}
        return found
