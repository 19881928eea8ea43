"""The outer step, fragments and the inner optimizer's state, against what they are by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from live import verb
from loops import begin
from test_simulated_runs import DIGITS, TASKS
from torch import nn
from two_peers import TwoPeers

from samovar.aggregation.fragments import Fragments
from samovar.aggregation.outer import Momentum
from samovar.peers.checkpoints.checkpoint import Snapshot
from samovar.peers.records.records import ExchangeRecord, Record
from samovar.peers.run_settings.settings import Settings, SettingsError
from samovar.peers.task.averaged import Averaged
from samovar.peers.task.task import load_task
from samovar.peers.training.trainer import Trainer
from samovar.protocols.work import Load
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.simulated_peer import Life
from samovar.sims.world.world import World

UNION = TASKS / "union.py"
FEW = {"peers": 3, "period": "5", "device": "cpu", "checkpoint_every_s": 0.0, "link": "100mbit,5ms"}


def play(**settings: Any) -> World:
    scenario = Scenario.plain(Settings(**{**FEW, **settings}))
    world = World(load_task(UNION), scenario)
    run_virtual(world.run(), seed=scenario.settings.seed)
    return world


def bits(life: Life) -> tuple[bytes, ...]:
    state = life.peer.conversation.state
    return tuple(tensor.numpy().tobytes() for tensor in (state.vector, *state.outer))


def two(begun: dict[int, Snapshot] | None = None, **settings: Any) -> TwoPeers:
    wished = Settings(peers=2, period="5", steps=20, device="cpu", checkpoint_every_s=0.0, **settings)
    return TwoPeers(load_task(UNION), wished, begun=begun)


def test_a_run_is_resumed_with_its_outer_momentum() -> None:
    """The control of what `test_ways_to_train.py` tries: without it is another run."""
    unbroken = two(outer="nesterov")
    begun = unbroken.snapshots[2]
    assert two(begun, outer="nesterov").everything == unbroken.everything
    for snapshot in begun.values():
        snapshot.tensors["state/outer/0"].zero_()
    assert not torch.equal(two(begun, outer="nesterov").ends[0].model, unbroken.ends[0].model)


def test_a_run_does_not_go_on_with_another_kind_of_outer_step() -> None:
    begun = two(outer="nesterov").snapshots[2]
    with pytest.raises(ValueError, match="another outer step than plain"):
        two(begun)


# Fragments


def test_fragments_are_averaged_in_turn_as_by_hand() -> None:
    """And a peer trains on with its own values of what is not averaged."""
    fragments, outer = Fragments.of(trainer("kept").copy.layout.size, 3), Momentum(0.9, 0.7, nesterov=True)
    trainers = [
        Trainer(load_task(UNION), seed=0, data_shard=part, data_shards=3, device=torch.device("cpu"))
        for part in range(3)
    ]
    agreed = trainers[0].vector
    velocity = torch.zeros_like(agreed)
    for round_ in range(10):
        start, stop = fragments.parts[round_ % 3]
        vectors = []
        for one in trainers:
            one.train(5)
            vectors.append(one.vector)
        mean = torch.stack(vectors).mean(0)[start:stop]
        stepped, (after,) = outer.step(agreed[start:stop], mean, (velocity[start:stop],))
        agreed[start:stop], velocity[start:stop] = stepped, after
        for one, vector in zip(trainers, vectors, strict=True):
            vector[start:stop] = stepped
            one.begin(Load(vector))
    (life, *others) = play(outer="nesterov", fragments=3, steps=50).lives
    assert torch.allclose(life.peer.conversation.state.vector, agreed, atol=1e-5)
    assert torch.allclose(life.peer.conversation.state.outer[0], velocity, atol=1e-5)
    assert all(bits(other) == bits(life) for other in others)
    assert torch.equal(life.trainer.vector, life.peer.conversation.state.vector), "all end with it"


def test_a_model_smaller_than_its_fragments_has_one_for_each_number() -> None:
    assert [part.stop - part.start for part in Fragments.of(3, 1000).parts] == [1, 1, 1]


def rounds_of(**settings) -> list[ExchangeRecord]:
    """The records of a run of a megabyte."""
    records: list[Record] = []
    simulation = Scenario.plain(Settings(**{**FEW, "steps": 2, "period": "1", **settings}))
    world = World(load_task(TASKS / "megabyte.py"), simulation, records.append)
    run_virtual(world.run())
    return [record for record in records if isinstance(record, ExchangeRecord)]


def sent(**settings) -> list[int]:
    """Bytes in each round but the first, of all peers."""
    rounds = rounds_of(**settings)
    last = max(record.version for record in rounds)
    return [sum(one.bytes_sent for one in rounds if one.version == number) for number in range(2, last + 1)]


@pytest.mark.parametrize("codec", ["none", "int8", "top_k:0.1"])
def test_a_round_sends_one_fragment(codec: str) -> None:
    (whole,) = sent(codec=codec)
    for nbytes in sent(codec=codec, fragments=4, steps=5):
        assert whole / 4 < nbytes < whole / 3.5


@pytest.mark.parametrize("codec", ["none", "int8"])
def test_a_record_tells_the_bytes_of_the_model_that_were_averaged_before_a_codec(codec: str) -> None:
    size = 512 * 512 + 512
    assert {record.model_bytes for record in rounds_of(codec=codec)} == {4 * size}
    told = {record.version: record.model_bytes for record in rounds_of(codec=codec, fragments=4, steps=4)}
    assert [told[number] for number in range(1, 5)] == [4 * (b - a) for a, b in Fragments.of(size, 4).parts]
    assert {record.model_bytes for record in rounds_of(codec=codec, peers=1)} == {0}, "nobody to average with"


def test_a_codec_of_whole_tensors_does_not_go_with_fragments() -> None:
    with pytest.raises(SettingsError, match="fragments cannot be with power_sgd:2, which needs the whole model"):
        Settings(fragments=2, codec="power_sgd:2")


# The inner optimizer


def trainer(inner: str, part: int = 0) -> Trainer:
    return Trainer(load_task(UNION), seed=0, data_shard=part, data_shards=2, device=torch.device("cpu"), inner=inner)


def test_the_inner_optimizers_state_is_kept_or_reset_at_an_average() -> None:
    for inner, left in (("kept", 4), ("reset", 0)):
        one = trainer(inner)
        one.train(5)
        assert len(one.optimizer.state) == 4
        one.begin(Load(one.vector, fresh_optimizer=inner == "reset"))
        assert len(one.optimizer.state) == left
        one.train(5)
    assert bits(play(steps=50).lives[0]) != bits(play(steps=50, inner="reset").lives[0])


def test_parameters_come_before_buffers_in_the_averaged_vector() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2), nn.BatchNorm1d(2))
    averaged = Averaged(model)
    slots = averaged.layout.slots
    first = slots[len(list(model.parameters()))]
    assert first.name == "0.running_mean"
    assert first.start == averaged.parameters == 18


def test_a_scripts_loop_takes_outer_steps_even_alone_and_resets_its_optimizer(tmp_path: Path) -> None:
    run = begin(tmp_path, peers=1, period=2, outer="momentum:0.5", inner="reset")
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    optimizer = run.wrap(torch.optim.SGD(model.parameters(), lr=0.25, momentum=0.9), model)
    outer, anchor = Momentum(0.5), torch.ones(1)
    state = outer.start(anchor)
    for _ in range(3):
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(1, 1)).sum().backward()  # the gradient is 1
            optimizer.step()
        # The second step's velocity is 1.9, with nothing left of the round before.
        anchor, state = outer.step(anchor, anchor - 0.25 * (1 + 1.9), state)
        assert torch.allclose(model.weight.detach().flatten(), anchor)
    run.leave()


def test_both_verbs_explain_outer_and_inner_and_refuse_bad_values(tmp_path: Path) -> None:
    for way in ("train", "simulate"):
        said = " ".join(verb(way, "--help").output.split())
        assert "--outer plain|STEP" in said
        assert "--inner kept|averaged|reset" in said
    ended = verb("simulate", DIGITS, "--outer", "nesterov:2:1", "--run", tmp_path / "run")
    assert ended.exit_code == 2
    assert "--outer is refused: the outer step 'nesterov:2:1' cannot be: the momentum must be" in ended.output
    ended = verb("simulate", DIGITS, "--outer", "adam", "--run", tmp_path / "run")
    assert "--outer must be one of plain, momentum, server_momentum, nesterov" in " ".join(ended.output.split())
