"""Memberships by SWIM over endpoints: who is let in, by which keys, and how a run is left and ended."""

import asyncio

import pytest
from simulated import PATIENCE_S, endpoint_in, no_complaints, simulate  # noqa: F401
from villages import Swarm

from samovar.protocols.channel import Channel
from samovar.protocols.link.link import PeerLost
from samovar.protocols.members.errors import JoinRefused
from samovar.protocols.members.invitation import Invitation, mark
from samovar.protocols.members.invites import ask_admission
from samovar.protocols.members.messages import MEMBERS
from samovar.protocols.swim.entry import SwimEntry
from samovar.protocols.swim.membership import SwimMembership
from samovar.protocols.swim.messages import SWIM, Invited, Knock, TurnedAway, Welcome

GUEST = "guest"


async def asks(swarm: Swarm, key: str, contact: str, number: int, guest: str = GUEST) -> str:
    """Have `key` admitted by the contact, as a guest; why not."""
    endpoint = endpoint_in(swarm.network, f"{guest}/{number:02}", seed=number)
    await endpoint.open()
    endpoint.dial(contact, f"sim://{contact}")
    try:
        await ask_admission(endpoint, contact, key)
    except PeerLost as lost:
        return lost.why
    finally:
        endpoint.abort()
    return ""


async def comes(swarm: Swarm, key: str, contact: str, number: int) -> str:
    """A newcomer comes by the invite; why it is not let in."""
    if why := await asks(swarm, key, contact, number):
        return why
    try:
        await swarm.come(key, contact)
    except JoinRefused as refused:
        swarm.gone(key)
        return str(refused)
    return ""


def founded(invitation: Invitation | None, *, links: int | None = None, count: int = 4):
    """Runs a scene with a swarm whose founders know each other's keys."""

    def run(scene) -> None:
        async def main() -> None:
            names = [f"p{number}" for number in range(count)]
            swarm = Swarm(count, links, known=names)
            await swarm.come("p0", invitation=invitation)
            for name in names[1:]:
                await swarm.come(name)
            for members in swarm.members.values():
                await members.until(lambda of=members: of.view.started)
            swarm.known = []  # from now on only what members vouch for
            await scene(swarm)
            swarm.over()

        simulate(main())

    return run


@pytest.mark.parametrize("links", [None, 3])
def test_a_newcomer_known_to_its_contact_only_is_vouched_for_to_all_its_neighbours(links: int | None) -> None:
    async def scene(swarm: Swarm) -> None:
        swarm.endpoints["p2"].admit("p7")
        swarm.known = ["p2"]
        newcomer = await swarm.come("p7", "p2")
        await newcomer.at_least(3)
        for one in newcomer.neighbours.now:
            other = swarm.members[one.id]
            await other.until(lambda of=other: "p7" in of.view.ids)
            Channel(swarm.endpoints["p7"], "test").watch({one.id})
        await asyncio.sleep(3 * PATIENCE_S)
        assert all(swarm.endpoints["p7"].is_lost(one.id) is None for one in newcomer.neighbours.now)

    founded(None, links=links)(scene)


def test_a_stranger_with_an_unknown_key_is_not_heard() -> None:
    async def scene(swarm: Swarm) -> None:
        swarm.known = ["p0"]
        with pytest.raises(PeerLost):
            await swarm.come("p9", "p0")
        assert all("p9" not in members.view.ids for members in swarm.members.values())

    founded(None)(scene)


def test_no_more_keys_get_in_than_an_invite_is_for_once_members_have_heard_of_its_uses() -> None:
    async def scene(swarm: Swarm) -> None:
        told = []
        for number in range(4, 9):
            told.append(await comes(swarm, f"p{number}", f"p{number % 4}", number))
            await asyncio.sleep(1.0)
        assert told[:3] == ["", "", ""]
        assert all(why.startswith("this invite has been used up: 3 of 3 keys") for why in told[3:])
        await swarm.all_know_all()
        assert {members.inviting.present for members in swarm.members.values()} == {Invitation(GUEST, 3, 3)}

    founded(Invitation(GUEST, 3))(scene)


def test_each_member_lets_in_at_most_the_invited_number_of_keys_that_come_at_once() -> None:
    async def scene(swarm: Swarm) -> None:
        told = await asyncio.gather(*(comes(swarm, f"p{4 + n}", f"p{n % 2}", n) for n in range(6)))
        assert 1 <= [*told].count("") <= 2
        await swarm.all_know_all()
        assert await comes(swarm, "p20", "p3", 20) != ""

    founded(Invitation(GUEST, 1))(scene)


@pytest.mark.parametrize("links", [None, 3])
def test_an_invite_is_revoked_or_replaced_for_all_by_any_member(links: int | None) -> None:
    async def scene(swarm: Swarm) -> None:
        assert await comes(swarm, "p4", "p1", 4) == ""
        await swarm.members["p2"].inviting.replace(Invitation("another guest", 5))
        await asyncio.sleep(2.0)
        assert {members.inviting.present for members in swarm.members.values()} == {Invitation("another guest", 5)}
        assert await asks(swarm, "p5", "p3", 5, "another guest") == ""
        await swarm.members["p4"].inviting.replace(None)
        await asyncio.sleep(2.0)
        assert {members.inviting.present for members in swarm.members.values()} == {None}
        assert mark("p4") in swarm.members["p0"].view.let_in, "whoever was let in stays so"

    founded(Invitation(GUEST), links=links)(scene)


def test_an_impossible_word_on_the_invite_is_a_fault_of_its_sender() -> None:
    async def scene(swarm: Swarm) -> None:
        ghost = Channel(swarm.endpoints["p1"], SWIM)
        for told in (
            Invited(2**62, None, (), ()),
            Invited(1, None, tuple(range(1001)), ()),
            Invited(1, Invitation("x" * 65), (), ()),
            Invited(1, Invitation("x", seconds=-1.0), (), ()),
        ):
            ghost.post("p0", told)
        await asyncio.sleep(1.0)
        assert "p1" in swarm.endpoints["p0"].refused
        assert swarm.members["p0"].inviting.present == Invitation(GUEST)

    founded(Invitation(GUEST))(scene)


async def turned_away(swarm: Swarm, **other: object) -> TurnedAway | Welcome:
    """The answer of p0 to a knock of p1 that differs in these fields."""
    members = swarm.members["p1"]
    usual = {"run": "test", "member": members.me, "layout": "", "model": ""}
    answer = await Channel(swarm.endpoints["p1"], SWIM).ask(
        "p0", lambda ask: Knock(ask, **{**usual, **other}), answers=(Welcome, TurnedAway)
    )
    return answer.message


def test_a_newcomer_of_another_run_or_model_is_told_so() -> None:
    async def scene(swarm: Swarm) -> None:
        assert "this is run 'test', not 'other'" in (await turned_away(swarm, run="other")).why
        assert "different layouts" in (await turned_away(swarm, layout="x")).why
        assert "another peer's name" in (await turned_away(swarm, member=swarm.members["p2"].me)).why
        assert isinstance(await turned_away(swarm), Welcome)

    founded(None)(scene)


def test_newcomers_get_unassigned_shards_of_the_data() -> None:
    async def main() -> None:
        swarm = Swarm(4)
        await swarm.come("p0")
        await swarm.come("p2")
        for name in ("p1", "p3"):
            await swarm.made(name)
            members = swarm.members[name]
            members._driver.swim.table.me = swarm.members["p2"].me.__class__(
                **{**vars_of(members.me), "attributes": swarm.members["p2"].me.attributes}
            )
            await swarm.enter(name, "p0")
        assert sorted(members.me.attributes.data_shard for members in swarm.members.values()) == [0, 1, 2, 3]
        swarm.over()

    simulate(main())


def vars_of(member: object) -> dict[str, object]:
    return {name: getattr(member, name) for name in member.__slots__}


def test_finished_members_stay_until_all_have_finished_and_a_latecomer_is_told_so() -> None:
    async def scene(swarm: Swarm) -> None:
        ends = {name: asyncio.create_task(swarm.members[name].finish()) for name in ("p0", "p1", "p2")}
        await asyncio.sleep(2 * PATIENCE_S)
        assert not any(end.done() for end in ends.values())
        swarm.endpoints["p0"].admit("p4")
        swarm.known = ["p0"]
        late = await swarm.come("p4", "p0")
        await late.at_least(4)
        for name in ("p3", "p4"):
            ends[name] = asyncio.create_task(swarm.members[name].finish())
        await asyncio.wait_for(asyncio.gather(*ends.values()), PATIENCE_S)
        assert (await turned_away(swarm)).why == "the run is over: its members are done"

    founded(None)(scene)


def test_a_finished_peer_says_so_to_a_member_that_it_does_not_know() -> None:
    """A finished peer goes when those that it knows have finished too: nobody may wait for it any longer then."""

    async def scene(swarm: Swarm) -> None:
        for name, unknown in (("p0", "p1"), ("p2", "p3")):
            table = swarm.members[name]._driver.swim.table
            table.drop(table.entries[unknown], "", grave=False)
        clock = asyncio.get_running_loop().time
        began_s, ended_s = clock(), dict[str, float]()

        async def finish(name: str) -> None:
            await swarm.members[name].finish()
            ended_s[name] = clock() - began_s

        await asyncio.gather(*map(finish, ("p0", "p2", "p1", "p3")))
        assert max(ended_s.values()) < PATIENCE_S / 4, "before a probe can have told anything"

    founded(None)(scene)


def test_a_finished_peer_hears_of_the_others_ends_over_links_that_broke() -> None:
    """No member is declared dead, because the others reach both ends of the broken link."""

    async def scene(swarm: Swarm) -> None:
        for one, other in (("p0", "p1"), ("p1", "p0")):
            swarm.network.cut(one, other)
            Channel(swarm.endpoints[one], "test").watch({other})  # as a conversation does that waits for it
        ends = [asyncio.create_task(members.finish()) for members in swarm.members.values()]
        await asyncio.sleep(2 * PATIENCE_S)
        assert [end.done() for end in ends] == [False, False, True, True]
        swarm.network.join("p0", "p1")
        swarm.network.join("p1", "p0")
        await asyncio.wait_for(asyncio.gather(*ends), 2 * PATIENCE_S)

    founded(None)(scene)


def test_a_finished_peer_that_ends_is_not_missed() -> None:
    async def scene(swarm: Swarm) -> None:
        task = asyncio.create_task(swarm.members["p1"].finish())
        await asyncio.sleep(1.0)
        task.cancel()
        swarm.crash("p1")
        await swarm.all_know_all()
        for members in swarm.members.values():
            assert [(one.name, one.left) for one in members.removals] == [("p1", True)]

    founded(None)(scene)


def test_a_faulty_neighbour_is_left_alone_for_longer_each_time() -> None:
    async def scene(swarm: Swarm) -> None:
        members, away_s = swarm.members["p0"], list[float]()
        for _ in range(3):
            members.lost("p1", "its model is not finite")
            began_s = asyncio.get_running_loop().time()
            assert "p1" not in {one.id for one in members.neighbours.now}
            await members.at_least(3)
            away_s.append(asyncio.get_running_loop().time() - began_s)
        assert away_s == pytest.approx([PATIENCE_S, 2 * PATIENCE_S, 4 * PATIENCE_S], rel=0.01)
        assert [one.why for one in members.removals] == ["its model is not finite"] * 3

    founded(None)(scene)


def test_a_member_that_this_peer_cannot_reach_is_no_neighbour_and_stays_a_member() -> None:
    """Nobody waits for it, and nobody is declared dead."""

    async def scene(swarm: Swarm) -> None:
        swarm.network.cut("p0", "p1")
        swarm.network.cut("p1", "p0")
        Channel(swarm.endpoints["p0"], "test").watch({"p1"})  # as a conversation does that waits for it
        await asyncio.sleep(2 * PATIENCE_S)
        assert "p1" not in {one.id for one in swarm.members["p0"].neighbours.now}
        assert "p1" in swarm.members["p0"]._driver.swim.table.entries
        for name in ("p2", "p3"):
            assert {"p0", "p1"} <= {one.id for one in swarm.members[name].neighbours.now}

    founded(None)(scene)


def test_only_the_founder_is_in_a_run_that_it_founds_and_it_may_start_alone() -> None:
    async def main() -> None:
        swarm = Swarm(1)
        members = await swarm.come("p0")
        assert members.view.ids == ("p0",)
        assert members.view.started
        await asyncio.wait_for(members.finish(), 1.0)
        swarm.over()

    simulate(main())


def test_a_guest_may_only_ask_for_admission() -> None:
    async def scene(swarm: Swarm) -> None:
        endpoint = endpoint_in(swarm.network, f"{GUEST}/1", seed=1)
        await endpoint.open()
        endpoint.dial("p0", "sim://p0")
        members = SwimMembership(Channel(endpoint, SWIM), swarm.members["p1"].me, swarm.members["p1"].terms, None)
        with pytest.raises(PeerLost):
            await SwimEntry(endpoint, members).enter("p0")
        assert "not taken of a guest" in swarm.endpoints["p0"].refused[f"{GUEST}/1"]
        members.close()
        endpoint.abort()

    assert MEMBERS
    founded(Invitation(GUEST))(scene)
