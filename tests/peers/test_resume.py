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
from two_peers import AtOnce

from samovar.aggregation.periods.fixed import Fixed
from samovar.peers.checkpoints.checkpoint import Snapshot
from samovar.peers.peer import Peer
from samovar.peers.place import Place
from samovar.peers.records.records import ExchangeRecord, Record
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import Task
from samovar.peers.training.loop import Training
from samovar.peers.training.stop import Stop
from samovar.peers.training.task_replica import TaskReplica
from samovar.peers.training.trainer import Trainer
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.in_process import LocalHub, LocalTransport
from samovar.protocols.local_sgd.checkpoint import position_of
from samovar.protocols.local_sgd.state import State
from samovar.protocols.work import Keep, Load
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
    return Trainer(task, seed=0, data_shard=part, data_shards=2, device=torch.device("cpu"))


def checkpoint(part: int, round_: int, model: float, steps_taken: int) -> Snapshot:
    """Of a peer that had committed `round_` and taken some local steps since."""
    trainer, vector = still_trainer(part), torch.tensor([model])
    trainer.begin(Load(vector))
    trainer.train(steps_taken)
    kept = trainer.snapshot()
    agreed = position_of(State(round_, 8 * round_, vector, (), Fixed(8).start()), None, Keep())
    return Snapshot({**kept.tensors, **agreed.tensors}, {**kept.numbers, **agreed.numbers, "elapsed_s": 5.0})


async def trained(
    trainers: list[Trainer],
    checkpoints: Sequence[Snapshot | None],
    settings: Settings = SETTINGS,
    records: list[Record] | None = None,
) -> list[tuple[Peer, int, Snapshot]]:
    """Each peer at its end, the local steps it has taken since its checkpoint, and the checkpoint it leaves."""
    hub, peers, trainings, computes, kept = LocalHub(), [], [], [], dict[int, Snapshot]()
    for part, (trainer, snapshot) in enumerate(zip(trainers, checkpoints, strict=True)):
        if snapshot is not None:
            trainer.restore(snapshot)
        endpoint = Endpoint(LocalTransport(hub, f"p{part}"), patience_s=5, rng=random.Random(part))
        await endpoint.open()
        endpoint.dial(f"p{1 - part}", "")
        peer = Peer(
            endpoint,
            settings,
            Place(name=str(part), data_shard=part),
            trainer.facts(),
            steps=settings.steps,
            resumed=snapshot,
            record=(records if records is not None else list[Record]()).append,
        )
        peers.append(peer)
        computes.append(AtOnce())
        replica = TaskReplica(trainer, computes[-1])
        trainings.append(Training(peer, replica, Stop(), partial(kept.__setitem__, part)))
    contacts: list[asyncio.Future[str | None]] = [asyncio.get_running_loop().create_future() for _ in peers]
    for contact, whom in zip(contacts, (None, "p0"), strict=True):
        contact.set_result(whom)
    await asyncio.gather(*(training.run(contact) for training, contact in zip(trainings, contacts, strict=True)))
    for peer in peers:
        peer.close()
    return [(peer, compute.steps, kept[part]) for part, (peer, compute) in enumerate(zip(peers, computes, strict=True))]


def still_trainers() -> list[Trainer]:
    return [still_trainer(part) for part in range(2)]


def test_a_peer_stopped_in_an_older_round_brings_no_step_of_it() -> None:
    further, behind = checkpoint(0, 9, 100.0, 0), checkpoint(1, 1, 1.0, 3)
    for peer, steps, _ in run_virtual(trained(still_trainers(), [further, behind])):
        assert (peer.conversation.state.round, float(peer.conversation.state.vector), steps) == (10, 100.0, 8)


def test_a_peer_stopped_amid_the_present_round_goes_on_with_its_steps() -> None:
    """The control: steps that were taken in the round that all go on from do count."""
    peers = run_virtual(trained(still_trainers(), [checkpoint(0, 9, 100.0, 3), checkpoint(1, 9, 100.0, 5)]))
    assert [steps for _, steps, _ in peers] == [5, 3]


def test_records_tell_of_the_local_steps_before_a_stop_too() -> None:
    records: list[Record] = []
    stopped = [checkpoint(0, 9, 100.0, 3), checkpoint(1, 9, 100.0, 5)]
    run_virtual(trained(still_trainers(), stopped, records=records))
    rounds = [record for record in records if isinstance(record, ExchangeRecord)]
    assert [round(record.steps_per_s * record.compute_s) for record in rounds] == [8, 8]


def stopped_amid(ended: Snapshot, part: int) -> Snapshot:
    """The checkpoint of a gossiping peer that has taken 3 more local steps since its checkpoint `ended`."""
    trainer = still_trainer(part)
    trainer.restore(ended)
    trainer.begin(Keep())
    trainer.train(3)
    kept = trainer.snapshot()
    return Snapshot({**ended.tensors, **kept.tensors}, {**ended.numbers, **kept.numbers})


def test_records_of_gossip_tell_of_the_local_steps_before_a_stop_too() -> None:
    records: list[Record] = []
    gossip = Settings(protocol="gossip", peers=2, period="8", steps=16, device="cpu")
    first = run_virtual(trained(still_trainers(), [None, None], gossip))
    stopped = [stopped_amid(kept, part) for part, (_, _, kept) in enumerate(first)]
    second = run_virtual(trained(still_trainers(), stopped, replace(gossip, steps=32), records))
    assert [steps for _, steps, _ in second] == [13, 13]
    rounds = [record for record in records if isinstance(record, ExchangeRecord)]
    assert [round(record.steps_per_s * record.compute_s) for record in rounds] == [8] * 4


def test_a_run_that_has_gone_further_than_it_is_to_go_is_refused() -> None:
    beyond = [checkpoint(part, 11, 100.0, 0) for part in range(2)]
    with pytest.raises(ValueError, match="gone 88 local steps, and is to end after 80: give more --steps"):
        run_virtual(trained(still_trainers(), beyond))


def moving_trainers() -> list[Trainer]:
    return [
        Trainer(toy_task(64), seed=0, data_shard=part, data_shards=2, device=torch.device("cpu")) for part in range(2)
    ]


def trained_on(codec: str, steps: int, checkpoints: Sequence[Snapshot | None] = (None, None)) -> list[Snapshot]:
    """The last checkpoints of two peers, who took so many local steps in all."""
    settings = replace(SETTINGS, codec=codec, steps=steps)
    return [kept for *_, kept in run_virtual(trained(moving_trainers(), checkpoints, settings))]


def test_the_residual_of_a_codec_from_an_older_round_is_forgotten() -> None:
    """The others went on from a later round, which this peer has to fetch: what it brought to that is in it."""
    earlier, later = trained_on("top_k:0.1", 32), trained_on("top_k:0.1", 40)
    huge = torch.full_like(earlier[1].tensors["residual"], 1e6)
    late = replace(earlier[1], tensors={**earlier[1].tensors, "residual": huge})
    for ended in trained_on("top_k:0.1", 48, [later[0], late]):
        assert ended.numbers["state"]["round"] == 6
        assert ended.tensors["state/vector"].abs().max() < 1e3
