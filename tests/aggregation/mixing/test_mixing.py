"""Topologies, their weights, and how fast they bring all peers together."""

import math

import numpy as np
import pytest

from samovar.aggregation.mixing.edge_list import EdgeList
from samovar.aggregation.mixing.grid import Grid
from samovar.aggregation.mixing.random_graphs import Epidemic, RandomRegular, SmallWorld
from samovar.aggregation.mixing.registry import GIVEN_BY_NAME, parse_topology
from samovar.aggregation.mixing.regular import Complete, Exponential, OnePeerExponential, Ring, Star, Torus, Wheel
from samovar.aggregation.mixing.slim_fly import SlimFly
from samovar.aggregation.mixing.spectrum import rho, rounds_to
from samovar.aggregation.mixing.topology import Neighbours, Topology, is_connected
from samovar.aggregation.mixing.weights import matrix as weights
from samovar.aggregation.mixing.weights import row, takers

ALL = {name: parse_topology(name) for name in GIVEN_BY_NAME} | {
    "grid": Grid(2),
    "grid:3": Grid(3),
    "regular:7": RandomRegular(7),
    "small_world:6:1": SmallWorld(6, 1.0),
    "edges": EdgeList.parsed("0-1,1-2,2-3,3-0,0-5,5-40"),
    "edges with weights": EdgeList.parsed("0-1*0.5,1-2*2,2-3*4,3-0*0.01,0-5*1,5-40*3"),
}
NAMES = pytest.mark.parametrize("name", sorted(ALL))
STATIC = pytest.mark.parametrize("name", sorted(name for name, topology in ALL.items() if not topology.varies))


def matrix(topology: Topology, count: int, round: int) -> np.ndarray:
    return weights(topology, count, round).numpy()


def diameter(neighbours: Neighbours) -> int:
    count = len(neighbours)
    near = np.eye(count, dtype=bool)
    for vertex, others in enumerate(neighbours):
        near[vertex, list(others)] = True
    reached, steps = near.copy(), 1
    while not reached.all():
        reached, steps = reached @ near, steps + 1
    return steps


def over_rounds(topology: Topology, count: int, rounds: int) -> np.ndarray:
    product = np.eye(count)
    for round in range(1, rounds + 1):
        product = matrix(topology, count, round) @ product
    return product


@NAMES
def test_every_graph_is_simple_for_any_number_of_peers(name: str) -> None:
    topology = ALL[name]
    for count in range(1, 71):
        for round in (1, 2, 3):
            neighbours = topology.neighbours(count, round)
            assert len(neighbours) == count
            for vertex, others in enumerate(neighbours):
                assert vertex not in others
                assert list(others) == sorted(set(others))
                assert all(0 <= other < count for other in others)
                assert topology.directed or all(vertex in neighbours[other] for other in others)


@STATIC
def test_every_static_graph_is_connected_for_any_number_of_peers(name: str) -> None:
    assert all(is_connected(ALL[name].neighbours(count, 1)) for count in range(1, 71))


@NAMES
def test_the_weights_of_every_mix_keep_the_mean(name: str) -> None:
    for count in (1, 2, 3, 5, 8, 18, 31, 50):
        for round in (1, 2, 5):
            mixing = matrix(ALL[name], count, round)
            assert mixing.min() >= 0
            assert np.diag(mixing).min() > 0, "no peer forgets its own model"
            assert np.allclose(mixing.sum(1), 1, atol=1e-12)
            assert np.allclose(mixing.sum(0), 1, atol=1e-12), "doubly stochastic"
            assert ALL[name].directed or np.allclose(mixing, mixing.T, atol=1e-15)


def test_the_weights_of_a_random_choice_of_senders_keep_the_mean_in_expectation_only() -> None:
    mixings = [matrix(Epidemic(3), 20, round) for round in range(400)]
    assert all(np.allclose(mixing.sum(1), 1) for mixing in mixings)
    assert max(abs(mixing.sum(0) - 1).max() for mixing in mixings) > 0.25
    assert np.allclose(np.mean(mixings, 0).sum(0), 1, atol=0.1)
    assert not np.allclose(mixings[0], mixings[1])


def test_a_row_is_that_of_the_matrix() -> None:
    mixing = matrix(Wheel(), 9, 1)
    for vertex in range(9):
        assert row(Wheel(), 9, vertex, 1) == {at: weight for at, weight in enumerate(mixing[vertex]) if weight}


@NAMES
def test_the_takers_of_a_vertex_are_the_vertices_that_mix_it(name: str) -> None:
    for round in (1, 2):
        mixing = matrix(ALL[name], 19, round)
        for vertex in range(19):
            others = {other for other in range(19) if other != vertex and mixing[other, vertex] > 0}
            assert set(takers(ALL[name], 19, vertex, round)) == others


@pytest.mark.parametrize("count", [5, 16, 50, 64])
def test_the_gap_of_a_ring_and_of_a_star_is_that_of_the_closed_form(count: int) -> None:
    assert rho(Ring(), count) == pytest.approx((1 + 2 * math.cos(2 * math.pi / count)) / 3, abs=1e-9)
    assert rho(Star(), count) == pytest.approx(1 - 1 / count, abs=1e-9)
    assert rho(Complete(), count) == pytest.approx(0, abs=1e-9)


def test_the_gap_of_a_torus_is_that_of_its_rings() -> None:
    turn = math.cos(2 * math.pi / 8)
    assert rho(Torus(), 64) == pytest.approx((1 + 2 + 2 * turn) / 5, abs=1e-9)


@pytest.mark.parametrize(
    ("topology", "count", "expected"),
    [
        (Ring(), 50, 0.9947),
        (Exponential(), 50, 0.714),
        (SlimFly(), 50, 0.375),
        (Ring(), 98, 0.9986),
        (Exponential(), 98, 0.750),
        (SlimFly(), 98, 0.417),
    ],
)
def test_spectral_gaps_have_their_known_values(topology: Topology, count: int, expected: float) -> None:
    assert rho(topology, count) == pytest.approx(expected, abs=6e-4)


@pytest.mark.parametrize(("degree", "count", "expected"), [(7, 50, 0.659), (11, 98, 0.562)])
def test_random_regular_graphs_mix_as_such_graphs_do(degree: int, count: int, expected: float) -> None:
    found = [rho(RandomRegular(degree, seed), count) for seed in range(10)]
    assert np.median(found) == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize(("count", "degree"), [(18, 5), (50, 7), (98, 11), (242, 17)])
def test_slim_fly_has_diameter_two_and_its_degree(count: int, degree: int) -> None:
    neighbours = SlimFly().neighbours(count, 1)
    assert {len(others) for others in neighbours} == {degree}
    assert diameter(neighbours) == 2


@pytest.mark.parametrize("count", [19, 49, 51, 64, 97])
def test_a_peer_beyond_slim_fly_hangs_on_two_of_its_core(count: int) -> None:
    size = 18 if count < 50 else 50
    neighbours = SlimFly().neighbours(count, 1)
    for vertex in range(size, count):
        assert len(neighbours[vertex]) == 2
        assert all(other < size for other in neighbours[vertex])
    assert all(len(neighbours[vertex]) >= (5 if size == 18 else 7) for vertex in range(size))


@pytest.mark.parametrize("power", range(1, 8))
def test_the_one_peer_exponential_graph_gives_the_exact_mean(power: int) -> None:
    count = 2**power
    product = over_rounds(OnePeerExponential(), count, power)
    assert np.array_equal(product, np.full((count, count), 1 / count))
    before = over_rounds(OnePeerExponential(), count, power - 1)
    assert abs(before - 1 / count).max() >= 1 / count


@pytest.mark.parametrize(("side", "axes"), [(4, 3), (3, 2), (8, 2), (2, 6)])
def test_a_full_grid_gives_the_exact_mean_after_a_round_along_each_axis(side: int, axes: int) -> None:
    count = side**axes
    assert np.allclose(over_rounds(Grid(axes), count, axes), 1 / count, atol=1e-15)
    assert abs(over_rounds(Grid(axes), count, axes - 1) - 1 / count).max() >= 1 / count


@STATIC
@pytest.mark.parametrize("count", [7, 18, 33])
def test_models_come_together_as_fast_as_the_gap_says(name: str, count: int) -> None:
    topology, chance = ALL[name], np.random.default_rng(0)
    factor = rho(topology, count)
    if factor == 0:
        assert np.allclose(over_rounds(topology, count, 1), 1 / count)
        return
    values = chance.normal(size=(count, 40))
    values -= values.mean(0)
    mixing = matrix(topology, count, 1)
    far = [np.linalg.norm(values := mixing @ values) for _ in range(200 if factor < 0.9 else 2000)]
    end = next((at for at, one in enumerate(far) if one < 1e-11), len(far) - 1)
    begin = end // 2
    assert math.log(far[begin] / far[end]) / (end - begin) == pytest.approx(-math.log(factor), rel=0.05)


def test_rounds_to_consensus_follow_from_the_gap() -> None:
    assert rounds_to(SlimFly(), 50, 1e-6) <= 15
    assert rounds_to(RandomRegular(7), 50, 1e-6) <= 36
    assert rounds_to(Ring(), 50, 1e-6) >= 2500
    assert rounds_to(Complete(), 50, 1e-6) == 1


def test_a_topology_is_the_same_in_every_process() -> None:
    """No draw depends on the hash of a text, which differs between processes."""
    assert RandomRegular(3, 1).neighbours(8, 1) == RandomRegular(3, 1).neighbours(8, 9)
    assert Epidemic(2).neighbours(9, 4) == Epidemic(2).neighbours(9, 4)


@pytest.mark.parametrize(
    "text", ["rings", "regular:1", "regular:x", "small_world:1", "small_world:4:2", "ring:3", "regular:4:1:1"]
)
def test_a_topology_that_cannot_be_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        parse_topology(text)
