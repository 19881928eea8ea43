"""Averaging while local steps go on: what it does to the model and the clock, and who is stopped and goes on."""

from __future__ import annotations

import dataclasses
import random
from itertools import pairwise, product
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from live import DIGITS, samovar
from test_outer_runs import UNION, bits, play
from test_simulated_runs import simulate
from tiers import one_in
from torch import nn
from two_peers import TwoPeers

from samovar.aggregation.outer import Momentum
from samovar.aggregation.periods.fixed import Fixed
from samovar.aggregation.vector import Part, parts
from samovar.peers.checkpoints.checkpoint import load
from samovar.peers.records.records import ExchangeRecord, Record
from samovar.peers.run_settings.settings import Settings, SettingsError
from samovar.peers.task.task import Task, load_task
from samovar.peers.training.trainer import Trainer
from samovar.protocols.local_sgd.behind import Behind
from samovar.protocols.local_sgd.growth import Growth
from samovar.protocols.local_sgd.rounds import Outcome
from samovar.protocols.local_sgd.state import State
from samovar.protocols.meter import Meter
from samovar.protocols.work import Add, Begin, Blend, Update
from samovar.sims.scenarios.scenario import Fault, Kind, Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World


def trainers(parts: int = 3) -> list[Trainer]:
    task = load_task(UNION)
    return [
        Trainer(task, seed=0, data_shard=part, data_shards=parts, device=torch.device("cpu")) for part in range(parts)
    ]


def flat(one: Trainer) -> torch.Tensor:
    return one.vector


# The clock

AVERAGING_S = 0.02
"""Of a small model between two peers: there and back."""


def rounds_of(records: list[Record], peer: str = "0") -> list[ExchangeRecord]:
    return [record for record in records if isinstance(record, ExchangeRecord) and record.peer == peer]


@pytest.mark.parametrize("step_ms", [1, 4, 20])
def test_a_round_with_overlap_takes_the_longer_of_the_two(step_ms: int) -> None:
    """Five local steps to a round, the last three only, so each is 5, 20 or 100 ms long."""
    shape = {"peers": 2, "period": "5", "steps": 43, "link": "100gbit,10ms", "step_time": f"{step_ms}ms"}
    compute_s, last_s = 5e-3 * step_ms, 3e-3 * step_ms
    apart, ahead = (rounds_of(simulate(UNION, **shape, overlap=overlap)[1]) for overlap in (False, True))
    assert [record.version for record in ahead] == [record.version for record in apart] == list(range(1, 10))

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


@pytest.mark.parametrize(
    ("outer", "fragments", "overlap_share"), one_in(4, product(["plain", "nesterov:0.7:0.9"], [1, 3], [None, 0.0, 0.5]))
)
def test_the_mean_of_overlapped_peers_equals_the_computation_by_hand(
    outer: str, fragments: int, overlap_share: float | None
) -> None:
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
                one.begin(Add(agreed - before, part) if overlap_share is None else Blend(agreed, overlap_share, part))
            expected = torch.stack(now).mean(0)
            expected[here] = (
                agreed + done if overlap_share is None else overlap_share * expected + (1 - overlap_share) * agreed
            )[here]
            assert torch.allclose(torch.stack([flat(one) for one in ones]).mean(0), expected, atol=1e-6)
            assert float(done[here].abs().max()) > 1e-3
    (life, *others) = play(overlap=True, outer=outer, fragments=fragments, overlap_share=overlap_share, steps=50).lives
    assert life.peer.conversation.state.step == 50
    assert torch.allclose(life.peer.conversation.state.vector, agreed, atol=1e-5)
    assert all(bits(other) == bits(life) for other in others)
    waiting = play(outer=outer, fragments=fragments, steps=50)
    assert bits(waiting.lives[0]) != bits(life), "the control: without it is another run"


def test_digits_are_learnt_and_the_evaluated_model_is_the_committed_one() -> None:
    ended, records, world = simulate(DIGITS, peers=3, period="16", steps=400, overlap=True)
    assert all(metrics["accuracy"] >= 0.93 for _, metrics in ended.measured)
    assert ended.measured
    told = [one.metrics["accuracy"] for one in records if isinstance(one, ExchangeRecord) and one.metrics]
    assert len(told) >= 2
    assert told[-1] == world.lives[0].trainer.evaluate(world.lives[0].peer.conversation.state.vector)["accuracy"]


def test_to_evaluate_another_model_leaves_no_trace() -> None:
    (one,) = trainers(1)
    seen = []
    task = Task(UNION, nn.Flatten, one.task.data, one.task.loss, lambda _: seen.append(flat(one)) or 0.5, None)
    one.task, before = task, flat(one)
    assert one.evaluate(before + 1) == {"accuracy": 0.5}
    assert torch.equal(seen[0], before + 1)
    assert torch.equal(flat(one), before)


def test_buffers_stay_a_peers_own_amid_a_round() -> None:
    """The variance that batch normalisation keeps would be below 0 here, if it were corrected as a weight is."""
    task = load_task(UNION)
    task = Task(UNION, lambda: nn.BatchNorm1d(2), task.data, task.loss, None, task.optimizer)
    one = Trainer(task, seed=0, data_shard=0, data_shards=1, device=torch.device("cpu"))
    brought, end = flat(one), one.copy.parameters
    one.model.running_var.fill_(0.1)
    state = State(1, 1, torch.zeros_like(brought), (), Fixed(1).start())
    averaging = type("Done", (), {"vector": state.vector, "part": Part(0, len(brought)), "state": state})()
    growth = Growth(MagicMock(), MagicMock(), one.copy.layout, Meter(), lambda: state)
    behind = Behind(Meter(), growth, None, end)
    behind.brought = Update(vector=brought)
    one.begin(behind.merge(averaging)[1])
    assert torch.equal(flat(one)[:end], torch.zeros(end))
    assert torch.equal(one.model.running_var, torch.full((2,), 0.1))


# Peers that are stopped and go on


def two(latency: str = "100ms", **more: Any) -> TwoPeers:
    """Local steps of a round take 5 ms, to average it twice the latency."""
    settings = Settings(peers=2, period="5", steps=98, overlap=True, device="cpu", checkpoint_every_s=0.0)
    return TwoPeers(load_task(UNION), settings, latency=latency, **more)


@pytest.mark.parametrize("stop_s", one_in(3, (random.Random(seed).uniform(1.0, 4.0) for seed in range(6))))
def test_a_peer_stopped_amid_a_round_loses_no_step_before_its_contribution(stop_s: float) -> None:
    """And what it brought is brought again: the run goes on to its last step, and the same bits on both."""
    stopped = two(stop_s=stop_s)
    for kept in stopped.kept.values():
        assert kept.numbers["steps_in_round"] == 5
        assert kept.numbers["steps"] == kept.numbers["state"]["step"] + 5, "none of those that are lost is counted"
    assert 0 < stopped.ends[0].version < 19
    resumed = two(begun=stopped.kept)
    assert [end[:2] for end in resumed.ends] == [(20, 98)] * 2
    assert torch.equal(*(end.model for end in resumed.ends))


def test_a_peer_stopped_after_a_round_loses_nothing() -> None:
    """Here it takes less than the local steps, and what has come of it is taken over."""
    stopped = two("1ms", stop_s=0.06)
    rounds = [max(record.version for record in rounds_of(stopped.records, name)) for name in "01"]
    assert rounds == [end.version for end in stopped.ends]
    assert 0 < min(rounds) < 19
    for part, kept in stopped.kept.items():
        own, step = kept.tensors["model/0.weight"].flatten(), kept.numbers["state"]["step"]
        assert kept.numbers["state"]["round"] == rounds[part]
        assert kept.numbers["steps"] == step + kept.numbers["steps_in_round"]
        assert kept.numbers["steps_in_round"] == 0, "it was stopped before the first of the next ones"
        assert torch.allclose(own, kept.tensors["state/vector"][: len(own)], atol=1e-6)
    resumed = two("1ms", begun=stopped.kept)
    assert torch.equal(*(end.model for end in resumed.ends))
    assert resumed.ends[0][:2] == (20, 98)


def test_a_run_that_a_former_version_began_is_resumed(tmp_path: Path) -> None:
    train = ("train", UNION, "--peers", 2, "--period", 8, "--run", "run", "--json", "--no-report", "--overlap")
    ended = samovar(tmp_path, *train, "--steps", 24, "--mixing", 0.5)
    assert ended.code == 0, ended.err
    assert "samovar: --mixing is called --overlap-share now" in ended.err.splitlines()
    settings = tmp_path / "run/settings.json"
    text = settings.read_text("utf-8")
    settings.write_text(text.replace('"overlap_share"', '"mixing"'))  # as a former version wrote it
    resumed = samovar(tmp_path, "train", UNION, "--resume", "run", "--steps", 48, "--json")
    assert resumed.code == 0, resumed.err
    assert "samovar: run/settings.json: mixing is called overlap_share now" in resumed.err.splitlines()
    assert '"overlap_share": 0.5' in settings.read_text("utf-8")
    kept = [load(tmp_path / f"run/checkpoint/peer-{name}.safetensors") for name in "01"]
    assert [one.numbers["state"]["step"] for one in kept] == [48] * 2
    assert torch.equal(*(one.tensors["state/vector"] for one in kept))


def test_a_peer_left_behind_takes_the_others_model_and_merges_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own steps were taken from a model that the others left long ago."""
    merged, left = list[bool](), list[Behind]()
    merge, drop = Behind.merge, Behind.drop

    def watched(self: Behind, done: Outcome) -> tuple[Update, Begin]:
        merged.append(done.caught_up)
        return merge(self, done)

    def dropped(self: Behind) -> None:
        left.append(self)
        drop(self)

    monkeypatch.setattr(Behind, "merge", watched)
    monkeypatch.setattr(Behind, "drop", dropped)
    few = {"peers": 3, "period": "5", "steps": 400, "overlap": True, "link": "100mbit,20ms", "patience_s": 1.0}
    plain = Scenario.plain(Settings(device="cpu", checkpoint_every_s=0.0, **few))
    pause = Fault(kind=Kind.PAUSE, who=(2,), at_s=1.0, for_s=2.0)
    world = World(load_task(UNION), dataclasses.replace(plain, faults=(pause,)))
    run_virtual(world.run(), seed=0)
    assert {bits(life) for life in world.lives} == {bits(world.lives[0])}
    assert (len(left), any(merged)) == (1, False)


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
def test_settings_that_do_not_go_with_overlap_are_refused(wished: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Settings(overlap=True, **wished)


@pytest.mark.parametrize("overlap_share", [1, -0.1, 1.5, float("nan"), True, "half"])
def test_an_overlap_share_that_cannot_be_is_refused(overlap_share: object) -> None:
    with pytest.raises(SettingsError, match="overlap_share must be a number from 0 up to, but not, 1, got"):
        Settings(overlap=True, period="8", overlap_share=overlap_share)


def test_an_overlap_share_is_for_overlap() -> None:
    with pytest.raises(SettingsError, match="overlap_share is for --overlap"):
        Settings(period="8", overlap_share=0.5)
