"""A world of simulated peers: the same peers, trainers and conversations as on real machines, on a virtual network and
in virtual time. The numerical work is really done, and charged at a given time a local step."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

from ..peers.peer import Identity, Peer, first_state
from ..peers.records import PeerSummary, Record
from ..peers.settings import Settings
from ..peers.stop import Stop
from ..peers.task import Task
from ..peers.trainer import Trainer, derive, pick_device
from ..peers.training import Ended, Training
from ..protocols.endpoint import Endpoint
from .links import parse_duration, parse_link
from .network import Network, SimulatedTransport

T = TypeVar("T")


class VirtualCompute:
    """Does the work at once and lets the time pass that it would have taken."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s

    async def run(self, work: Callable[[], T], *, steps: int = 0) -> T:
        result = work()
        if steps:
            await asyncio.sleep(steps * self._step_s)
        return result


@dataclass(frozen=True, slots=True)
class Simulated:
    """How a simulation ended. `virtual_s`: how long it took in its own world."""

    summaries: list[PeerSummary]
    accuracy: float | None
    virtual_s: float
    digest: str


class World:
    """All peers of one simulated run. `record` is told of every round and event of every peer."""

    def __init__(self, task: Task, settings: Settings, record: Callable[[Record], None]) -> None:
        self._settings, self._record, self._task = settings, record, task
        self.network = Network(parse_link(settings.link), derive(settings.seed, "network"))
        self.peers: list[Peer] = []
        self._step_s = parse_duration(settings.step_time)

    async def run(self) -> Simulated:
        """Run until all peers have ended; needs a virtual loop. Raises what a peer raises."""
        torch.set_num_threads(self._settings.threads or 1)  # more threads could sum in another order
        peers = [self._peer(index) for index in range(self._settings.peers)]
        self.peers = [peer for peer, _ in peers]
        for peer, _ in peers:
            await peer.endpoint.open()
            for other, _ in peers:
                peer.endpoint.admit(other.endpoint.id)
        founder = peers[0][0].endpoint
        tasks = [asyncio.create_task(self._live(peer, trainer, founder)) for peer, trainer in peers]
        try:
            ends = await asyncio.gather(*tasks)
        finally:
            for peer, _ in peers:
                peer.close()
        accuracies = [end.accuracy for end in ends if end.accuracy is not None]
        return Simulated(
            summaries=[peer.summary() for peer, _ in peers],
            accuracy=accuracies[-1] if accuracies else None,
            virtual_s=asyncio.get_running_loop().time(),
            digest=self.network.digest,
        )

    def _peer(self, index: int) -> tuple[Peer, Trainer]:
        settings, name = self._settings, str(index)
        rng = random.Random(derive(settings.seed, "incarnations", index))
        transport = SimulatedTransport(self.network, f"peer-{name}")
        endpoint = Endpoint(transport, patience_s=settings.patience_s, rng=rng)
        device = pick_device(settings.device, index)
        trainer = Trainer(self._task, seed=settings.seed, part=index, parts=settings.peers, device=device)
        state = first_state(settings, trainer.layout.flatten(trainer.tensors))
        identity = Identity(name, index)
        peer = Peer(
            endpoint,
            settings,
            identity,
            run="simulation",
            layout=trainer.layout,
            state=state,
            steps=settings.steps,
            record=self._record,
        )
        return peer, trainer

    async def _live(self, peer: Peer, trainer: Trainer, founder: Endpoint) -> Ended:
        contact: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        contact.set_result(None if peer.endpoint is founder else founder.id)
        peer.endpoint.dial(founder.id, founder.address)
        ended = await Training(peer, trainer, VirtualCompute(self._step_s), Stop()).run(contact)
        await peer.endpoint.drain()
        return ended
