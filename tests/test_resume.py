"""A resumed run begins where the furthest of its peers was, whatever the others had in their hands."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from samovar.aggregation.periods.fixed import Fixed
from samovar.peers.checkpoints.checkpoint import Snapshot
from samovar.peers.conversations.policies import first_state
from samovar.peers.peer import Identity, Peer
from samovar.peers.records.records import Record, RoundRecord
from samovar.peers.settings.settings import Settings
from samovar.peers.task.task import Task
from samovar.peers.training.loop import Training, resume, with_state
from samovar.peers.training.stop import Stop
from samovar.peers.training.trainer import Trainer
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.in_process import LocalHub, LocalTransport
from samovar.protocols.local_sgd.state import State
from samovar.sims.scenarios.toy import toy_task
from samovar.sims.world.loop import run_virtual

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
        await asyncio.sleep(0.001 * steps)
        return work()


async def trained(
    trainers: list[Trainer],
    checkpoints: Sequence[Snapshot | None],
    settings: Settings = SETTINGS,
    records: list[Record] | None = None,
) -> list[tuple[Peer, int, Snapshot]]:
    """Each peer at its end, the local steps it has taken since its checkpoint, and the checkpoint it leaves."""
    hub, peers, trainings, computes, kept = LocalHub(), [], [], [], dict[int, Snapshot]()
    for part, (trainer, snapshot) in enumerate(zip(trainers, checkpoints, strict=True)):
        state, elapsed_s, residual = first_state(settings, trainer.vector), 0.0, None
        if snapshot is not None:
            state, elapsed_s, residual = resume(snapshot, trainer)
        endpoint = Endpoint(LocalTransport(hub, f"p{part}"), patience_s=5, rng=random.Random(part))
        await endpoint.open()
        endpoint.dial(f"p{1 - part}", "")
        peer = Peer(
            endpoint,
            settings,
            Identity(str(part), part),
            run="r",
            layout=trainer.layout,
            state=state,
            residual=residual,
            elapsed_s=elapsed_s,
            steps=settings.steps,
            record=(records if records is not None else list[Record]()).append,
        )
        peers.append(peer)
        computes.append(AtOnce())
        trainings.append(Training(peer, trainer, computes[-1], Stop(), partial(kept.__setitem__, part)))
    contacts: list[asyncio.Future[str | None]] = [asyncio.get_running_loop().create_future() for _ in peers]
    for contact, whom in zip(contacts, (None, "p0"), strict=True):
        contact.set_result(whom)
    await asyncio.gather(*(training.run(contact) for training, contact in zip(trainings, contacts, strict=True)))
    for peer in peers:
        peer.close()
    return [(peer, compute.steps, kept[part]) for part, (peer, compute) in enumerate(zip(peers, computes, strict=True))]


def still_trainers() -> list[Trainer]:
    return [still_trainer(part) for part in range(2)]


def test_who_was_stopped_in_an_older_round_brings_nothing_of_it() -> None:
    further, behind = checkpoint(0, 9, 100.0, 0), checkpoint(1, 1, 1.0, 3)
    for peer, steps, _ in run_virtual(trained(still_trainers(), [further, behind])):
        assert (peer.state.round, float(peer.state.vector), steps) == (10, 100.0, 8)


def test_who_was_stopped_in_the_middle_of_this_round_goes_on_with_it() -> None:
    """The control: steps that were taken in the round that all go on from do count."""
    peers = run_virtual(trained(still_trainers(), [checkpoint(0, 9, 100.0, 3), checkpoint(1, 9, 100.0, 5)]))
    assert [steps for _, steps, _ in peers] == [5, 3]


def test_records_tell_of_the_local_steps_before_a_stop_too() -> None:
    records: list[Record] = []
    stopped = [checkpoint(0, 9, 100.0, 3), checkpoint(1, 9, 100.0, 5)]
    run_virtual(trained(still_trainers(), stopped, records=records))
    rounds = [record for record in records if isinstance(record, RoundRecord)]
    assert [round(record.steps_per_s * record.compute_s) for record in rounds] == [8, 8]


def test_a_run_that_has_gone_further_than_it_is_to_go_is_refused() -> None:
    beyond = [checkpoint(part, 11, 100.0, 0) for part in range(2)]
    with pytest.raises(ValueError, match="gone 88 local steps, and is to end after 80: give more --steps"):
        run_virtual(trained(still_trainers(), beyond))


def moving_trainers() -> list[Trainer]:
    return [Trainer(toy_task(64), seed=0, part=part, parts=2, device=torch.device("cpu")) for part in range(2)]


def trained_on(codec: str, steps: int, checkpoints: Sequence[Snapshot | None] = (None, None)) -> list[Snapshot]:
    """The last checkpoints of two peers, who took so many local steps in all."""
    settings = replace(SETTINGS, codec=codec, steps=steps)
    return [kept for *_, kept in run_virtual(trained(moving_trainers(), checkpoints, settings))]


@pytest.mark.parametrize("codec", ["top_k:0.1", "sign", "random_k:0.1"])
def test_what_a_codec_has_left_out_is_told_after_a_resume_as_it_would_have_been(codec: str) -> None:
    halfway = trained_on(codec, 40)
    assert not torch.equal(halfway[0].tensors["residual"], halfway[1].tensors["residual"]), "each has its own"
    for straight, resumed in zip(trained_on(codec, 80), trained_on(codec, 80, halfway), strict=True):
        assert straight.numbers["state"]["round"] == resumed.numbers["state"]["round"] == 10
        assert torch.equal(straight.tensors["state/vector"], resumed.tensors["state/vector"])
        assert torch.equal(straight.tensors["residual"], resumed.tensors["residual"])


def test_what_a_codec_left_out_up_to_another_round_is_forgotten() -> None:
    """The others went on from a later round, which this peer has to fetch: what it brought to that is in it."""
    earlier, later = trained_on("top_k:0.1", 32), trained_on("top_k:0.1", 40)
    huge = torch.full_like(earlier[1].tensors["residual"], 1e6)
    late = replace(earlier[1], tensors={**earlier[1].tensors, "residual": huge})
    for ended in trained_on("top_k:0.1", 48, [later[0], late]):
        assert ended.numbers["state"]["round"] == 6
        assert ended.tensors["state/vector"].abs().max() < 1e3
