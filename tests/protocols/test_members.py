"""Memberships: without any conversation, and those of the port, whatever they are made of."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgpack
import pytest
from simulated import no_complaints, simulate  # noqa: F401
from villages import NAMES, Hamlet, Swarm, Town, attributes_of

from samovar.protocols.members.attributes import LETTERS_MAX
from samovar.protocols.members.messages import MEMBERS, Join
from samovar.protocols.members.port import Members
from samovar.protocols.members.view import Attributes, Member, Version
from samovar.protocols.wire.frames import PeerMisbehaved, decode, encode


def test_a_membership_without_a_conversation_forms_a_view_loses_a_member_and_goes_on() -> None:
    async def main() -> None:
        town, seen = Town(3), list[tuple[str, ...]]()
        first = await town.come("p0")
        first.on_view.append(lambda view: seen.append(view.ids))
        await town.come("p1")
        await town.come("p2")
        before = await town.all_have("p0", "p1", "p2")
        town.crash("p1")
        after = await town.all_have("p0", "p2")
        assert after.generation > before.generation
        assert first.base == Version(0, 0)
        assert seen[-2:] == [before.ids, after.ids]
        town.over()

    simulate(main())


def test_the_first_of_a_membership_without_a_conversation_may_die() -> None:
    async def main() -> None:
        town = Town(3)
        for name in NAMES[:3]:
            await town.come(name)
        await town.all_have("p0", "p1", "p2")
        town.crash("p0")
        await town.all_have("p1", "p2")
        town.over()

    simulate(main())


def test_a_newcomer_to_a_membership_without_a_conversation_becomes_a_member() -> None:
    async def main() -> None:
        town = Town(2)
        for name in NAMES[:2]:
            await town.come(name)
        assert (await town.all_have("p0", "p1")).started
        await town.come("p2")
        await town.all_have("p0", "p1", "p2")
        town.members["p1"].leave("it has other plans")
        await asyncio.sleep(0)
        await town.members["p0"].until(lambda: town.members["p0"].view.ids == ("p0", "p2"))
        town.over()

    simulate(main())


def test_all_know_the_attributes_of_each_member() -> None:
    async def main() -> None:
        town = Town(2)
        await town.come("p0", role="server")
        await town.come("p1", role="worker")
        await town.all_have("p0", "p1")
        town.members["p0"].assess({"p1": 7})
        await town.members["p1"].until(lambda: town.members["p1"].view.members[1].attributes.capacity == 7)
        for membership in town.members.values():
            assert [one.attributes for one in membership.view.members] == [
                Attributes(role="server", site="site of p0", data_shard=0),
                Attributes(role="worker", site="site of p1", data_shard=1, capacity=7),
            ]
        await town.come("p2", role="worker")
        view = await town.all_have("p0", "p1", "p2")
        assert [one.attributes.role for one in view.members if one.id == "p2"] == ["worker"]
        assert [one.attributes.capacity for one in view.members if one.id == "p1"] == [7], "a change forgets none"
        town.over()

    simulate(main())


@pytest.mark.parametrize("role", ["r" * (LETTERS_MAX + 1), "a\x7fb"])
def test_attributes_are_held_to_their_bounds_here_and_on_the_wire(role: str) -> None:
    with pytest.raises(ValueError, match="role of a peer has at most 64 printable letters"):
        Attributes(role=role)
    good = Member("p0", "p0", "", Attributes(role="R" * len(role[:LETTERS_MAX])), 1)
    join = Join(1, "run", good, "", "", Version(0, 0), True)
    header = encode(join, 0, incarnation=1, towards=1, seq=1, channel=MEMBERS)
    assert decode(header, 0).message == join
    packed = {name: msgpack.packb(name) for name in (good.attributes.role, role)}
    assert header.count(packed[good.attributes.role]) == 1
    with pytest.raises(PeerMisbehaved):
        decode(header.replace(packed[good.attributes.role], packed[role]), 0)


# ---- what holds for every membership of the port


@dataclass
class Seen:
    """What one peer heard of its neighbours."""

    members: Members
    joined: list[str] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.members.neighbours.on_joined.append(lambda member: self.joined.append(member.id))
        self.members.neighbours.on_left.append(lambda member, why: self.left.append((member.id, why)))

    @property
    def now(self) -> set[str]:
        return {member.id for member in self.members.neighbours.now}

    async def without(self, name: str) -> None:
        """Wait until `name` has left: a neighbour no more, and told so once with a reason."""
        while name in self.now:  # noqa: ASYNC110  # the port has no more to wait for
            await asyncio.sleep(0.1)
        assert [who for who, why in self.left if why] == [name]


async def in_views() -> tuple[Town, dict[str, Seen]]:
    village, seen = Town(3), dict[str, Seen]()
    for name in NAMES[:3]:
        seen[name] = Seen(await village.come(name))
    return village, seen


async def in_lists() -> tuple[Hamlet, dict[str, Seen]]:
    village = Hamlet()
    await village.gathered(*NAMES[:3])
    seen = {name: Seen(members) for name, members in village.members.items()}
    for members in village.members.values():
        members.begin()
    return village, seen


async def by_swim(links: int | None = None) -> tuple[Swarm, dict[str, Seen]]:
    village, seen = Swarm(3, links), dict[str, Seen]()
    for name in NAMES[:3]:
        seen[name] = Seen(await village.made(name))
        await village.enter(name, NAMES[0])
    return village, seen


async def by_links() -> tuple[Swarm, dict[str, Seen]]:
    return await by_swim(3)


ANY = pytest.mark.parametrize("gather", [in_views, in_lists, by_swim, by_links])
Gather = Callable[[], Awaitable[tuple[Town | Hamlet | Swarm, dict[str, Seen]]]]


@ANY
def test_all_others_become_neighbours_with_their_attributes(gather: Gather) -> None:
    async def main() -> None:
        village, seen = await gather()
        for name, one in seen.items():
            await one.members.at_least(2)
            assert one.members.me.id == name
            assert one.now == {*NAMES[:3]} - {name}
            assert sorted(one.joined) == sorted(one.now), "each is told of once"
            assert {m.id: m.attributes for m in one.members.neighbours.now} == {o: attributes_of(o) for o in one.now}
            assert not one.left
        village.over()

    simulate(main())


@ANY
def test_a_dead_member_is_no_neighbour_any_more(gather: Gather) -> None:
    async def main() -> None:
        village, seen = await gather()
        for one in seen.values():
            await one.members.at_least(2)
        village.crash("p1")
        for name in ("p0", "p2"):
            await seen[name].without("p1")
            await seen[name].members.at_least(1)
            assert len(seen[name].now) == 1
        village.over()

    simulate(main())


@ANY
def test_a_leaving_member_is_let_go_and_no_neighbour_any_more(gather: Gather) -> None:
    async def main() -> None:
        village, seen = await gather()
        for one in seen.values():
            await one.members.at_least(2)
        await seen["p2"].members.leave("it has other plans")
        for name in ("p0", "p1"):
            await seen[name].without("p2")
            assert "it has other plans" in dict(seen[name].left)["p2"]
        village.over()

    simulate(main())


@ANY
def test_a_faulty_member_leaves_the_neighbours(gather: Gather) -> None:
    async def main() -> None:
        village, seen = await gather()
        for one in seen.values():
            await one.members.at_least(2)
        seen["p1"].members.lost("p2", "it brings nothing")
        await seen["p1"].without("p2")
        village.over()

    simulate(main())
