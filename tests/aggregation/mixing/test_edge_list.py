"""The topology of a user's own edges is the graph of the list, and stays connected whoever comes and goes."""

import random

import numpy as np
import pytest

from samovar.aggregation.mixing.edge_list import EdgeList
from samovar.aggregation.mixing.random_graphs import OneOf
from samovar.aggregation.mixing.registry import parse_topology
from samovar.aggregation.mixing.regular import Ring
from samovar.aggregation.mixing.spectrum import rho
from samovar.aggregation.mixing.topology import Neighbours, Vertex, among, is_connected
from samovar.aggregation.mixing.weights import matrix, row, takers

STAR = "edges:0-1,0-2,0-3,0-4"


def graph(text: str, *numbers: int) -> Neighbours:
    """The graph of the peers with these numbers."""
    vertices = tuple(map(Vertex, numbers))
    return among(parse_topology(text), vertices).neighbours(len(numbers), 1)


def test_the_graph_has_the_listed_edges_by_the_numbers_of_the_peers() -> None:
    assert graph("edges:0-1,1-3,3-2", 0, 1, 2, 3) == ((1,), (0, 3), (3,), (1, 2))
    assert graph("edges:3-1,0-1,2-3", 3, 0, 1, 2) == ((2, 3), (2,), (0, 1), (0,)), "in the order asked"


def test_a_ring_of_edges_mixes_as_the_ring_does() -> None:
    edges = ",".join(f"{one}-{(one + 1) % 16}" for one in range(16))
    assert rho(parse_topology(f"edges:{edges}"), 16) == pytest.approx(rho(Ring(), 16), abs=1e-12)


def test_peers_without_an_edge_between_them_stand_in_a_line() -> None:
    assert graph(STAR, 1, 2, 3, 4) == ((1,), (0, 2), (1, 3), (2,)), "the hub has gone"
    assert graph(STAR, 0, 1, 7) == ((1, 2), (0,), (0,)), "a newcomer that the list has not"
    assert graph(STAR, 0, 1, 1) == ((1, 2), (0,), (0,)), "a newcomer that has the number of another one"
    assert graph(STAR, 9) == ((),)


def test_other_peers_of_one_edge_list_have_rows_of_their_own() -> None:
    """They are remembered by their topology."""
    here, there = (among(parse_topology(STAR), map(Vertex, numbers)) for numbers in ((0, 1, 2), (1, 2, 3)))
    assert set(row(here, 3, 0, 1)) == {0, 1, 2}
    assert set(row(there, 3, 0, 1)) == {0, 1}
    assert takers(there, 3, 0, 1) == (1,)


def test_the_graph_stays_connected_and_keeps_the_mean_as_peers_come_and_go() -> None:
    chance = random.Random(0)
    edges = {tuple(sorted(chance.sample(range(20), 2))) for _ in range(25)} | {(one, one + 1) for one in range(19)}
    listed = EdgeList(tuple(sorted((edge, chance.uniform(0.1, 9)) for edge in edges)))
    for _ in range(200):
        numbers = sorted(chance.choice(range(24)) for _ in range(chance.randint(1, 20)))
        there = among(listed, map(Vertex, numbers))
        assert is_connected(there.neighbours(len(numbers), 1))
        mixing = matrix(there, len(numbers), 1).numpy()
        assert np.allclose(mixing, mixing.T, atol=1e-15)
        assert np.allclose(mixing.sum(1), 1, atol=1e-12)
        assert np.diag(mixing).min() > 0


def test_an_edge_of_more_weight_counts_for_more() -> None:
    light, heavy = (row(parse_topology(f"edges:0-1*{one},1-2*1"), 3, 1, 1) for one in (1, 4))
    assert heavy[0] == 4 * heavy[2]
    assert light[0] == light[2]
    same = row(parse_topology("edges:0-1*7,1-2*7"), 3, 1, 1)
    assert same == pytest.approx(light), "weights are relative"


def test_a_list_is_the_same_in_any_order_and_is_written_in_one_line() -> None:
    one, other = (EdgeList.parsed(text) for text in ("2-1*0.25, 0-1", "0-1,1-2*0.25"))
    assert one == other
    assert one.text == "0-1,1-2*0.25"
    assert EdgeList.parsed(one.text) == one


def test_an_algorithm_that_draws_one_of_the_neighbours_draws_among_the_listed() -> None:
    there = among(OneOf(parse_topology(STAR)), map(Vertex, (0, 2, 3)))
    assert {there.neighbours(3, round)[1] for round in range(20)} == {(0,)}
    assert {there.neighbours(3, round)[0] for round in range(20)} == {(1,), (2,)}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("edges", "'' is no edge"),
        ("edges:0-1;1-2", "'1;1-2' is no whole number"),
        ("edges:0-0", "its own neighbour"),
        ("edges:0-1,1-0", "the edge of 0 and 1 is there already"),
        ("edges:0-1,2-3", "no edges lead from peer 0 to peer 2"),
        ("edges:0-1*0", "a weight"),
        ("edges:0-1*", "is no number"),
        ("edges:0-1*1e99", "a weight"),
        ("edges:0-123456", "up to 99999"),
        ("edges:" + ",".join(f"0-{one}" for one in range(1, 3000)), "beyond 12000"),
    ],
)
def test_a_list_that_cannot_be_is_refused_in_one_short_line(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]{1,200}$") as refused:
        parse_topology(text)
    assert why in str(refused.value)
