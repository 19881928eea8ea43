"""The peers of one collective, as each of them sees them."""

import pytest

from samovar.protocols.group import Group
from samovar.protocols.members.edge import Edge
from samovar.protocols.members.view import Attributes, Member, View


def four() -> View:
    rows = [("p0", 100, "here"), ("p1", 100, "here"), ("p2", 800, "there"), ("p3", 800, "there")]
    members = tuple(
        Member(peer, peer, "", Attributes(capacity=Bps, data_shard=rank), 1, machine)
        for rank, (peer, Bps, machine) in enumerate(rows)
    )
    return View(7, members, True, apart=(Edge.between("p1", "p3"), Edge.between("p0", "p9")))


def test_all_members_of_a_view_have_the_same_group_but_for_their_ranks() -> None:
    groups = [four().group(f"p{rank}") for rank in range(4)]
    assert [group.rank for group in groups] == [0, 1, 2, 3]
    assert {(group.ids, group.epoch, group.apart) for group in groups} == {(("p0", "p1", "p2", "p3"), 7, ((1, 3),))}
    assert four().group("p9").rank == -1, "a stranger has none"


def test_a_part_of_a_group_is_a_group_with_ranks_of_its_own() -> None:
    some = four().group("p3").among({"p1", "p3", "p9"})
    assert some == Group(("p1", "p3"), 7, 1, ((0, 1),), (100, 800), ("here", "there"))
    assert four().group("p0").among({"p1", "p2"}) == Group(("p1", "p2"), 7, -1, (), (100, 800), ("here", "there"))


@pytest.mark.parametrize(
    ("members", "shares_memory"), [({"p0", "p1"}, True), ({"p2", "p3"}, True), ({"p1", "p2"}, False)]
)
def test_members_of_one_machine_share_memory_though_others_do_not(members: set[str], shares_memory: bool) -> None:
    whole = four().group("p0")
    assert not whole.one_machine
    assert whole.among(members).one_machine == shares_memory


def test_parts_go_by_bandwidth_where_it_is_known_and_differs() -> None:
    whole = four().group("p0")
    assert whole.shares is not None
    assert whole.shares[2] > whole.shares[0]
    assert sum(whole.shares) == pytest.approx(1.0)
    assert Group(("a", "b"), 1, 0).shares is None
    assert Group(("a", "b"), 1, 0, (), (0, 0)).shares is None
