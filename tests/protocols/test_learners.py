"""Learners: a newcomer that only learns, costs the members nothing, and becomes a member."""

import asyncio
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from company import Company, Walker
from scenes import roster_of, scene
from simulated import LINK, PATIENCE_S, endpoint_in, layout_of, no_complaints, now, simulate  # noqa: F401

from samovar.peers.settings.link_text import parse_link
from samovar.protocols.local_sgd import catch_up
from samovar.protocols.local_sgd.learner import Learner
from samovar.protocols.members.errors import Expelled, MembershipError


def test_newcomers_that_die_before_they_took_part_cost_the_others_nothing() -> None:
    async def play() -> Company:
        company = Company(3, rounds=20, train_s=lambda index: 1.0)
        await company.gathered(5)
        newcomers = [company.add(index, "p0") for index in range(3, 7)]
        await company.until(lambda: all(new.membership.view.ids for new in newcomers))
        assert all(new.membership.learns for new in newcomers)
        for new in newcomers:
            new.crash()
        await company.ended()
        return company

    company = scene(play)
    company.agree(company.walkers[:3])
    assert max(len(outcome.state.vector) and outcome.members for outcome in company[0].outcomes) == 3


def test_many_learners_become_members_in_groups_smaller_than_the_view() -> None:
    async def play() -> list[tuple[int, int]]:
        company = Company(3, rounds=40, train_s=lambda index: 0.5)
        company.peers_max = 16
        await company.gathered(3)
        for index in range(3, 13):
            company.add(index, "p0")
        sizes = []
        while len(company[0].membership.view.ids) < 13:
            view = company[0].membership.view
            if not sizes or sizes[-1][0] != view.generation:
                sizes.append((view.generation, len(view.ids)))
            await asyncio.sleep(0.02)
        await company.ended()
        company.agree()
        return sizes

    sizes = [size for _, size in scene(play)]
    assert all(after < 2 * before for before, after in pairwise(sizes))


@pytest.mark.parametrize(("size", "takes_part"), [(200_000, False), (1_000, True)])
def test_no_member_waits_for_a_learner_whose_connection_is_too_slow(size: int, takes_part: bool) -> None:
    async def play() -> tuple[int, int, Walker, list[str]]:
        company = Company(3, rounds=100_000, size=size, link="1gbit,5ms", train_s=lambda index: 0.5, schedule="sharded")
        company.network.links["p3"] = parse_link("400kbit,20ms")
        await company.gathered(10)
        began, first = now(), company[0].sgd.state.round
        await asyncio.sleep(20)
        alone = (company[0].sgd.state.round - first) / (now() - began)
        told: list[str] = []
        late = company.add(3, "p0")
        late.membership.on_waiting.append(told.append)
        began, first = now(), company[0].sgd.state.round
        await asyncio.sleep(60)
        with_it = (company[0].sgd.state.round - first) / (now() - began)
        learns, round_ = late.membership.learns, late.sgd.state.round
        await company.over()
        assert round_ > 0, "it has fetched the state"
        return alone, with_it, learns, told

    alone, with_it, learns, told = scene(play, within_s=10_000)
    assert learns is not takes_part
    if takes_part:
        assert not told
    else:
        assert with_it >= 0.9 * alone
        assert "it stays a learner" in told[0]


def test_a_fetch_goes_on_while_the_view_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    usual = catch_up.fetch

    async def counted(channel: Any, donor: str, **more: Any) -> Any:
        begun.append(donor)
        return await usual(channel, donor, **more)

    monkeypatch.setattr(catch_up, "fetch", counted)

    async def play() -> int:
        company = Company(3, rounds=100_000, size=30_000, link="100mbit,5ms", train_s=lambda index: 0.5)
        await company.gathered(3)
        late = company[2]
        company.network.links["p2"] = parse_link("800kbit,20ms")
        late.sgd.state = replace(late.sgd.state, round=0)  # it has lost what it held
        company[0].membership.renew()
        await company.until(lambda: late.sgd._lag.behind is not None)
        begun.clear()
        first = late.membership.view.generation
        while late.sgd._lag.behind is not None:
            company[0].membership.renew()
            await asyncio.sleep(1.0)
        changes = late.membership.view.generation - first
        await company.over()
        return changes

    assert scene(play) >= 2
    assert len(begun) == 1


def test_an_expelled_peer_begins_nothing_more_while_it_catches_up() -> None:
    async def play() -> None:
        roster = roster_of(2)
        roster.fail(Expelled("p1"))
        with pytest.raises(Expelled):
            async with roster.only_while(lambda: True):
                await asyncio.get_running_loop().create_future()
        roster.failed = None
        async with roster.only_while(lambda: False):
            await asyncio.get_running_loop().create_future()

    scene(play)


@pytest.mark.parametrize("how", ["leave", "finish"])
def test_a_learner_whose_members_have_all_gone_for_good_ends(how: str) -> None:
    async def play() -> Company:
        company = Company(3, rounds=400 if how == "leave" else 25, size=50_000, link="10mbit,40ms")
        await company.gathered(3)
        company.network.links["p3"] = parse_link("80kbit,40ms")
        slow = company.add(3, "p1")
        await company.until(lambda: slow.membership.learns)
        await asyncio.sleep(10)
        if how == "leave":
            await asyncio.gather(*(walker.leave() for walker in company.walkers[:3]))
        await company.ended()
        return company

    slow = scene(play).walkers[3]
    assert isinstance(slow.error, MembershipError)
    assert "all members of the run have left" in str(slow.error)


@pytest.mark.parametrize(("deserted", "error"), [(True, MembershipError), (False, Expelled)])
def test_a_learner_without_members_waits_for_no_peer(deserted: bool, error: type[Exception]) -> None:
    """It ends where they are gone for good, and comes anew where they may have gone on without it."""
    alone: Any = SimpleNamespace(me=SimpleNamespace(life=1), leaders=(), deserted=deserted)
    alone.view = SimpleNamespace(by_seniority=("p0",))
    nothing: Any = None
    calls = {"standing": nothing, "over": nothing, "adopt": nothing}
    learner = Learner(nothing, alone, layout_of(10), 0, **calls)
    with pytest.raises(error, match="all members of the run have left" if deserted else "joining again through p0"):
        asyncio.run(learner.learn())


def test_no_view_after_view_is_decided_for_newcomers_that_there_is_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        company = Company(3, rounds=1000, train_s=lambda index: 10.0)
        await company.gathered(2)
        view = company[0].membership.view
        monkeypatch.setattr("samovar.protocols.members.view.VIEW_BYTES_MAX", 4 * view.members[0].nbytes + 10)
        for index, contact in ((3, "p1"), (4, "p2"), (5, "p0")):
            company.add(index, contact)
        await asyncio.sleep(60)
        assert len(company[0].membership.view.everybody) == 4
        assert company[0].membership.view.generation <= view.generation + 3
        assert sum("the run is full" in str(walker.error) for walker in company.walkers[3:]) == 2
        await company.over()

    scene(play)
