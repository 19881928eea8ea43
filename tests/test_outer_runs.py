"""The outer step and the inner optimizer's state in whole runs: whoever comes, dies or goes on, nobody's differ."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from live import verb
from loops import begin
from test_resume import AtOnce
from test_simulated_runs import DIGITS, TASKS
from torch import nn

from samovar.aggregation.fragments import Fragments
from samovar.aggregation.outer import Momentum
from samovar.peers.checkpoints.checkpoint import Snapshot
from samovar.peers.conversations.policies import first_state
from samovar.peers.peer import Identity, Peer
from samovar.peers.records.records import Record, RoundRecord
from samovar.peers.settings.settings import Settings, SettingsError
from samovar.peers.task.averaged import Averaged
from samovar.peers.task.task import load_task
from samovar.peers.training.loop import resume
from samovar.peers.training.overlap import training_of
from samovar.peers.training.stop import Stop
from samovar.peers.training.trainer import Trainer
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.in_process import LocalHub, LocalTransport
from samovar.sims.scenarios.scenario import Fault, Kind, Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.simulated_peer import Life
from samovar.sims.world.world import World

UNION = TASKS / "union.py"
FEW = {"peers": 3, "period": "5", "device": "cpu", "checkpoint_every_s": 0.0, "link": "100mbit,5ms"}


def play(faults: tuple[Fault, ...] = (), late: float = 0.0, **settings) -> World:
    scenario = dataclasses.replace(Scenario.plain(Settings(**{**FEW, **settings})), faults=faults)
    if late:
        group = dataclasses.replace(scenario.groups[0], peers=scenario.peers + 1, step_s=0.05)
        scenario = dataclasses.replace(scenario, groups=(group,), arrivals=((scenario.peers, late),))
    world = World(load_task(UNION), scenario)
    run_virtual(world.run(), seed=scenario.settings.seed)
    return world


def bits(life: Life) -> tuple[bytes, ...]:
    state = life.peer.state
    return tuple(tensor.numpy().tobytes() for tensor in (state.vector, *state.outer))


@pytest.mark.parametrize("outer", ["momentum:0.3", "server_momentum:0.5:0.9", "nesterov:0.7:0.9"])
def test_all_peers_keep_the_same_outer_state(outer: str) -> None:
    lives = play(outer=outer, steps=50).lives
    assert len({bits(life) for life in lives}) == 1
    assert float(lives[0].peer.state.outer[0].abs().max()) > 0
    assert bits(lives[0])[0] != bits(play(steps=50).lives[0])[0], "it does something"


@pytest.mark.parametrize("codec", ["int8", "top_k:0.1", "power_sgd:2"])
def test_a_codec_carries_pseudo_gradients_and_all_still_agree_on_the_outer_state(codec: str) -> None:
    assert len({bits(life) for life in play(outer="nesterov", codec=codec, steps=50).lives}) == 1


def test_a_latecomer_gets_the_outer_momentum_to_the_bit() -> None:
    lives = play(outer="nesterov", steps=100, late=2.0).lives
    late = lives[-1]
    assert (late.index, late.result is not None) == (3, True)
    assert late.peer.state.round == 20
    assert len(late.peer.membership.view.members) == 4, "it took part to the end"
    assert len({bits(life) for life in lives}) == 1


def test_who_restarts_with_a_checkpoint_gets_the_outer_momentum_too() -> None:
    fault = Fault(kind=Kind.RESTART, who=(1,), at_s=0.3, for_s=0.2)
    lives = play(outer="nesterov", steps=200, faults=(fault,), patience_s=1.0, step_time="20ms").lives
    ended = [life for life in lives if life.result is not None]
    assert [life.number for life in lives if life.index == 1] == [0, 1]
    assert len(ended) == 3
    assert len({bits(life) for life in ended}) == 1


class Everything:
    """A run of two peers, with each one's checkpoint of every round."""

    def __init__(self, *, begun: dict[int, Snapshot] | None = None, **settings) -> None:
        self.settings, self._begun = Settings(**{**FEW, "peers": 2, "steps": 40, **settings}), begun
        self.snapshots: dict[int, dict[int, Snapshot]] = defaultdict(dict)
        run_virtual(self._main())

    async def _main(self) -> None:
        self._hub = LocalHub()
        await asyncio.gather(*(self._peer(part) for part in range(2)))

    async def _peer(self, part: int) -> None:
        endpoint = Endpoint(LocalTransport(self._hub, f"p{part}"), patience_s=5, rng=random.Random(part))
        await endpoint.open()
        endpoint.dial(f"p{1 - part}", "")
        one = trainer(self.settings.inner, part)
        state, elapsed_s = first_state(self.settings, one.vector), 0.0
        if self._begun is not None:
            state, *_ = resume(self._begun[part], one)
            elapsed_s = 1.0  # here it takes no time
        peer = Peer(
            endpoint, self.settings, Identity(str(part), part, site=self.settings.site or ""), run="r",
            layout=one.layout, state=state, elapsed_s=elapsed_s, steps=self.settings.steps,
            parameters=one.parameters,
        )  # fmt: skip
        contact = asyncio.get_running_loop().create_future()
        contact.set_result(f"p{part - 1}" if part else None)

        def keep(snapshot: Snapshot) -> None:
            copies = {name: tensor.clone() for name, tensor in snapshot.tensors.items()}
            self.snapshots[snapshot.numbers["state"]["round"]][part] = Snapshot(copies, snapshot.numbers)

        await training_of(peer, one, AtOnce(), Stop(), keep).run(contact)
        peer.close()

    @property
    def bits(self) -> list[bytes]:
        return [
            one.tensors[name].numpy().tobytes()
            for _, one in sorted(self.snapshots[8].items())
            for name in ("state/vector", "state/outer/0", "model/0.weight")
        ]


@pytest.mark.parametrize("fragments", [1, 3])
@pytest.mark.parametrize("inner", ["kept", "reset"])
def test_a_resumed_run_goes_on_as_an_unbroken_one(inner: str, fragments: int) -> None:
    wished = {"outer": "nesterov", "inner": inner, "fragments": fragments}
    whole = Everything(**wished)
    begun = whole.snapshots[4]
    assert Everything(begun=begun, **wished).bits == whole.bits
    for snapshot in begun.values():
        snapshot.tensors["state/outer/0"].zero_()
    assert Everything(begun=begun, **wished).bits != whole.bits, "without its momentum it is another run"


def test_a_run_does_not_go_on_with_another_kind_of_outer_step() -> None:
    begun = Everything(outer="nesterov").snapshots[4]
    with pytest.raises(ValueError, match="another outer step than plain"):
        Everything(begun=begun)


# Fragments


def test_fragments_are_averaged_in_turn_as_by_hand() -> None:
    """And a peer trains on with its own values of what is not averaged."""
    fragments, outer = Fragments.of(trainer("kept").layout.size, 3), Momentum(0.9, 0.7, nesterov=True)
    trainers = [Trainer(load_task(UNION), seed=0, part=part, parts=3, device=torch.device("cpu")) for part in range(3)]
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
            one.load(vector)
    (life, *others) = play(outer="nesterov", fragments=3, steps=50).lives
    assert torch.allclose(life.peer.state.vector, agreed, atol=1e-5)
    assert torch.allclose(life.peer.state.outer[0], velocity, atol=1e-5)
    assert all(bits(other) == bits(life) for other in others)
    assert torch.equal(life.trainer.vector, life.peer.state.vector), "all end with it"


def sent(**settings) -> list[int]:
    """Bytes in each round but the first, of all peers."""
    records: list[Record] = []
    simulation = Scenario.plain(Settings(**{**FEW, "steps": 2, "period": "1", **settings}))
    world = World(load_task(TASKS / "megabyte.py"), simulation, records.append)
    run_virtual(world.run())
    rounds = [record for record in records if isinstance(record, RoundRecord)]
    last = max(record.round for record in rounds)
    return [sum(one.bytes_sent for one in rounds if one.round == number) for number in range(2, last + 1)]


@pytest.mark.parametrize("codec", ["none", "int8", "top_k:0.1"])
def test_a_round_sends_one_fragment(codec: str) -> None:
    (whole,) = sent(codec=codec)
    for nbytes in sent(codec=codec, fragments=4, steps=5):
        assert whole / 4 < nbytes < whole / 3.5


@pytest.mark.parametrize("codec", ["none", "int8", "top_k:0.1"])
def test_a_latecomer_gets_all_fragments(codec: str) -> None:
    lives = play(outer="nesterov", fragments=4, codec=codec, steps=100, late=2.0).lives
    assert len(lives) == 4
    assert len({bits(life) for life in lives}) == 1


def test_a_model_smaller_than_its_fragments_is_averaged_all_the_same() -> None:
    assert [part.stop - part.start for part in Fragments.of(3, 1000).parts] == [1, 1, 1]
    assert len({bits(life) for life in play(fragments=1000, steps=50).lives}) == 1


def test_what_needs_whole_tensors_does_not_go_with_fragments() -> None:
    with pytest.raises(SettingsError, match="fragments cannot be with power_sgd:2, which needs the whole model"):
        Settings(fragments=2, codec="power_sgd:2")


# The inner optimizer


def trainer(inner: str, part: int = 0) -> Trainer:
    return Trainer(load_task(UNION), seed=0, part=part, parts=2, device=torch.device("cpu"), inner=inner)


def test_the_inner_optimizers_state_is_kept_or_reset_at_an_average() -> None:
    for inner, left in (("kept", 4), ("reset", 0)):
        one = trainer(inner)
        one.train(5)
        assert len(one.optimizer.state) == 4
        one.load(one.vector)
        assert len(one.optimizer.state) == left
        one.train(5)
    assert bits(play(steps=50).lives[0]) != bits(play(steps=50, inner="reset").lives[0])


def test_parameters_come_before_buffers_in_what_is_averaged() -> None:
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


def test_flags_of_both_verbs_say_what_outer_and_inner_are(tmp_path: Path) -> None:
    for way in ("train", "simulate"):
        said = " ".join(verb(way, "--help").output.split())
        assert "--outer plain|STEP" in said
        assert "--inner kept|averaged|reset" in said
    ended = verb("simulate", DIGITS, "--outer", "nesterov:2:1", "--run", tmp_path / "run")
    assert ended.exit_code == 2
    assert "--outer is refused: the outer step 'nesterov:2:1' cannot be: the momentum must be" in ended.output
    ended = verb("simulate", DIGITS, "--outer", "adam", "--run", tmp_path / "run")
    assert "--outer must be one of plain, momentum, server_momentum, nesterov" in " ".join(ended.output.split())
