"""Averaging while local steps go on: what it does to the model and the clock, and who comes, dies, stops, goes on."""

from __future__ import annotations

import asyncio
import random
import signal
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from live import DIGITS, STEADY, Live, samovar
from simulated import endpoint_in
from test_outer_runs import FEW, UNION, Everything, bits, play
from test_resume import AtOnce
from test_simulated_runs import simulate
from torch import nn

from samovar.aggregation.outer import Momentum
from samovar.aggregation.vector import Part, parts
from samovar.peers.checkpoints.checkpoint import Snapshot, load
from samovar.peers.conversations.policies import first_state
from samovar.peers.peer import Identity, Peer
from samovar.peers.records.records import Record, RoundRecord
from samovar.peers.settings.link_text import parse_link
from samovar.peers.settings.settings import Settings, SettingsError
from samovar.peers.task.task import Task, load_task
from samovar.peers.training.loop import resume
from samovar.peers.training.overlap import training_of
from samovar.peers.training.stop import Stop
from samovar.peers.training.trainer import Trainer
from samovar.sims.scenarios.scenario import Fault, Kind
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.network import Network


def trainers(parts: int = 3) -> list[Trainer]:
    task = load_task(UNION)
    return [Trainer(task, seed=0, part=part, parts=parts, device=torch.device("cpu")) for part in range(parts)]


def flat(one: Trainer) -> torch.Tensor:
    return one.vector


# The clock

AVERAGING_S = 0.02
"""Of a small model between two peers: there and back."""


def rounds_of(records: list[Record], peer: str = "0") -> list[RoundRecord]:
    return [record for record in records if isinstance(record, RoundRecord) and record.peer == peer]


@pytest.mark.parametrize("step_ms", [1, 4, 20])
def test_a_round_with_overlap_takes_the_longer_of_the_two(step_ms: int) -> None:
    """Five local steps to a round, the last three only, so each is 5, 20 or 100 ms long."""
    shape = {"peers": 2, "period": "5", "steps": 43, "link": "100gbit,10ms", "step_time": f"{step_ms}ms"}
    compute_s, last_s = 5e-3 * step_ms, 3e-3 * step_ms
    apart, ahead = (rounds_of(simulate(UNION, **shape, overlap=overlap)[1]) for overlap in (False, True))
    assert [record.round for record in ahead] == [record.round for record in apart] == list(range(1, 10))

    def exactly(seconds: float) -> object:
        return pytest.approx(seconds, abs=1e-6)

    assert all(later.time_s - one.time_s == exactly(compute_s + AVERAGING_S) for one, later in pairwise(apart[:-1]))
    longer_s = max(compute_s, AVERAGING_S)
    assert [later.time_s - one.time_s for one, later in pairwise(ahead)] == [
        *[exactly(longer_s)] * 6,
        exactly(max(last_s, AVERAGING_S)),  # the last local steps
        exactly(AVERAGING_S),  # of what they have come to: nothing is left to do meanwhile
    ]
    first, *others, last = ahead
    assert first.compute_s == exactly(2 * compute_s), "before the first average, and amid it"
    assert (last.compute_s, last.hidden_s, last.wait_s + last.transfer_s) == (0.0, 0.0, exactly(AVERAGING_S))
    for record in others[:-1]:
        assert record.compute_s == exactly(compute_s)
        assert record.hidden_s == exactly(min(compute_s, AVERAGING_S))
        assert record.wait_s + record.transfer_s == exactly(max(0.0, AVERAGING_S - compute_s)), "what stood still"
    assert last.time_s == exactly(sum(record.compute_s + record.wait_s + record.transfer_s for record in ahead))
    assert sum(round(record.steps_per_s * record.compute_s) for record in ahead) == 43


# The model


@pytest.mark.parametrize("outer", ["plain", "nesterov:0.7:0.9"])
@pytest.mark.parametrize("fragments", [1, 3])
@pytest.mark.parametrize("overlap_share", [None, 0.0, 0.5])
def test_the_mean_of_the_peers_is_what_it_should_be(outer: str, fragments: int, overlap_share: float | None) -> None:
    """As by hand; and as promised: with the mean of what all did meanwhile, or with as much of it as is mixed in."""
    step = Momentum(0.9, 0.7, nesterov=True)
    ones, agreed = trainers(), flat(trainers()[0]).clone()
    velocity = torch.zeros_like(agreed)
    cuts = parts(len(agreed), fragments)
    for one in ones:
        one.train(5)
    for round_ in range(1, 11):
        part = cuts[(round_ - 1) % fragments]
        here, brought = slice(*part), [flat(one) for one in ones]
        mean = torch.stack(brought).mean(0)[here]
        if outer != "plain":
            mean, (velocity[here],) = step.step(agreed[here], mean, (velocity[here].clone(),))
        agreed[here] = mean
        if round_ < 10:
            for one in ones:
                one.train(5)
            now = [flat(one) for one in ones]
            done = torch.stack([after - before for after, before in zip(now, brought, strict=True)]).mean(0)
            for one, before in zip(ones, brought, strict=True):
                one.merge(agreed, before, part, overlap_share)
            expected = torch.stack(now).mean(0)
            expected[here] = (
                agreed + done if overlap_share is None else overlap_share * expected + (1 - overlap_share) * agreed
            )[here]
            assert torch.allclose(torch.stack([flat(one) for one in ones]).mean(0), expected, atol=1e-6)
            assert float(done[here].abs().max()) > 1e-3
    (life, *others) = play(overlap=True, outer=outer, fragments=fragments, overlap_share=overlap_share, steps=50).lives
    assert life.peer.state.step == 50
    assert torch.allclose(life.peer.state.vector, agreed, atol=1e-5)
    assert all(bits(other) == bits(life) for other in others)
    waiting = play(outer=outer, fragments=fragments, steps=50)
    assert bits(waiting.lives[0]) != bits(life), "the control: without it is another run"


def test_the_same_run_gives_the_same_bits_on_any_link() -> None:
    lives = [play(overlap=True, steps=48, link=link).lives[0] for link in ("1gbit,100us", "1mbit,100ms")]
    assert bits(lives[0]) == bits(lives[1])


@pytest.mark.parametrize(("codec", "fragments"), [("int8", 1), ("top_k:0.1", 1), ("power_sgd:2", 1), ("int8", 4)])
def test_replicas_are_equal_at_the_end_with_any_codec(codec: str, fragments: int) -> None:
    lives = play(overlap=True, codec=codec, fragments=fragments, steps=48).lives
    assert len({bits(life) for life in lives}) == 1
    assert all(torch.equal(flat(life.trainer), life.peer.state.vector) for life in lives), "all end with it"


def test_digits_are_learnt_all_the_same_and_what_is_evaluated_is_what_all_agreed_on() -> None:
    ended, records, world = simulate(DIGITS, peers=4, period="16", steps=800, overlap=True)
    assert ended.accuracy is not None
    assert ended.accuracy >= 0.95
    told = [record.accuracy for record in records if isinstance(record, RoundRecord) and record.accuracy is not None]
    assert len(told) == 5
    assert told[-1] == world.lives[0].trainer.evaluate(world.lives[0].peer.state.vector)


def test_to_evaluate_another_model_leaves_no_trace() -> None:
    (one,) = trainers(1)
    seen = []
    task = Task(UNION, nn.Flatten, one.task.data, one.task.loss, lambda _: seen.append(flat(one)) or 0.5, None)
    one.task, before = task, flat(one)
    assert one.evaluate(before + 1) == 0.5
    assert torch.equal(seen[0], before + 1)
    assert torch.equal(flat(one), before)


def test_buffers_stay_a_peers_own_amid_a_round() -> None:
    """The variance that batch normalisation keeps would be below 0 here, if it were corrected as a weight is."""
    task = load_task(UNION)
    task = Task(UNION, lambda: nn.BatchNorm1d(2), task.data, task.loss, None, task.optimizer)
    one = Trainer(task, seed=0, part=0, parts=1, device=torch.device("cpu"))
    brought, end = flat(one), one.parameters
    one.model.running_var.fill_(0.1)
    one.merge(torch.zeros_like(brought), brought, Part(0, len(brought)))
    assert torch.equal(flat(one)[:end], torch.zeros(end))
    assert torch.equal(one.model.running_var, torch.full((2,), 0.1))


# Who dies, comes late, stops and goes on


@pytest.mark.parametrize("at_step", range(11, 16))
def test_a_crash_amid_an_overlapped_round_is_decided_as_without_it(at_step: int) -> None:
    """Peer 1 brings its model to round 2, and dies with it under way, on a link on which it takes long."""
    fault = Fault(kind=Kind.CRASH, who=(1,), at_step=at_step)
    for overlap in (True, False):
        lives = play((fault,), overlap=overlap, steps=48, patience_s=1.0, link="1mbit,50ms").lives
        assert [life.result is not None and life.result.finished for life in lives] == [True, False, True]
        assert bits(lives[0]) == bits(lives[2])
        assert (lives[0].peer.state.step, lives[0].peer.state.round) == (48, 10)
        assert [loss.name for loss in lives[0].peer.membership.losses if not loss.left] == ["1"]


def test_a_latecomer_takes_part() -> None:
    lives = play(late=2.0, overlap=True, steps=100).lives
    assert lives[-1].peer.state.round == 20
    assert len(lives[-1].peer.membership.view.members) == 4
    assert len({bits(life) for life in lives}) == 1


def test_who_stood_still_takes_the_model_that_it_fetches_as_it_is() -> None:
    fault = Fault(kind=Kind.PAUSE, who=(1,), at_s=0.3, for_s=3.0)
    world = play((fault,), overlap=True, steps=200, patience_s=1.0, step_time="20ms")
    assert all(life.result is not None and life.result.finished for life in world.lives)
    assert len({bits(life) for life in world.lives}) == 1
    assert {life.peer.state.step for life in world.lives} == {200}


@pytest.mark.parametrize("more", [{}, {"fragments": 3}, {"fragments": 3, "overlap_share": 0.5}])
def test_a_checkpoint_of_a_round_goes_on_as_an_unbroken_run(more: dict[str, object]) -> None:
    whole = Everything(outer="nesterov", overlap=True, **more)
    assert whole.snapshots[4][0].numbers["steps_in_round"] == 5, "what it is about to bring to the next round"
    assert Everything(begun=whole.snapshots[4], outer="nesterov", overlap=True, **more).bits == whole.bits


class Pair:
    """Two peers, each of which is stopped after `stop_s`. Local steps of a round take 5 ms, to average it twice the
    latency."""

    def __init__(
        self, latency: str = "100ms", stop_s: float | None = None, begun: dict[int, Snapshot] | None = None
    ) -> None:
        self.settings = Settings(**{**FEW, "peers": 2, "steps": 98, "overlap": True})
        self._latency = latency
        self.kept: dict[int, Snapshot] = {}
        self.records: list[Record] = []
        self.states = run_virtual(self._main(stop_s, begun or {}))

    async def _main(self, stop_s: float | None, begun: dict[int, Snapshot]) -> list[tuple[int, int, bytes]]:
        network = Network(parse_link(f"100gbit,{self._latency}"), 0)
        return list(await asyncio.gather(*(self._peer(network, part, stop_s, begun.get(part)) for part in range(2))))

    async def _peer(
        self, network: Network, part: int, stop_s: float | None, begun: Snapshot | None
    ) -> tuple[int, int, bytes]:
        endpoint, stop, one = endpoint_in(network, f"p{part}"), Stop(), trainers(2)[part]
        await endpoint.open()
        endpoint.admit(f"p{1 - part}")
        state, elapsed_s = first_state(self.settings, flat(one)), 0.0
        if begun is not None:
            state, elapsed_s, _ = resume(begun, one)
        if part:
            endpoint.dial("p0", "sim://p0")
        peer = Peer(
            endpoint, self.settings, Identity(str(part), part), run="r", layout=one.layout, state=state,
            elapsed_s=elapsed_s, steps=self.settings.steps, record=self.records.append,
        )  # fmt: skip
        contact = asyncio.get_running_loop().create_future()
        contact.set_result("p0" if part else None)
        if stop_s is not None:
            asyncio.get_running_loop().call_later(stop_s, stop.set)

        def keep(snapshot: Snapshot) -> None:
            copies = {name: tensor.clone() for name, tensor in snapshot.tensors.items()}
            self.kept[part] = Snapshot(copies, snapshot.numbers)

        await training_of(peer, one, AtOnce(), stop, keep).run(contact)
        peer.close()
        return peer.state.round, peer.state.step, peer.state.vector.numpy().tobytes()


@pytest.mark.parametrize("stop_s", [random.Random(seed).uniform(1.0, 4.0) for seed in range(6)])
def test_who_is_stopped_amid_a_round_loses_the_steps_since_it_brought_its_model_at_most(stop_s: float) -> None:
    """And what it brought is brought again: the run goes on to its last step, and the same bits on both."""
    stopped = Pair(stop_s=stop_s)
    for kept in stopped.kept.values():
        assert kept.numbers["steps_in_round"] == 5
        assert kept.numbers["steps"] == kept.numbers["state"]["step"] + 5, "none of those that are lost is counted"
    assert 0 < stopped.states[0][0] < 19
    resumed = Pair(begun=stopped.kept)
    assert [state[:2] for state in resumed.states] == [(20, 98)] * 2
    assert resumed.states[0] == resumed.states[1]


def test_who_is_stopped_when_the_round_is_over_loses_nothing() -> None:
    """Here it takes less than the local steps, and what has come of it is taken over."""
    stopped = Pair("1ms", 0.06)
    rounds = [max(record.round for record in rounds_of(stopped.records, name)) for name in "01"]
    assert rounds == [state[0] for state in stopped.states]
    assert 0 < min(rounds) < 19
    for part, kept in stopped.kept.items():
        own, step = kept.tensors["model/0.weight"].flatten(), kept.numbers["state"]["step"]
        assert kept.numbers["state"]["round"] == rounds[part]
        assert kept.numbers["steps"] == step + kept.numbers["steps_in_round"]
        assert kept.numbers["steps_in_round"] == 0, "it was stopped before the first of the next ones"
        assert torch.allclose(own, kept.tensors["state/vector"][: len(own)], atol=1e-6)
    resumed = Pair("1ms", begun=stopped.kept)
    assert resumed.states[0] == resumed.states[1]
    assert resumed.states[0][:2] == (20, 98)


def test_ctrl_c_and_resume_in_real_processes_also_of_a_run_that_a_former_version_began(tmp_path: Path) -> None:
    train = ("train", STEADY, "--peers", 3, "--period", 8, "--run", "run", "--json", "--no-report", "--overlap")
    run = Live(tmp_path, *train, "--steps", 240, "--mixing", 0.5)
    run.until(lambda: run.rounds() >= 12, "round 12")
    run.signal(signal.SIGINT)
    ended = run.end()
    assert (ended.code, ended.left) == (130, [])
    assert run.rounds() < 30
    assert "samovar: --mixing is called --overlap-share now" in ended.err.splitlines()
    settings = tmp_path / "run/settings.json"
    settings.write_text(
        settings.read_text("utf-8").replace('"overlap_share"', '"mixing"')
    )  # as a former version wrote it
    resumed = samovar(tmp_path, "train", STEADY, "--resume", "run", "--json")
    assert resumed.code == 0, resumed.err
    assert "samovar: run/settings.json: mixing is called overlap_share now" in resumed.err.splitlines()
    assert '"overlap_share": 0.5' in settings.read_text("utf-8")
    kept = [load(tmp_path / f"run/checkpoint/peer-{name}.safetensors") for name in "012"]
    assert [one.numbers["state"]["step"] for one in kept] == [240] * 3
    assert all(torch.equal(one.tensors["state/vector"], kept[0].tensors["state/vector"]) for one in kept)


# What it does not go with


@pytest.mark.parametrize(
    ("wished", "said"),
    [
        ({}, "period must be a number of local steps with --overlap, got adaptive"),
        ({"period": "even:4"}, "period must be a number of local steps with --overlap, got even:4"),
        ({"period": "8", "pace": "own"}, "pace cannot be own with --overlap"),
        ({"period": "8", "inner": "reset"}, "inner cannot be reset with --overlap: a round ends amid"),
        ({"average": "gradients"}, "overlap is for averages of models, not of gradients"),
    ],
)
def test_what_does_not_go_with_overlap_is_refused(wished: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Settings(overlap=True, **wished)


@pytest.mark.parametrize("overlap_share", [1, -0.1, 1.5, float("nan"), True, "half"])
def test_an_overlap_share_that_cannot_be_is_refused(overlap_share: object) -> None:
    with pytest.raises(SettingsError, match="overlap_share must be a number from 0 up to, but not, 1, got"):
        Settings(overlap=True, period="8", overlap_share=overlap_share)


def test_an_overlap_share_is_for_overlap() -> None:
    with pytest.raises(SettingsError, match="overlap_share is for --overlap"):
        Settings(period="8", overlap_share=0.5)
