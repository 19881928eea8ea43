"""The events that a peer records of the others."""

from types import SimpleNamespace
from typing import cast

from simulated import simulate
from villages import Swarm

from samovar.peers.records.comings import Comings
from samovar.protocols.clock import RunClock
from samovar.protocols.endpoint import Endpoint
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


def test_a_member_that_was_told_to_be_lost_is_not_told_so_again_when_it_is_removed_but_that_it_left() -> None:
    one, other = (Member(name, name, "", Attributes(), 1, life=at) for at, name in enumerate("ab", 1))
    told, neighbours, removals = list[tuple[str, str]](), Neighbours(lambda peer: "it went silent"), RemovalLog()
    neighbours.become([one, other], lambda member: "")
    members = SimpleNamespace(
        view=View(1, (one, other), True),
        neighbours=neighbours,
        removals=removals,
        knows_all=True,
        leaders=(),
        on_waiting=[],
    )
    endpoint = SimpleNamespace(id="me", on_refused=[])

    def tell(event: str, *, about: str = "", **more: str) -> None:
        told.append((event, about))

    comings = Comings(cast(Endpoint, endpoint), cast(RunMembers, members), cast(RunClock, None), tell)
    comings.begin()
    neighbours.look("ab")
    neighbours.stay_away()
    assert told == [("lost", "a"), ("lost", "b")]
    for member, left in ((one, False), (other, True)):
        removals.add(
            Removal(member.id, member.name, "", 0.0, "left: it is done" if left else "", "", left, member.life)
        )
    comings.follow(View(2, (), True))
    assert told[2:] == [("left", "b")]
