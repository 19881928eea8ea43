"""Gathering: a run begins when enough peers have come, in one view, and goes on from what they bring."""

import asyncio

import pytest
import torch
from company import Company, Walker
from simulated import PATIENCE_S, no_complaints, simulate  # noqa: F401

from samovar.protocols.members.errors import NoQuorum
from samovar.protocols.members.view import View


def assert_one_view(walkers: list[Walker]) -> View:
    views = {walker.membership.view for walker in walkers}
    assert len(views) == 1
    return views.pop()


def test_founders_gather_and_begin_together_in_one_view() -> None:
    async def main() -> None:
        company = Company(5)
        await company.gathered()
        await asyncio.sleep(0.5)
        view = assert_one_view(company.walkers)
        assert view.ids == ("p0", "p1", "p2", "p3", "p4"), "in the order of the parts of the data"
        assert [member.attributes.data_shard for member in view.members] == [0, 1, 2, 3, 4]
        assert {walker.membership.coordinator for walker in company.walkers} == {"p0"}
        await company.ended()
        company.agree()

    simulate(main())


def test_nothing_begins_before_enough_have_gathered() -> None:
    async def main() -> None:
        company = Company(3, founders=4)
        company.start()
        await asyncio.sleep(100)
        assert not any(walker.membership.view.started or walker.membership.settled for walker in company.walkers)
        assert {len(walker.membership.view.members) for walker in company.walkers} == {3}
        company.add(3, "p2")
        await company.ended()
        company.agree()
        assert company[3].outcomes[0].members == 4

    simulate(main())


@pytest.mark.parametrize("victim", [1, 2])
def test_a_peer_that_dies_during_gathering_is_replaced(victim: int) -> None:
    async def main() -> None:
        company = Company(3, founders=4)
        company.start()
        await asyncio.sleep(2)
        company[victim].crash()
        await asyncio.sleep(3 * PATIENCE_S)
        assert {walker.membership.view.ids for walker in company.survivors} == {
            tuple(walker.id for walker in company.survivors)
        }
        company.add(victim, "p0", life=1)
        company.add(3, "p0")
        await company.ended()
        company.agree()

    simulate(main())


def test_of_two_gathering_peers_only_the_founder_may_go_on_alone() -> None:
    async def main(victim: int) -> Company:
        company = Company(2, founders=3, give_up_after_s=4 * PATIENCE_S)
        company.start()
        await asyncio.sleep(2)
        company[victim].crash()
        await asyncio.sleep(8 * PATIENCE_S)
        if victim:
            assert company[0].membership.view.ids == ("p0",)
            company.add(1, "p0", life=1)
            company.add(2, "p0")
        await company.ended()
        return company

    simulate(main(1)).agree()
    orphan = simulate(main(0))[1]
    assert isinstance(orphan.error, NoQuorum)


def test_a_peer_that_nobody_can_dial_and_that_is_left_alone_joins_the_run_that_is_founded_anew() -> None:
    """Before the start: the founder goes, and whoever comes then cannot reach the one that stays."""

    async def main() -> None:
        company = Company(1, founders=3)
        company.network.doors.outbound.add("p1")
        company.start()
        behind_nat = company.add(1, "p0")
        await company.until(lambda: behind_nat.membership.view.ids == ("p0", "p1"))
        await company[0].leave()
        await company[0].ended()
        anew = company.walker(0, life=1)
        company.walkers = [anew, behind_nat]
        anew.start(None)
        company.add(2, "p0")
        await company.ended()
        company.agree()

    simulate(main(), within_s=200.0)


def test_a_join_storm_lets_all_in() -> None:
    async def main() -> None:
        company = Company(1, founders=40, train_s=lambda index: 1.0)
        company.peers_max = 40
        company.start()
        for index in range(1, 40):
            company.add(index, "p0")
        await company.ended()
        company.agree()
        assert company[0].outcomes[0].members == 40
        assert company[0].membership.view.generation < 10, "they were let in together"

    simulate(main())


def test_the_newest_state_of_a_resumed_run_is_taken_from_any_peer() -> None:
    """p1 comes back with a checkpoint of round 7, the founder has only the first model: all begin at round 7."""

    async def main() -> None:
        company = Company(3, rounds=9)
        saved = company[1].sgd.state
        company[1].sgd.state = type(saved)(7, 70, torch.full_like(saved.vector, 5.0), (), saved.period)
        await company.run()
        company.agree()
        assert [outcome.state.round for outcome in company[1].outcomes] == [8, 9]
        assert company[0].sgd.state.vector[0] > 5.0

    simulate(main())
