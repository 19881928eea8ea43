"""The topology in which a peer has as many neighbours as its link suits."""

import random

import pytest

from samovar.aggregation.mixing.capacity import degrees
from samovar.aggregation.mixing.registry import parse_topology
from samovar.aggregation.mixing.spectrum import rounds_to
from samovar.aggregation.mixing.topology import Neighbours, Vertex, among, is_connected

CAPACITY, REGULAR = parse_topology("capacity:4"), parse_topology("regular:4")


def graph(*capacities: int) -> Neighbours:
    there = among(CAPACITY, (Vertex(number, capacity) for number, capacity in enumerate(capacities)))
    return there.neighbours(len(capacities), 1)


def test_a_peer_has_neighbours_in_proportion_to_its_capacity() -> None:
    found = [len(others) for others in graph(*[1000] * 8, *[2000] * 4, *[250] * 4)]
    assert found == [4] * 8 + [8] * 4 + [1] * 4


def test_an_unknown_capacity_counts_as_the_median() -> None:
    assert [len(others) for others in graph(0, 0, 0, 0, *[800] * 8, *[100] * 4)] == [4] * 12 + [1] * 4
    assert {len(others) for others in graph(*[0] * 16)} == {4}


def test_peers_of_low_capacity_have_no_edges_between_them() -> None:
    capacities = [100] * 20 + [1000] * 20
    for vertex, others in enumerate(graph(*capacities)):
        assert capacities[vertex] == 1000 or all(capacities[other] == 1000 for other in others)


def test_a_hub_has_no_more_than_its_edges_bear() -> None:
    assert max(degrees([10] * 40 + [10_000], 4)) <= 17, "four times as many as usual, and one for an even number"


def test_the_graph_is_connected_for_any_capacities() -> None:
    chance = random.Random(0)
    for _ in range(150):
        capacities = [chance.choice((0, 10, 30, 100, 1000, 50_000)) for _ in range(chance.randint(1, 30))]
        assert is_connected(graph(*capacities)), capacities


@pytest.mark.parametrize("slow", [4, 8])
def test_models_come_together_sooner_than_along_equal_degrees(slow: int) -> None:
    """A round takes as long as the busiest link."""
    capacities = [100] * slow + [1000] * (16 - slow)
    there = among(CAPACITY, (Vertex(*each) for each in enumerate(capacities)))
    busiest = max(len(others) / capacities[at] for at, others in enumerate(there.neighbours(16, 1)))
    assert busiest == 1 / 100
    assert busiest * rounds_to(there, 16, 0.01) < 0.7 * 4 / 100 * rounds_to(REGULAR, 16, 0.01)
