"""Two that cannot reach each other cost the others one patience, and one peer's word costs nobody the run."""

import asyncio
from itertools import combinations

import pytest
import torch
from company import Company, assert_one_truth
from simulated import PATIENCE_S, no_complaints, now, simulate  # noqa: F401
from tiers import soaked

from samovar.aggregation.schedules.around import around
from samovar.aggregation.schedules.messages import messages
from samovar.aggregation.schedules.naive import Naive
from samovar.aggregation.schedules.registry import SCHEDULES
from samovar.aggregation.schedules.relayed import Relayed
from samovar.aggregation.schedules.verify import prove
from samovar.peers.records.records import EventRecord, Record
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.link_text import parse_link
from samovar.protocols.channel import Channel
from samovar.protocols.local_sgd.exit_barrier import Farewell
from samovar.protocols.local_sgd.lag import Behind
from samovar.protocols.local_sgd.site_averaging import _Mine
from samovar.protocols.members.edge import Edge
from samovar.protocols.members.messages import MEMBERS, Suspicion
from samovar.protocols.members.removals import Removals
from samovar.sims.scenarios.scenario import Group, Scenario
from samovar.sims.scenarios.toy import toy_task
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

PAIR = (Edge("p3", "p4"),)


def endless(n: int = 5, **more: object) -> Company:
    options = {"rounds": 10**6, "size": 4000, "link": "100mbit,10ms", "train_s": lambda index: 0.2, **more}
    return Company(n, **options)  # type: ignore[arg-type]


async def parted_site() -> Company:
    """A site in which p3 and p4 cannot reach each other, and every peer's view says so."""
    company = endless(sites=("east",))
    await company.gathered(1)
    company.part(["p3"], ["p4"])
    await company.until(lambda: all(walker.membership.view.apart == PAIR for walker in company.walkers))
    return company


async def over(company: Company) -> None:
    for walker in company.walkers:
        walker.crash()
    await company.ended()
    assert_one_truth(company)


# Schedules

WORLDS = (3, 4, 5, 6, 8, 9)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("world", WORLDS)
def test_a_schedule_around_a_broken_edge_is_an_allreduce_that_does_without_it(name: str, world: int) -> None:
    for pair in combinations(range(world), 2):
        found = around(SCHEDULES[name], (pair,), world)
        prove(found, world)
        used = {tuple(sorted((one.sender, one.receiver))) for step in messages(found, world) for one in step}
        assert pair not in used
        assert found is SCHEDULES[name] or found.name in (name, "sharded")


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_around_many_broken_edges_is_an_allreduce_if_one_rank_reaches_all(name: str) -> None:
    apart = ((1, 2), (1, 5), (2, 3), (3, 6), (4, 5))
    found = around(SCHEDULES[name], apart, 7)
    prove(found, 7)
    used = {tuple(sorted((one.sender, one.receiver))) for step in messages(found, 7) for one in step}
    assert not used & set(apart)


def test_a_ring_is_reordered_around_a_broken_edge_and_relayed_only_where_no_order_helps() -> None:
    assert around(SCHEDULES["ring"], ((1, 2),), 5).parts(5) == 5
    assert around(SCHEDULES["ring"], ((1, 2),), 5).name == "ring"
    assert around(SCHEDULES["ring"], ((1, 3),), 5) is SCHEDULES["ring"], "neighbours only talk"
    assert isinstance(around(SCHEDULES["ring"], ((1, 2),), 3), Relayed)
    assert around(Naive(), ((0, 1), (0, 2), (1, 2)), 3) == Naive(), "there is no way at all"
    with pytest.raises(ValueError, match="no other reaches both"):
        Relayed(((0, 1),)).steps(0, 2)


def test_relays_take_turns() -> None:
    apart = tuple((1, other) for other in range(2, 8))
    sent = [sum(len(step.send) for step in Relayed(apart).steps(rank, 9)) for rank in range(9)]
    assert max(sent) <= min(sent) + 2 * 7, "of twelve parts more, nobody but the two that are left passes on all"


# A pair that is cut off from each other


@pytest.mark.parametrize(("schedule", "size"), [("sharded", 4000), soaked("sharded", 10), soaked("ring", 4000)])
def test_a_pair_that_cannot_reach_each_other_costs_one_patience_once(schedule: str, size: int) -> None:
    async def rounds(broken: bool) -> int:
        company = endless(schedule=schedule, size=size, train_s=lambda index: 1.0)
        await company.gathered(1)
        if broken:
            company.part(["p3"], ["p4"])
        began, generation = company[0].sgd.state.round, company[0].membership.view.generation
        await asyncio.sleep(40.0)
        done, view = company[0].sgd.state.round - began, company[0].membership.view
        assert len(view.ids) == 5, "nobody was given up"
        assert (view.apart, view.generation - generation) == ((PAIR, 1) if broken else ((), 0))
        assert not any(walker.membership._roster.gone for walker in company.walkers), "nor is anybody about to be"
        await over(company)
        return done

    assert simulate(rounds(True)) > 0.85 * simulate(rounds(False))


def test_a_run_ends_well_around_a_broken_edge() -> None:
    """Nobody waits at the end for a word that cannot come."""

    async def main() -> Company:
        company = endless(rounds=40)
        await company.gathered(1)
        company.part(["p3"], ["p4"])
        await company.ended()
        assert company[0].membership.view.apart == PAIR
        return company

    company = simulate(main(), within_s=100.0)
    company.agree()
    assert all(len(walker.outcomes) == 40 for walker in company.walkers)


def test_an_edge_that_works_again_is_used_again() -> None:
    async def main() -> None:
        company = endless()
        await company.gathered(1)
        company.part(["p3"], ["p4"])
        await company.until(lambda: company[0].membership.view.apart == PAIR)
        company.heal()
        healed = now()
        await company.until(lambda: company[0].membership.view.apart == ())
        assert now() - healed < 6 * PATIENCE_S
        await over(company)

    simulate(main())


def test_a_peer_behind_fetches_from_a_donor_within_reach() -> None:
    async def main() -> None:
        company = endless()
        await company.gathered(1)
        company.part(["p3"], ["p4"])
        await company.until(lambda: company[0].membership.view.apart == PAIR)
        behind = company[4].sgd._lag
        behind.behind = Behind(company[4].sgd.standing().state, ("p3",))
        began = now()
        await company.until(lambda: behind.behind is None)
        assert now() - began < PATIENCE_S, "it did not wait for p3"
        await over(company)

    simulate(main())


def test_a_leaving_peer_does_not_wait_for_a_member_out_of_reach() -> None:
    async def main() -> None:
        company = endless()
        await company.gathered(1)
        farewells = [Farewell(walker.sgd) for walker in company.walkers]
        company.part(["p3"], ["p4"])
        await company.until(lambda: all(walker.membership.view.apart == PAIR for walker in company.walkers))
        saying = asyncio.create_task(farewells[3].say())
        for _ in range(10):
            await asyncio.sleep(PATIENCE_S / 4)
            for farewell in farewells:
                farewell.moved_on()
        assert saying.done()
        await saying
        await over(company)

    simulate(main())


def test_only_members_of_a_site_within_reach_average_between_rounds() -> None:
    async def main() -> None:
        company = await parted_site()
        mates = [walker.sgd._sites._mates() for walker in company.walkers]
        assert mates == [("p0", "p1", "p2", "p3")] * 4 + [("p4",)]
        await over(company)

    simulate(main())


def test_a_peer_that_summed_with_a_mate_now_out_of_reach_goes_on_by_itself() -> None:
    """It cannot know whether that one took the mean."""

    async def main() -> None:
        company = await parted_site()
        sgd, generation = company[3].sgd, company[3].membership.view.generation
        attempt = (generation, sgd.state.round + 1)
        mean = torch.zeros(sgd.state.vector.numel())
        sgd._sites._mine = _Mine((attempt[1], 1), generation, ("p3", "p4"), mean, 77)
        own = company[3].brings()
        async with asyncio.timeout(PATIENCE_S):
            assert await sgd._sites.mean(own, sgd.state.vector, attempt, 1) is own.vector
        await over(company)

    simulate(main())


def test_the_next_coordinator_is_a_member_that_reaches_all() -> None:
    async def main() -> None:
        company = endless(schedule="sharded")
        await company.gathered(1)
        _, second, third, fourth, _ = company[0].membership.view.by_seniority
        company.part([second], [third])
        await company.until(lambda: company[0].membership.view.apart != ())
        company[0].crash()
        seen = company[int(fourth[1:])].membership
        await company.until(lambda: "p0" not in seen.view.ids)
        assert seen.coordinator == fourth
        assert seen.view.ids == ("p1", "p2", "p3", "p4")
        await over(company)

    simulate(main())


def test_records_name_the_two_peers_that_cannot_reach_each_other() -> None:
    settings = Settings(peers=4, schedule="ring", period="1", steps=40, patience_s=4.0, device="cpu")
    group = Group(peers=4, link=parse_link("10mbit,5ms"), step_s=1.0)
    scenario = Scenario(settings=settings, groups=(group,), toy_size=100)
    records = list[Record]()

    async def main() -> None:
        world = World(toy_task(scenario.toy_size), scenario, records.append)
        for way in (("peer-2", "peer-3"), ("peer-3", "peer-2")):
            asyncio.get_running_loop().call_later(6.0, world.network.cut, *way)
            asyncio.get_running_loop().call_later(20.0, world.network.join, *way)
        await world.run()

    run_virtual(main(), seed=1)
    told = [record for record in records if isinstance(record, EventRecord) and record.event in ("apart", "together")]
    assert {(record.event, record.why) for record in told} == {
        ("apart", "2 and 3 cannot reach each other; sums go another way"),
        ("together", "2 and 3 may reach each other again"),
    }
    assert {record.peer for record in told} == {"0", "2", "3"}


# One peer's word


@pytest.mark.parametrize("accused", [1, 3])
def test_one_peers_word_gives_no_member_up(accused: int) -> None:
    async def main() -> None:
        company = endless()
        await company.gathered(1)
        company[4].membership.lost(f"p{accused}", "a whim")
        await asyncio.sleep(1.0)
        view = company[0].membership.view
        assert len(view.ids) == 5
        assert view.apart == (Edge(f"p{accused}", "p4"),)
        await over(company)
        assert not company[0].membership.removals

    simulate(main())


@pytest.mark.parametrize("accuser", [1, 4])
def test_one_peers_word_does_not_unseat_the_coordinator(accuser: int) -> None:
    """A peer that alone has lost it joins anew, be it its successor or not."""

    async def main() -> None:
        company = endless()
        await company.gathered(1)
        company[accuser].membership.lost("p0", "a whim")
        await company.until(lambda: company[2].membership.removals != [])
        await company.until(lambda: len(company[2].membership.view.ids) == 5)
        assert [removal.name for removal in company[2].membership.removals] == [f"p{accuser}"]
        assert company[2].membership.coordinator == "p0"
        await over(company)

    simulate(main(), within_s=60.0)


def test_a_member_that_lost_the_coordinator_before_its_crash_stays_a_member() -> None:
    """Others have vouched for it, which is over: to join anew would cost the others a vote that they need now."""

    async def main() -> None:
        company = endless()
        await company.gathered(1)
        generation = company[4].membership.view.generation
        company[4].membership.lost("p0", "a whim")
        await company.until(lambda: company[4].membership._edges._vouchers["p0"] != set())
        await asyncio.sleep(0.6 * PATIENCE_S)  # the others miss it only after the time that a voucher is given
        company[0].crash()
        await company.until(lambda: company[2].membership.view.generation > generation)
        assert company[2].membership.view.ids == ("p1", "p2", "p3", "p4")
        await over(company)
        assert [removal.name for removal in company[2].membership.removals] == ["p0"]

    simulate(main(), within_s=60.0)


def test_a_reporter_and_the_coordinator_are_two_witnesses_of_a_loss() -> None:
    """An accused who does not answer is given up without its whole patience being over."""

    async def main() -> None:
        company = endless()
        await company.gathered(1)
        for other in ("p0", "p1", "p2", "p4"):
            company.part(["p3"], [other])
        began = now()
        Channel(company[4].endpoint, MEMBERS).post(
            "p0", Suspicion(company[0].membership.view.generation, "p3", "a whim")
        )
        await company.until(lambda: "p3" not in company[0].membership.view.ids)
        assert now() - began < 0.75 * PATIENCE_S
        await over(company)

    simulate(main())


def test_a_member_that_has_lost_most_of_the_others_goes_itself() -> None:
    async def main() -> None:
        company = endless()
        await company.gathered(1)
        for other in (1, 2, 3):
            company[4].membership.lost(f"p{other}", "a whim")
        await company.until(lambda: company[0].membership.removals != [])
        assert [removal.name for removal in company[0].membership.removals] == ["p4"]
        await over(company)

    simulate(main())


# Given up again and again


def test_a_member_given_up_again_comes_back_later_each_time() -> None:
    async def main() -> None:
        company = endless(4)
        await company.gathered(1)
        outs = []
        for _ in range(4):
            company[0].membership.suspect("p3", "a whim")
            await company.until(lambda: "p3" not in company[0].membership.view.ids)
            gone = now()
            await company.until(lambda: "p3" in company[0].membership.view.ids)
            outs.append(now() - gone)
        assert outs[0] < PATIENCE_S / 2, "a short outage comes straight back"
        for patiences, out_s in zip((1, 2, 4), outs[1:], strict=True):
            assert patiences <= out_s / PATIENCE_S < patiences + 1
        await over(company)

    simulate(main())


def test_removals_are_kept_to_a_number_and_none_is_told_twice() -> None:
    async def main() -> None:
        company = endless(3)
        await company.gathered(1)
        removals: Removals = company[0].membership.removals
        company[0].membership.suspect("p2", "a whim")
        await company.until(lambda: removals.ever == 1)
        await company.until(lambda: "p2" in company[0].membership.view.ids)
        removals *= 2000
        company[0].membership.suspect("p2", "a whim")
        await company.until(lambda: len(removals) < 2000)
        assert [removal.name for removal in removals.since(removals.ever - 1)] == ["p2"]
        assert removals.since(removals.ever) == []
        await over(company)

    simulate(main())
