"""The events that a peer records of the others."""

from simulated import simulate
from villages import Swarm

from samovar.peers.records.comings import Comings
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
