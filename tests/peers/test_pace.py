"""Peers that go by their own pace: nobody waits for the slow, and where training ends does not depend on speed."""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from pathlib import Path

import pytest
import torch
from live import verb
from loops import begin
from test_simulated_runs import DIGITS, TASKS
from tiers import one_in
from torch import nn

from samovar.aggregation.fednova import FAR, UNKNOWN_SPEEDS, Speeds, effective, normalised, own_steps
from samovar.peers.records.records import ExchangeRecord, Record
from samovar.peers.run_settings.settings import Settings, SettingsError
from samovar.peers.task.task import Task, load_task
from samovar.protocols.local_sgd.own_pace import Pace
from samovar.protocols.local_sgd.rounds import Contribution
from samovar.protocols.local_sgd.state import State
from samovar.sims.scenarios.scenario import Fault, Group, Kind, Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.simulated_peer import Life
from samovar.sims.world.world import World

RATE = 0.005
CURVES, OPTIMA = (0.5, 1.0, 2.0, 1.5), (-3.0, 0.0, 1.0, 5.0)
COMMON = sum(c * o for c, o in zip(CURVES, OPTIMA, strict=True)) / sum(CURVES)
"""Where the mean of all peers' losses is least."""
FEW = {"peers": 4, "period": "16", "device": "cpu", "checkpoint_every_s": 0.0, "link": "100mbit,5ms"}
SLOW = (0.01, 0.01, 0.01, 0.05)
"""Seconds of a local step: one peer of four is five times slower."""


def play(
    task: Task, steps_s: tuple[float, ...] = SLOW, faults: tuple[Fault, ...] = (), late_s: float = 0.0, **settings
):
    """The world, when it is over, and its records, by peer."""
    wished, records = Settings(**{**FEW, "peers": len(steps_s) - bool(late_s), **settings}), defaultdict(list)
    link = Scenario.plain(wished).groups[0].link
    scenario = Scenario(
        settings=wished,
        groups=tuple(Group(peers=1, link=link, step_s=step_s) for step_s in steps_s),
        arrivals=((len(steps_s) - 1, late_s),) if late_s else (),
        faults=faults,
    )

    def record(what: Record) -> None:
        if isinstance(what, ExchangeRecord):
            records[int(what.peer)].append(what)

    world = World(task, scenario, record)
    run_virtual(world.run(), seed=wished.seed)
    return world, records


def bits(life: Life) -> bytes:
    return life.peer.conversation.state.vector.numpy().tobytes()


def squares() -> Task:
    """Least squares without noise: peer i alone would end at OPTIMA[i]."""

    def loss(model: nn.Module, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        curve, optimum = batch[0][0]
        return 0.5 * curve * ((model(torch.ones(1, 1)) - optimum) ** 2).sum()

    return Task(
        Path("squares"),
        lambda: nn.Linear(1, 1, bias=False),
        lambda part, parts: [(torch.tensor([[CURVES[part], OPTIMA[part]]]),)] * 8,
        loss,
        None,
        lambda parameters: torch.optim.SGD(parameters, lr=RATE),
    )


def end(steps_s: tuple[float, ...], **settings) -> float:
    world, _ = play(squares(), steps_s, **{"steps": 600, "period": "8", **settings})
    return float(world.lives[0].peer.conversation.state.vector)


# The formulas


def test_all_need_the_same_time_for_their_own_steps() -> None:
    speeds = (1.0, 1.0, 1.0, 0.2)
    mean = Speeds(sum(speeds) / 4, sum(1 / speed for speed in speeds) / 4)
    assert [own_steps(16, speed, mean) for speed in speeds] == [20, 20, 20, 4]
    assert own_steps(16, 0.0, mean) == own_steps(16, 1.0, UNKNOWN_SPEEDS) == 16, (
        "a peer that knows nothing takes the period"
    )
    assert own_steps(0, 1.0, mean) == 0, "the run is over"


@pytest.mark.parametrize("period", [1, 2, 3, 5, 7, 16, 100])
def test_nobody_makes_others_wait_by_rounding_but_for_a_single_step(period: int) -> None:
    for tenths in range(1, 100):
        taken, fits = own_steps(period, tenths / 10, Speeds(1.0, 1.0)), period * tenths / 10
        assert taken == 1 or 0.5 * fits <= taken <= 1.05 * fits


def test_normalised_contributions_sum_to_the_closed_form_of_the_paper() -> None:
    chance = torch.Generator().manual_seed(0)
    anchor, steps, batch = torch.randn(5, generator=chance).double(), (20, 20, 20, 4), (4.0, 8.0, 4.0, 2.0)
    ends = [anchor + torch.randn(5, generator=chance).double() for _ in steps]
    shares = [size / sum(batch) for size in batch]
    effective_steps = 16
    paper = anchor - effective_steps * sum(
        share * (anchor - x) / taken for share, x, taken in zip(shares, ends, steps, strict=True)
    )
    brought = [normalised(x, anchor, effective_steps / taken) for x, taken in zip(ends, steps, strict=True)]
    mean = sum(size * x for size, x in zip(batch, brought, strict=True)) / sum(batch)
    assert torch.allclose(mean, paper, atol=1e-12)


def test_with_equal_steps_the_very_same_vector_is_brought() -> None:
    vector = torch.randn(5)
    assert normalised(vector, torch.zeros(5), 1.0) is vector


def test_buffers_are_brought_as_they_are() -> None:
    brought = normalised(torch.tensor([3.0, 1.0]), torch.tensor([1.0, 0.5]), 4.0, 1)
    assert brought.tolist() == [9.0, 1.0]


def test_steps_count_for_less_where_peers_differ_so_much_that_the_mean_would_swing() -> None:
    assert effective(16, Speeds(1.0, 1.2)) == 16
    mean = Speeds(0.55, 5.5)  # half of them ten times slower than the others
    fast, slow = 16 / 0.55, 1.6 / 0.55
    assert effective(16, mean) * (1 / fast + 1 / slow) / 2 == pytest.approx(FAR)


async def test_the_weight_of_a_peer_follows_its_batch_size_and_not_its_number_of_batches() -> None:
    state = State(1, 8, torch.zeros(1), (), None, speeds=Speeds(1.0, 1.0))
    contribution = Contribution(torch.ones(1), 20 * 4.0, 0.0, 0.1, 0.0, steps=20)
    brought = await Pace(True).brought(contribution, 16, state, parameters=None, compute_s=10.0, steps=20)
    assert (brought.weight, float(brought.vector), brought.speeds) == (16 * 4.0, pytest.approx(0.8), Speeds(2.0, 0.5))
    assert await Pace(False).brought(contribution, 16, state, parameters=None, compute_s=10.0, steps=20) is contribution


async def test_a_newcomer_without_a_measurement_brings_the_agreed_speeds() -> None:
    """A newcomer's first round would else count as one at no speed at all."""
    agreed = Speeds(2.0, 0.6)
    state = State(1, 8, torch.zeros(1), (), None, speeds=agreed)
    contribution = Contribution(torch.ones(1), 4.0, 0.0, 0.1, 0.0, steps=20)
    brought = await Pace(True).brought(contribution, 16, state, parameters=None, compute_s=0.0, steps=20)
    assert brought.speeds == agreed


# Runs


def test_training_ends_at_the_common_optimum_though_speeds_differ() -> None:
    assert abs(end(SLOW, pace="own") - COMMON) < 0.15, "all peers drift a little"


def test_the_plain_mean_of_unequal_steps_would_end_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control."""

    async def as_it_is(self: Pace, contribution: Contribution, *args, **kwargs) -> Contribution:
        brought = await normalising(self, contribution, *args, **kwargs)
        return brought._replace(vector=contribution.vector, weight=contribution.weight)

    normalising = Pace.brought
    monkeypatch.setattr(Pace, "brought", as_it_is)
    pulls = [curve * taken for curve, taken in zip(CURVES, (20, 20, 20, 4), strict=True)]
    biased = sum(pull * optimum * taken for pull, optimum, taken in zip(pulls, OPTIMA, (20, 20, 20, 4), strict=True))
    biased /= sum(pull * taken for pull, taken in zip(pulls, (20, 20, 20, 4), strict=True))
    found = end(SLOW, pace="own")
    assert abs(found - COMMON) > 1.2
    assert abs(found - biased) < 0.2


@pytest.mark.parametrize("pace", ["equal", "own"])
def test_a_peer_five_times_slower_does_not_hold_the_others(pace: str) -> None:
    task = load_task(DIGITS)
    steps = 800 if pace == "own" else 160
    without, alone = play(task, SLOW[:3], steps=steps)
    with_it, records = play(task, SLOW, steps=steps, pace=pace)

    def steps_per_s(rounds: dict[int, list[ExchangeRecord]]) -> float:
        """Of one fast peer, over the whole run, by what its own records say."""
        taken = sum(record.steps_per_s * record.compute_s for record in rounds[0])
        return taken / rounds[0][-1].time_s

    share = steps_per_s(records) / steps_per_s(alone)
    if pace == "equal":
        assert share < 0.4, "the control: all wait for it"
        return
    assert share >= 0.95
    assert with_it.lives[0].result is not None
    accuracy = next(life.result.metrics["accuracy"] for life in with_it.lives if life.result.metrics)
    least = next(life.result.metrics["accuracy"] for life in without.lives if life.result.metrics)
    assert accuracy >= least - 0.01
    assert len({bits(life) for life in with_it.lives}) == 1


def test_the_own_pace_of_equal_peers_is_the_equal_pace_to_the_bit() -> None:
    task, alike = load_task(TASKS / "union.py"), (0.01,) * 4
    (equal, _), (own, _) = (play(task, alike, steps=64, period="8", pace=pace) for pace in ("equal", "own"))
    assert bits(equal.lives[0]) == bits(own.lives[0])


@pytest.mark.parametrize(("outer", "codec"), one_in(2, product(["plain", "nesterov"], ["none", "int8", "top_k:0.1"])))
def test_all_go_on_with_the_same_bits(outer: str, codec: str) -> None:
    world, _ = play(load_task(TASKS / "union.py"), steps=160, pace="own", outer=outer, codec=codec)
    assert len({(bits(life), life.peer.conversation.state.speeds) for life in world.lives}) == 1


def test_a_latecomer_knows_the_pace_of_the_others() -> None:
    world, records = play(load_task(TASKS / "union.py"), (*SLOW, 0.02), late_s=1.0, steps=320, pace="own")
    assert [life.result is not None for life in world.lives] == [True] * 5
    assert len({(bits(life), life.peer.conversation.state.speeds) for life in world.lives}) == 1
    assert world.lives[0].peer.conversation.state.speeds.steps_per_s == pytest.approx((3 * 100 + 20 + 50) / 5, rel=1e-4)
    last = {peer: round(rounds[-2].steps_per_s * rounds[-2].compute_s) for peer, rounds in records.items()}
    assert last == {0: 22, 1: 22, 2: 22, 3: 4, 4: 11}


def test_a_restarted_peer_goes_on_at_the_pace_of_the_others() -> None:
    fault = Fault(kind=Kind.RESTART, who=(1,), at_s=1.0, for_s=0.2)
    world, records = play(load_task(TASKS / "union.py"), faults=(fault,), steps=400, pace="own", patience_s=1.0)
    ended = [life for life in world.lives if life.result is not None]
    assert [life.number for life in world.lives if life.index == 1] == [0, 1]
    assert len({(bits(life), life.peer.conversation.state.speeds) for life in ended}) == 1
    assert len(ended) == 4
    assert round(records[1][-2].steps_per_s * records[1][-2].compute_s) == 20


def test_the_survivors_of_a_crash_end_with_one_model_and_find_their_pace() -> None:
    fault = Fault(kind=Kind.CRASH, who=(3,), at_s=2.0)
    world, records = play(load_task(TASKS / "union.py"), faults=(fault,), steps=400, pace="own", patience_s=1.0)
    ended = [life for life in world.lives if life.result is not None]
    assert len({bits(life) for life in ended}) == 1
    assert [life.index for life in ended] == [0, 1, 2]
    assert round(records[0][-2].steps_per_s * records[0][-2].compute_s) == 16


# What a user says


APART = [{"average": "gradients", "period": "1"}, {"fragments": 2}, {"period": "auto"}]


@pytest.mark.parametrize("other", APART, ids=lambda other: next(iter(other)))
def test_settings_that_do_not_go_with_the_own_pace_are_refused(other: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match="pace"):
        Settings(**{"pace": "own", **other})


def test_the_help_of_both_verbs_explains_the_pace() -> None:
    for way in ("train", "simulate"):
        assert "--pace equal|own" in " ".join(verb(way, "--help").output.split())


def test_a_scripts_loop_goes_by_its_own_pace(tmp_path: Path) -> None:
    run = begin(tmp_path, peers=1, period=3, pace="own")
    model = nn.Linear(1, 1, bias=False)
    optimizer = run.wrap(torch.optim.SGD(model.parameters(), lr=0.25), model)
    before = model.weight.item()
    for _ in range(12):
        assert run.period == 3, "alone it is the mean"
        optimizer.zero_grad()
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()
    run.leave()
    assert model.weight.item() == pytest.approx(before - 12 * 0.25)
