"""The events that a peer records of the others."""

import json
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

from boards import drawn
from simulated import simulate
from villages import Swarm, Town

from samovar.peers.cli.final_table import final_table
from samovar.peers.records.comings import Comings
from samovar.peers.records.event_names import EventName
from samovar.peers.records.records import EventRecord
from samovar.peers.records.result import Result
from samovar.peers.records.tally import Tally
from samovar.protocols.clock import RunClock
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.members.attributes import SERVER
from samovar.protocols.members.neighbours import Neighbours
from samovar.protocols.members.port import RunMembers
from samovar.protocols.members.removals import Removal, RemovalLog
from samovar.protocols.members.view import Attributes, Member, View


def test_a_member_that_was_held_off_is_back_and_has_not_joined_anew() -> None:
    told = list[tuple[str, str]]()

    def tell(event: str, *, about: str = "", **more: str) -> None:
        told.append((event, about))

    async def main() -> None:
        swarm = Swarm(3, known=["p0", "p1", "p2", "p3"])
        for name in ("p0", "p1", "p2"):
            await swarm.come(name)
        await swarm.all_know_all()
        members = swarm.members["p0"]
        comings = Comings(swarm.endpoints["p0"], members, RunClock(0.0), tell)
        members.on_view.append(comings.follow)
        comings.begin()
        members.hold_off("p1", 1.0, "it proposes too much")
        await members.at_least(2)
        await swarm.come("p3")
        await members.at_least(3)
        swarm.crash("p2")
        await members.until(lambda: "p2" not in members.view.ids)
        swarm.over()

    simulate(main())
    assert told == [("lost", "p1"), ("back", "p1"), ("joined", "p3"), ("lost", "p2")]


def test_a_newcomer_names_the_members_that_it_finds_and_then_those_that_join() -> None:
    told = list[tuple[str, str]]()

    def tell(event: str, *, about: str = "", **more: str) -> None:
        told.append((event, about))

    async def main() -> None:
        town = Town(2)
        for name in ("p0", "p1", "p2"):
            await town.come(name)
        await town.all_have("p0", "p1", "p2")
        members = town.members["p2"]
        comings = Comings(town.endpoints["p2"], members, RunClock(0.0), tell)
        members.on_view.append(comings.follow)
        comings.begin()
        comings.name_members()
        await town.come("p3")
        await town.all_have("p0", "p1", "p2", "p3")
        town.over()

    simulate(main())
    assert told == [("present", "p0"), ("present", "p1"), ("joined", "p3")]


def test_a_peer_whose_lives_follow_each_other_from_view_to_view_is_lost_and_joins_anew() -> None:
    told = list[tuple[str, str]]()

    def tell(event: str, *, about: str = "", **more: str) -> None:
        told.append((event, about))

    async def main() -> None:
        town = Town(3)
        for name in ("p0", "p1", "p2"):
            await town.come(name)
        members = town.members["p0"]
        before = await town.all_have("p0", "p1", "p2")
        comings = Comings(town.endpoints["p0"], members, RunClock(0.0), tell)
        comings.begin()
        town.crash("p2")
        await town.come("p2")
        await members.until(lambda: {*members.view.ids} == {"p0", "p1", "p2"} and members.view != before)
        comings.follow(members.view)  # no view between, as for a peer that was away
        town.over()

    simulate(main())
    assert told == [("lost", "p2"), ("joined", "p2")]


def test_a_peer_elsewhere_that_was_restarted_within_one_view_is_a_member_at_the_end() -> None:
    told: list[tuple[EventName, int]] = [("joined", 2), ("lost", 4), ("joined", 4)]
    events = [
        EventRecord(peer="p0", time_s=float(at), event=event, about="p2", generation=generation)
        for at, (event, generation) in enumerate(told)
    ]
    (one,) = Tally(events).elsewhere
    assert (one.gone, one.joined_s) == ("", 0.0)


def followed(
    *members: Member, away: str = "", removals: Sequence[tuple[Member, bool]] = (), then: Sequence[Member]
) -> list[tuple[str, str]]:
    """The events of a peer that knows `members`, of which those of `away` are away while too few are left to remove
    them, and then takes a view of the members `then`. `removals`: who was removed, and whether it left."""
    return [found[:2] for found in followed_with_roles(*members, away=away, removals=removals, then=then)]


def followed_with_roles(
    *members: Member, away: str = "", removals: Sequence[tuple[Member, bool]] = (), then: Sequence[Member]
) -> list[tuple[str, str, str]]:
    """As `followed`, each event with the role that it tells of the member."""
    told, neighbours, log = list[tuple[str, str, str]](), Neighbours(lambda peer: "it went silent"), RemovalLog()
    neighbours.become(members, lambda member: "")
    membership = SimpleNamespace(
        view=View(1, members, True), neighbours=neighbours, removals=log, knows_all=True, leaders=(), on_waiting=[]
    )
    endpoint = SimpleNamespace(id="me", on_refused=[])

    def tell(event: str, *, about: str = "", about_role: str = "", **more: str) -> None:
        told.append((event, about, about_role))

    comings = Comings(cast(Endpoint, endpoint), cast(RunMembers, membership), cast(RunClock, None), tell)
    comings.begin()
    neighbours.look(away)
    neighbours.stay_away()
    for member, left in removals:
        log.add(Removal(member.id, member.name, "", 0.0, "it is done", "", left, member.life, member.attributes.role))
    comings.follow(View(3, tuple(then), True))
    return told


ONE, OTHER = (Member(name, name, "", Attributes(), 1, life=at) for at, name in enumerate("ab", 1))


def test_a_member_that_was_told_to_be_lost_is_not_told_so_again_when_it_is_removed_but_that_it_left() -> None:
    told = followed(ONE, OTHER, away="ab", removals=[(ONE, False), (OTHER, True)], then=())
    assert told == [("lost", "a"), ("lost", "b"), ("left", "b")]


def test_a_member_that_was_lost_and_restarted_before_the_next_view_is_told_to_be_lost_and_then_to_come() -> None:
    told = followed(ONE, OTHER, removals=[(ONE, False)], then=[replace(ONE, life=7), OTHER])
    assert told == [("lost", "a"), ("joined", "a")]


def test_a_member_that_was_removed_keeps_its_name_in_what_it_had_given() -> None:
    log = RemovalLog()
    log.add(Removal("bert" * 16, "bert", "", 0.0, "it was killed", "", False, 1, ""))
    membership = SimpleNamespace(
        view=View(1, (ONE,), True), neighbours=Neighbours(lambda peer: ""), removals=log, on_waiting=[]
    )
    endpoint = SimpleNamespace(id="me", on_refused=[])
    comings = Comings(cast(Endpoint, endpoint), cast(RunMembers, membership), cast(RunClock, None), print)
    assert [comings.name_of(peer) for peer in (ONE.id, "bert" * 16, "9f" * 32)] == ["a", "bert", "9f" * 6]


def test_an_event_about_a_member_tells_its_role() -> None:
    server = replace(OTHER, attributes=Attributes(role=SERVER))
    assert followed_with_roles(ONE, server, away="ab", then=()) == [("lost", "a", ""), ("lost", "b", SERVER)]
    assert followed_with_roles(then=(ONE, server)) == [("joined", "a", ""), ("joined", "b", SERVER)]


def test_a_server_elsewhere_is_called_one_in_the_result() -> None:
    events = [
        EventRecord(peer="w", time_s=1.0, event="joined"),
        EventRecord(peer="w", time_s=1.0, event="present", about="s", about_role=SERVER),
    ]
    result = Result(loss=1.0, wall_s=1.0, exchanges=3, run="run", elsewhere=Tally(events).elsewhere)
    assert "elsewhere s (server): in 0 rounds" in drawn(final_table(result))
    assert json.loads(result.to_json())["elsewhere"][0]["role"] == SERVER
