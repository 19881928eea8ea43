"""The events that a peer records of the others."""

from simulated import simulate
from villages import Swarm, Town

from samovar.peers.records.comings import Comings
from samovar.peers.records.records import EventName, EventRecord
from samovar.peers.records.tally import Tally
from samovar.protocols.clock import RunClock


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
