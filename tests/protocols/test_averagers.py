"""Codecs in a run: the same bits on all peers, close to what no codec gives, and nobody trusts a payload."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from simulated import no_complaints  # noqa: F401
from tiers import soaked

from samovar.aggregation.codecs.codec import allreduce_bytes
from samovar.aggregation.codecs.registry import CODECS, parse_codec
from samovar.aggregation.mean import Mean
from samovar.aggregation.schedules.registry import SCHEDULES
from samovar.aggregation.vector import Layout
from samovar.peers.conversations import local_sgd_schedules as schedules
from samovar.peers.run_settings.settings import Settings
from samovar.protocols.collectives.coded import CodedAllreduce
from samovar.protocols.group import Group
from samovar.protocols.local_sgd.averager_choice import averager_for
from samovar.protocols.local_sgd.rounds import Committed, Contribution
from samovar.protocols.transfer.chunks import CELL
from samovar.sims.scenarios.scenario import Fault, Kind, Scenario
from samovar.sims.scenarios.toy import toy_task
from samovar.sims.sweeps.promises import broken
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

SIZE = 2 * CELL + 300
"""Inputs of the toy model: a few cells of the grid for each part, not all of them whole."""


LARGE = 500_000
"""Of which headers are a small part."""


def played(
    codec: str,
    *,
    peers: int = 4,
    schedule: str = "ring",
    size: int = SIZE,
    faults: tuple[Fault, ...] = (),
    steps: int = 8,
) -> World:
    settings = Settings(
        peers=peers, period="2", steps=steps, codec=codec, schedule=schedule, patience_s=1.0, seed=3, device="cpu"
    )
    world = World(toy_task(size), replace(Scenario.plain(settings), faults=faults))
    run_virtual(world.run(within_s=300), seed=3)
    assert broken(world.scenario, world.log.entries) is None
    return world


def model_of(world: World) -> torch.Tensor:
    """The one that all who live have in the end, to the bit."""
    models = {life.peer.conversation.state.vector.numpy().tobytes() for life in world.lives if life.result is not None}
    assert len(models) == 1
    return torch.from_numpy(np.frombuffer(models.pop(), np.float32).copy())


def assert_nobody_took_anothers(world: World) -> None:
    """Each went on from what it had added up itself: who has other bits fetches those that most have."""
    attempts = [entry.event.attempt for entry in world.log.entries if isinstance(entry.event, Committed)]
    assert len(attempts) > len(world.lives)
    assert all(attempts)


def sent_by(world: World) -> int:
    return sum(life.endpoint.bytes_sent for life in world.lives)


@pytest.fixture(scope="module")
def plain() -> World:
    return played("none")


@pytest.mark.parametrize("codec", CODECS)
def test_all_peers_end_with_the_same_bits_and_near_the_model_without_a_codec(codec: str, plain: World) -> None:
    world = played(codec)
    assert_nobody_took_anothers(world)
    exact = model_of(plain)
    start = next(entry.event.vector for entry in plain.log.entries if isinstance(entry.event, Committed))
    moved = (exact - start).norm()
    worst = {"fp16": 0.01, "bf16": 0.05, "int8": 0.1, "qsgd": 0.6}.get(codec, 2.0)
    assert (model_of(world) - exact).norm() <= worst * moved
    if codec != "power_sgd":  # the toy model is one row, which no rank is lower than
        assert sent_by(world) < sent_by(plain), "fewer bytes were sent"


@pytest.mark.parametrize("codec", [soaked("none"), "top_k", soaked("int8"), soaked("random_k")])
def test_a_round_sends_the_bytes_that_its_schedule_is_chosen_by(codec: str) -> None:
    """Of each family one codec."""
    peers = 5
    few, many = (sent_by(played(codec, peers=peers, size=LARGE, steps=steps)) for steps in (4, 8))
    layout = Layout.of(dict(toy_task(LARGE).model().named_parameters()))
    foreseen = allreduce_bytes(None if codec == "none" else parse_codec(codec), layout, 1, peers)
    headers = 600 * peers * (peers - 1)
    assert (many - few) / 2 == pytest.approx(2 * (peers - 1) * foreseen, rel=0.1, abs=headers)


@pytest.mark.parametrize(
    ("settings", "nbytes"), [({}, 400_004), ({"fragments": 4}, 100_001), ({"codec": "int8"}, None)]
)
def test_auto_chooses_by_the_bytes_of_a_round(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], nbytes: int | None
) -> None:
    asked, fastest = set[int](), schedules.fastest

    def heard(known: Any, costs: Any, world: int, size_bytes: int, *more: Any) -> Any:
        asked.add(size_bytes)
        return fastest(known, costs, world, size_bytes, *more)

    monkeypatch.setattr(schedules, "fastest", heard)
    wished = Settings(peers=3, period="2", steps=8, patience_s=1.0, device="cpu", **settings)
    run_virtual(World(toy_task(100_000), Scenario.plain(wished)).run(within_s=300), seed=3)
    assert asked == {parse_codec("int8").encoded_bytes(100_001) if nbytes is None else nbytes}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_final_part_is_passed_on_unchanged_in_every_schedule(schedule: str) -> None:
    """Encoded anew, with the norm of what was decoded, it would have other bits further from the part's owner."""
    assert_nobody_took_anothers(played("qsgd:7:l2", peers=5, schedule=schedule))


@pytest.mark.parametrize("codec", ["int8", "top_k:0.1", "power_sgd:1"])
def test_a_crash_in_a_round_with_a_codec_decides_it(codec: str) -> None:
    faults = (Fault(kind=Kind.CRASH, who=(1,), at_step=5),)
    world = played(codec, size=2000, faults=faults)
    assert sum(life.result is not None for life in world.lives) == 3
    model_of(world)


class Alone:
    """The reducer of one peer."""

    group = Group(("p0",), 1, 0)
    guard = None

    def check(self, mean: Mean, anchor: torch.Tensor, gain: float = 1.0) -> None: ...

    async def sum(self, vector: torch.Tensor, key, **_) -> torch.Tensor:
        return vector.clone()

    async def gather(self, payload: torch.Tensor, key) -> list[tuple[str, torch.Tensor]]:
        return [("p0", payload)]


@pytest.mark.parametrize("codec", ["top_k:0.1", "random_k:0.1", "power_sgd:1"])
async def test_an_attempt_that_was_not_committed_leaves_no_trace(codec: str) -> None:
    """Not even when the next to be committed is a round to which this peer brings nothing."""
    anchor = torch.zeros(8, 9)
    made = torch.Generator().manual_seed(1)
    first, failed, last = (torch.randn(72, generator=made) for _ in range(3))

    async def last_mean(*, fails: bool) -> torch.Tensor:
        averager = averager_for(parse_codec(codec), Alone(), lambda names: Layout.of({"weights": anchor}), seed=3)

        async def mean(vector: torch.Tensor, weight: float, round_: int):
            return (await averager.mean(Contribution(vector, weight, 1.0, 0.1, 2.0), anchor.view(-1), (1, round_)))[0]

        await mean(first, 1.0, 1)
        averager.committed()
        if fails:
            await mean(failed, 1.0, 2)
        assert await mean(first, 0.0, 2) is None
        averager.committed()
        return (await mean(last, 1.0, 3)).vector

    assert torch.equal(await last_mean(fails=True), await last_mean(fails=False))


LAYOUTS = {names: Layout.of({name: torch.zeros(8, 9) for name in ("weights", *names)}) for names in ((), ("more",))}


async def second_change(codec: str, attempt: tuple[int, int], names: tuple[str, ...] = ()) -> torch.Tensor:
    """The change of the model in this attempt, the second one, by a peer that has not moved since the first: what the
    codec left out then. `names`: the parameters that have been unfrozen since."""
    averager = averager_for(parse_codec(codec), Alone(), LAYOUTS.__getitem__, seed=3)
    moved = torch.randn(72, generator=torch.Generator().manual_seed(1))
    await averager.mean(Contribution(moved, 1.0, 1.0, 0.1, 2.0), torch.zeros(72), (1, 1))
    averager.committed()
    anchor = torch.zeros(LAYOUTS[names].size)
    mean, _ = await averager.mean(Contribution(anchor, 1.0, 1.0, 0.1, 2.0, grown=names), anchor, attempt)
    return mean.vector


@pytest.mark.parametrize("codec", ["top_k:0.1", "random_k:0.1", "power_sgd:1"])
async def test_the_residual_of_a_codec_is_sent_next_unless_the_members_have_changed(codec: str) -> None:
    assert (await second_change(codec, (1, 2))).any()
    assert not (await second_change(codec, (2, 2))).any()


async def test_the_residual_of_a_codec_is_sent_although_a_parameter_was_unfrozen() -> None:
    change = await second_change("top_k:0.1", (1, 2), ("more",))
    assert change[:72].any()
    assert not change[72:].any()


@pytest.mark.parametrize("codec", ["int8", "top_k:0.1", "sign", "random_k:0.1"])
async def test_a_statistic_that_is_not_finite_stops_its_own_peer_also_with_a_codec(codec: str) -> None:
    averager = averager_for(parse_codec(codec), Alone(), lambda names: Layout.of({"weights": torch.zeros(72)}), seed=3)
    vector = torch.cat((torch.zeros(72), torch.tensor([1.0, math.nan])))
    with pytest.raises(ValueError, match="1 numbers of the model are not finite"):
        await averager.mean(Contribution(vector, 1.0, 1.0, 0.1, 2.0, statistics=2), torch.zeros(74), (1, 1))


async def test_the_residual_of_a_statistic_in_an_older_checkpoint_is_dropped() -> None:
    """Before, statistics were encoded too, and what was left out of a variance may be below 0."""
    owed, layout = (1, torch.full((74,), -2.0), ()), Layout.of({"weights": torch.zeros(72)})
    averager = averager_for(parse_codec("top_k:1.0"), Alone(), lambda names: layout, 3, owed)
    vector = torch.ones(74)
    mean, _ = await averager.mean(Contribution(vector, 1.0, 1.0, 0.1, 2.0, statistics=2), torch.zeros(74), (1, 2))
    assert mean is not None
    assert mean.vector[:72].tolist() == [-1.0] * 72
    assert mean.vector[72:].tolist() == [1.0, 1.0]
    averager.committed()
    assert averager.owed is not None
    assert not averager.owed[1].any()


class Weightless(Alone):
    """Some member takes back its weight in each sum after the first."""

    sums = 0

    async def sum(self, vector: torch.Tensor, key, **_) -> torch.Tensor:
        self.sums += 1
        return vector.clone() if self.sums == 1 else torch.zeros_like(vector)


async def test_a_round_whose_weights_add_up_to_nothing_for_its_statistics_has_no_mean() -> None:
    layout = Layout.of({"weights": torch.zeros(72)})
    averager = averager_for(parse_codec("random_k:0.1"), Weightless(), lambda names: layout, seed=3)
    brought = Contribution(torch.ones(74), 1.0, 1.0, 0.1, 2.0, statistics=2)
    mean, _ = await averager.mean(brought, torch.zeros(74), (1, 1))
    assert mean is None


def test_chunks_follow_a_grid_that_all_ranks_share(monkeypatch) -> None:
    seen: set[tuple[int, int]] = set()
    encoded = CodedAllreduce._encoded

    def note(self: CodedAllreduce, values, run, at: int) -> bytes:
        seen.add((at, at + len(values)))
        return encoded(self, values, run, at)

    monkeypatch.setattr(CodedAllreduce, "_encoded", note)
    played("int8", peers=3)
    starts = sorted(seen)
    assert all(stop <= start for (_, stop), (start, _) in pairwise(starts)), "no two overlap"
    assert max(stop - start for start, stop in seen) <= CELL
    assert parse_codec("int8").family == "hop"
