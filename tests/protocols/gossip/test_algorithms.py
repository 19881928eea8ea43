"""The gossip algorithms as functions, on problems whose solution is known."""

import re

import pytest
import torch
from live import ROOT
from tiers import soaked
from torch import Tensor
from ways import WAYS

from samovar.aggregation.codecs.registry import parse_codec
from samovar.aggregation.mixing.registry import parse_topology
from samovar.aggregation.mixing.weights import matrix
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.fields import SettingsError
from samovar.protocols.gossip.algorithms.algorithm import Algorithm, Held
from samovar.protocols.gossip.algorithms.choco import step_for
from samovar.protocols.gossip.algorithms.differences import Differences
from samovar.protocols.gossip.algorithms.registry import ALGORITHMS, parse_algorithm
from samovar.protocols.work import AfterStep, Update

PEERS, RATE, PERIOD = 8, 0.02, 10
CURVES = torch.linspace(0.5, 2.0, PEERS, dtype=torch.float64)
CENTERS = torch.arange(PEERS, dtype=torch.float64)
BEST = float((CURVES * CENTERS).sum() / CURVES.sum())
"""Peer i has the loss a_i (x - b_i)^2 / 2, so this minimises the sum of all."""


def local_steps(algorithm: Algorithm, held: Held, peer: int) -> Update:
    """`PERIOD` steps of gradient descent on the peer's own loss."""
    x, correction = held.model.clone(), algorithm.correction(held)
    for _ in range(PERIOD):
        x -= RATE * CURVES[peer] * (x - CENTERS[peer])
        if isinstance(correction, AfterStep):
            x += correction.change
    return Update(vector=x, steps=PERIOD)


def trained(name: str, rounds: int, topology: str = "ring") -> list[Held]:
    """The states of all peers, of which each has a model [1]."""
    algorithm, graph = parse_algorithm(name), parse_topology(topology)
    states = [algorithm.begin(torch.zeros(1, dtype=torch.float64), 1) for _ in range(PEERS)]
    for round in range(1, rounds + 1):
        updates = [local_steps(algorithm, held, peer) for peer, held in enumerate(states)]
        given = [algorithm.give(*each) for each in zip(states, updates, strict=True)]
        mixed = matrix(algorithm.graph(graph), PEERS, round) @ torch.stack(given)
        states = [algorithm.mix(*each) for each in zip(states, updates, given, mixed, strict=True)]
    return states


def error(states: list[Held]) -> float:
    """How far the worst peer's model is from the best one."""
    return float((torch.stack([held.model for held in states]) - BEST).abs().max())


def test_gradient_tracking_reaches_the_common_minimum_where_d_psgd_stops_beside_it() -> None:
    assert error(trained("d_psgd", 400)) > 0.5
    assert error(trained("gradient_tracking", 400)) < 1e-6


def test_the_corrections_of_gradient_tracking_sum_to_nothing() -> None:
    states = trained("gradient_tracking", 7)
    total: Tensor = sum((held.tensors["correction"] for held in states), torch.zeros(1, dtype=torch.float64))
    assert float(total.abs()) < 1e-12
    assert all(float(held.tensors["correction"].abs()) > 1e-3 for held in states)


def apart_after(rounds: int, step: str, codec: str) -> float:
    """The consensus distance of nine peers in a ring that only mix, by CHOCO, over the distance at the beginning."""
    algorithm, coder, size = parse_algorithm(f"choco:{step}"), parse_codec(codec), 2000
    assert coder.family != "sketch"
    torch.manual_seed(0)
    models = list(torch.randn(9, size, dtype=torch.float64))
    mean, estimates = torch.stack(models).mean(0), [torch.zeros(size, dtype=torch.float64)] * 9
    weights, began = matrix(parse_topology("ring"), 9, 1), float((torch.stack(models) - mean).norm())
    for round in range(1, rounds + 1):
        estimates = [Differences(coder).encoded(*each, round, "a")[0] for each in zip(estimates, models, strict=True)]
        mixed = weights @ torch.stack(estimates)
        models = [
            algorithm.mix(Held(model), Update(vector=model), *each).model
            for model, *each in zip(models, estimates, mixed, strict=True)
        ]
    assert torch.allclose(torch.stack(models).mean(0), mean, atol=1e-9), "mixing leaves the mean as it is"
    return float((torch.stack(models) - mean).norm()) / began


@pytest.mark.parametrize(
    ("codec", "known", "most"),
    [
        soaked("top_k:0.01", 0.04, 0.5),
        ("top_k:0.1", 0.34, 1e-4),
        ("sign", 0.45, 0.2),
        soaked("qsgd", 0.9, 1e-12),
        ("int8", 1, 1e-12),
    ],
)
def test_the_usual_step_of_choco_suits_the_codec(codec: str, known: float, most: float) -> None:
    """Known: from the authors' code, or for a codec that loses next to nothing."""
    coder = parse_codec(codec)
    assert coder.family != "sketch"
    step = step_for(coder)
    assert 0.7 * known <= step <= 1.1 * known
    assert apart_after(200, f"{step:.4f}", codec) < most


def test_a_codec_that_makes_errors_larger_than_the_vector_is_refused() -> None:
    with pytest.raises(SettingsError, match="qsgd:1 makes errors larger than what it encodes"):
        Settings(protocol="gossip", algorithm="choco", codec="qsgd:1", topology="ring")


@pytest.mark.parametrize(
    ("step", "codec", "most"), [("0.34", "top_k:0.1", 1e-4), soaked("0.3", "qsgd", 1e-3), ("1", "int8", 1e-12)]
)
def test_choco_brings_models_together_however_coarse_the_codec(step: str, codec: str, most: float) -> None:
    assert apart_after(200, step, codec) < most


def test_choco_needs_a_step_that_suits_the_codec() -> None:
    assert apart_after(200, "1", "top_k:0.1") > 1


def test_choco_without_a_codec_is_elastic_averaging() -> None:
    """Zhang, Choromanska and LeCun, arXiv 1412.6651, with the neighbours' models in place of a centre variable."""
    models, alpha = torch.randn(PEERS, 5, dtype=torch.float64), 0.3 / 3
    ring = range(PEERS)
    pull = [alpha * (2 * models[one] - models[one - 1] - models[(one + 1) % PEERS]) for one in ring]
    mixed = matrix(parse_topology("ring"), PEERS, 1) @ models
    elastic = [
        parse_algorithm("choco:0.3").mix(Held(models[one]), Update(vector=models[one]), models[one], mixed[one]).model
        for one in ring
    ]
    assert torch.allclose(torch.stack(elastic), models - torch.stack(pull), atol=1e-12)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_is_among_the_ways_to_train_and_on_its_page(name: str) -> None:
    tried = {str(way.settings.get("algorithm", "d_psgd")).split(":")[0] for way in WAYS if "gossip" in way.name}
    assert name in tried
    assert re.search(rf"^\| `{name}[`:]", (ROOT / "docs/gossip.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_neighbour_finds_the_model_in_the_given_vector(name: str) -> None:
    algorithm, model = parse_algorithm(name), torch.tensor([1.0, 2.0, 3.0])
    held = algorithm.begin(model, 2)
    assert algorithm.model(held, algorithm.rest(held)).equal(model)
    moved = Update(vector=model + 1, steps=4)
    assert algorithm.model(held, algorithm.give(held, moved)).equal(model + 1)
    assert algorithm.give(held, moved).shape == algorithm.rest(held).shape
