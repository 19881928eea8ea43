"""Placement: the same on all, balanced, and little moves."""

import random
from itertools import pairwise

from samovar.aggregation.vector import Part
from samovar.protocols.parameter_server.placement import Placement, balance, merged, ranges_of

RANGES = 400


def views(count: int) -> list[tuple[random.Random, tuple[str, ...], int]]:
    """Random servers and numbers of copies."""
    drawn = []
    for seed in range(count):
        chance = random.Random(seed)
        servers = tuple(f"server {chance.getrandbits(60)}" for _ in range(chance.randint(1, 9)))
        drawn.append((chance, servers, chance.randint(1, 4)))
    return drawn


def test_the_same_view_gives_the_same_placement_in_any_order() -> None:
    for chance, servers, copies in views(20):
        one, other = Placement(servers, copies), Placement(tuple(chance.sample(servers, len(servers))), copies)
        assert all(one.chain(number) == other.chain(number) for number in range(RANGES))


def test_a_chain_has_as_many_different_servers_as_there_are_copies() -> None:
    for _, servers, copies in views(20):
        for number in range(RANGES):
            chain = Placement(servers, copies).chain(number)
            assert len(chain) == len(set(chain)) == min(copies, len(servers))
    assert Placement((), 2).chain(0) == ()


def test_a_server_that_joins_only_enters_chains() -> None:
    for _, servers, copies in views(20):
        before, after = Placement(servers, copies), Placement((*servers, "new"), copies)
        moved = 0
        for number in range(RANGES):
            old, new = before.chain(number), after.chain(number)
            assert [one for one in new if one != "new"] == list(old[: len(new) - ("new" in new)])
            moved += "new" in new
        due = RANGES * min(1.0, copies / (len(servers) + 1))
        assert moved <= 2 * due, "and no more than its share"


def test_a_server_that_leaves_is_only_left_out() -> None:
    for chance, servers, copies in views(20):
        gone = chance.choice(servers)
        before = Placement(servers, copies)
        after = Placement(tuple(one for one in servers if one != gone), copies)
        for number in range(RANGES):
            old, new = before.chain(number), after.chain(number)
            assert list(new[: len(old) - (gone in old)]) == [one for one in old if one != gone]


def test_servers_hold_about_as_much_as_each_other() -> None:
    for count in (2, 4, 8):
        held = balance(Placement(tuple(f"s{number}" for number in range(count)), 1), [1] * 4096)
        assert max(held.values()) < 1.4 * 4096 / count


def test_servers_that_cannot_reach_each_other_are_in_no_chain_together() -> None:
    apart = frozenset({frozenset({"a", "b"})})
    placement = Placement(("a", "b", "c"), 2, apart)
    assert all(set(placement.chain(number)) != {"a", "b"} for number in range(RANGES))


def test_ranges_cover_the_vector_and_keep_parameters_apart() -> None:
    for size, parameters in ((1, 1), (7, 7), (100, 90), (5_000_000, 4_000_000), (70_000_000, 70_000_000)):
        cut, many = ranges_of(size, parameters, 1), ranges_of(size, parameters, 16)
        assert len(many) == max(len(cut), min(parameters, 16) + min(size - parameters, 16))
        assert cut[0].start == 0
        assert cut[-1].stop == size
        assert all(one.stop == two.start for one, two in pairwise(cut))
        assert all(part.stop <= parameters or part.start >= parameters for part in cut)
        assert len(cut) <= 4096


def test_neighbouring_parts_are_merged_and_others_are_kept() -> None:
    assert merged([Part(0, 2), Part(2, 5), Part(7, 9)]) == [Part(0, 5), Part(7, 9)]
    assert merged([]) == []
