"""Averaged buffers are statistics, not sums of updates: no way to train leads a running variance below 0."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from live import ROOT
from tiers import soak
from ways import STEP_MS, WAYS

from samovar.aggregation.codecs.partly import Partly
from samovar.aggregation.codecs.registry import parse_codec
from samovar.aggregation.mixing.registry import parse_topology
from samovar.aggregation.mixing.weights import row
from samovar.peers.run_settings.roles import role_of
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import load_task
from samovar.protocols.gossip.algorithms.push_sum import PushSum
from samovar.protocols.gossip.pairs import Meeting
from samovar.protocols.work import Update
from samovar.sims.scenarios.scenario import Group, Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

NORMED = ROOT / "tests/support/tasks/normed.py"
TRIED = (
    "outer nesterov", "overlap, outer", "overlap, share, fragments, outer, int8", "pace, outer, int8", "int8", "top_k",
    "sign", "random_k", "power_sgd", "fragments, outer, top_k", "sites, outer, top_k",
)  # fmt: skip
NIGHTLY = {
    "overlap, outer", "pace, outer, int8", "sign", "random_k", "gossip, torus", "gossip, one peer", "gossip, auto",
    "gossip, swim", "gossip, swim, links", "servers, async", "servers, ssp", "servers, backup",
}  # fmt: skip
"""Ways that change statistics by the same code as others, which each change tries: by another codec of one family, over
other links, or with pushes and pulls in another order."""
COMMON = {"peers": 3, "period": "3", "steps": 24, "device": "cpu", "link": "100mbit,5ms"}


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, id=way.name, marks=[soak] * (way.name in NIGHTLY))
        for way in WAYS
        if not way.task_file and way.name.startswith((*TRIED, "gossip", "servers"))
    ],
)
def test_a_running_variance_is_never_below_zero(way) -> None:
    wished = {**COMMON, **way.settings, "evaluate_every": 100}
    settings = Settings(**{name: value for name, value in wished.items() if value is not None})
    usual = Scenario.plain(settings)
    groups = [
        Group(
            peers=1,
            link=usual.groups[0].link,
            step_s=(STEP_MS, STEP_MS, 3 * STEP_MS)[index % 3] / 1e3,
            role=role_of(settings, index),
        )
        for index in range(settings.founders)
    ]
    task = load_task(NORMED)
    world = World(task, replace(usual, groups=tuple(groups)), lambda record: None)
    run_virtual(world.run(within_s=100), seed=0)
    least = task.loss.__globals__["LEAST"]
    trained = [life.trainer.model for life in world.lives if not life.role]
    assert len(trained) == 3
    assert len(least) >= 2 * 3 * 20, "before each local step of each peer"
    assert min(least) < 0.1, "the variances have come down"
    ended = [float(norm.running_var.min()) for model in trained for norm in (model[1], model[3])]
    assert min(*least, *ended) >= 0


def test_a_pair_adds_to_a_parameter_what_a_statistic_goes_half_of_the_way_to() -> None:
    """Local steps have added 1 to the parameter since, and have brought the variance down from 1 to 0.1."""
    before, after = torch.tensor([5.0, 1.0]), torch.tensor([6.0, 0.1])
    met = Meeting.of(before, torch.tensor([7.0, 0.02]), 0.5, 1)
    assert met.applied(after).tolist() == pytest.approx([7.0, 0.06])


def test_a_peer_of_little_weight_gives_its_statistics_by_that_weight() -> None:
    """In a star a leaf has less weight than 1, so the difference of its sum from its model is below 0."""
    algorithm, star, peers = PushSum(), parse_topology("star"), 5
    held = [algorithm.begin(torch.tensor([3.0, 1.0]), 1) for _ in range(peers)]
    for _ in range(3):
        updates = [Update(vector=torch.stack((one.model[0] - 1, one.model[1] * 0.01)), steps=1) for one in held]
        given = [algorithm.give(*both) for both in zip(held, updates, strict=True)]
        taken = [row(star, peers, peer, 1) for peer in range(peers)]
        links = [sum(peer in of for other, of in enumerate(taken) if other != peer) for peer in range(peers)]
        shares = [vector / (1 + many) for vector, many in zip(given, links, strict=True)]
        mixed = [
            sum((shares[other] for other in of if other != peer), start=shares[peer]) for peer, of in enumerate(taken)
        ]
        held = [algorithm.mix(*all_of) for all_of in zip(held, updates, given, mixed, strict=True)]
    assert min(float(one.tensors["sum"][-1]) for one in held) < 0.8
    assert all(0 < float(one.model[1]) < 1e-5 for one in held)
    assert float(sum(one.tensors["sum"][0] for one in held)) == pytest.approx(0.0, abs=1e-4), "15 less 3 * 5"


@pytest.mark.parametrize("codec", ["int8", "sign"])
@pytest.mark.parametrize("exact", [0, 2, 5])
def test_a_codec_of_a_part_leaves_the_last_elements_as_they_are(codec: str, exact: int) -> None:
    inner = parse_codec(codec)
    assert inner is not None
    assert inner.family != "sketch"
    partly, values = Partly(inner, exact, torch.float32), torch.tensor([1.0, -2.0, 0.5, 1e-9, 3e7])
    payload = partly.encode(values, 0)
    assert len(payload) == partly.encoded_bytes(5)
    decoded = partly.decode(payload, 5, torch.float32)
    assert decoded[5 - exact :].equal(values[5 - exact :])
    if exact < 5:
        alone = inner.encode(values[: 5 - exact], 0)
        assert decoded[: 5 - exact].equal(inner.decode(alone, 5 - exact, torch.float32))
    with pytest.raises(ValueError, match="5 elements are"):
        partly.decode(payload[:-1], 5, torch.float32)
