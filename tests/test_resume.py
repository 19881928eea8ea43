"""A resumed run begins where the furthest of its peers was, whatever the others had in their hands."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import torch
from torch import nn

from samovar.aggregation.periods.fixed import Fixed
from samovar.peers.checkpoint import Snapshot
from samovar.peers.peer import Identity, Peer
from samovar.peers.settings import Settings
from samovar.peers.stop import Stop
from samovar.peers.task import Task
from samovar.peers.trainer import Trainer
from samovar.peers.training import Training, resume, with_state
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.local import LocalHub, LocalTransport
from samovar.protocols.state import State
from samovar.sims.loop import run_virtual

SETTINGS = Settings(peers=2, period="8", steps=80, device="cpu")


def still_trainer(part: int) -> Trainer:
    """Its gradients are nil: the model stays what it is."""
    task = Task(
        Path("still.py"),
        lambda: nn.Linear(1, 1, bias=False),
        lambda part, parts: [torch.ones(1, 1)] * 100,
        lambda model, batch: 0.0 * model(batch).sum() + 1.0,
        None,
        lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )
    return Trainer(task, seed=0, part=part, parts=2, device=torch.device("cpu"))


def checkpoint(part: int, round_: int, model: float, steps_taken: int) -> Snapshot:
    """Of a peer that had committed `round_` and taken some local steps since."""
    trainer, vector = still_trainer(part), torch.tensor([model])
    trainer.load(vector)
    trainer.train(steps_taken)
    return with_state(trainer.snapshot(), State(round_, 8 * round_, vector, (), Fixed(8).start()), 5.0)


class AtOnce:
    def __init__(self) -> None:
        self.steps = 0

    async def run(self, work, *, steps: int = 0):
        self.steps += steps
        await asyncio.sleep(0)
        return work()


async def resumed(checkpoints: list[Snapshot]) -> list[tuple[Peer, int]]:
    """Each peer at its end, and the local steps it has taken since."""
    hub, peers, trainings, computes = LocalHub(), [], [], []
    for part, snapshot in enumerate(checkpoints):
        trainer = still_trainer(part)
        state, elapsed_s = resume(snapshot, trainer)
        endpoint = Endpoint(LocalTransport(hub, f"p{part}"), patience_s=5, rng=random.Random(part))
        await endpoint.open()
        endpoint.dial(f"p{1 - part}", "")
        identity = Identity(str(part), part)
        peer = Peer(
            endpoint, SETTINGS, identity, run="r", layout=trainer.layout, state=state, elapsed_s=elapsed_s, steps=80
        )
        peers.append(peer)
        computes.append(AtOnce())
        trainings.append(Training(peer, trainer, computes[-1], Stop()))
    contacts: list[asyncio.Future[str | None]] = [asyncio.get_running_loop().create_future() for _ in peers]
    for contact, whom in zip(contacts, (None, "p0"), strict=True):
        contact.set_result(whom)
    await asyncio.gather(*(training.run(contact) for training, contact in zip(trainings, contacts, strict=True)))
    for peer in peers:
        peer.close()
    return [(peer, compute.steps) for peer, compute in zip(peers, computes, strict=True)]


def test_who_was_stopped_in_an_older_round_brings_nothing_of_it() -> None:
    further, behind = checkpoint(0, 9, 100.0, 0), checkpoint(1, 1, 1.0, 3)
    for peer, steps in run_virtual(resumed([further, behind])):
        assert (peer.state.round, float(peer.state.vector), steps) == (10, 100.0, 8)


def test_who_was_stopped_in_the_middle_of_this_round_goes_on_with_it() -> None:
    """The control: steps that were taken in the round that all go on from do count."""
    peers = run_virtual(resumed([checkpoint(0, 9, 100.0, 3), checkpoint(1, 9, 100.0, 5)]))
    assert [steps for _, steps in peers] == [5, 3]
