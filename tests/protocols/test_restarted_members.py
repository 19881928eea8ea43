"""Restarted members: what the others are told of lives that are over, and which of them the present one votes for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from company import Company, Walker
from conformance import over
from scenes import scene
from simulated import endpoint_in, no_complaints  # noqa: F401

from samovar.protocols.channel import Channel
from samovar.protocols.members.ledger import Former, Ledger, Lives, Seat
from samovar.protocols.members.messages import MEMBERS, Install, Promise, Restarted, Suspicion
from samovar.protocols.members.view import Attributes, Decree, Member, Version, View

ME = Member("p1", "p1", "sim://p1", Attributes(data_shard=1), 1, life=7)
PRESENT = Decree(View(5, (ME, replace(ME, id="p0", life=3)), True), Version(3, 33), ("p0",), ())


def after(decree: Decree, **life_of: int) -> Decree:
    """The decree of the next view, in which these peers have other lives."""
    view = decree.view
    members = tuple(replace(one, life=life_of.get(one.id, one.life)) for one in view.members)
    return replace(decree, view=replace(view, generation=view.generation + 1, members=members))


async def on_record(company: Company, *entries: Seat | Lives) -> Ledger:
    ledger = Ledger(company.stores[1])
    for entry in entries:
        ledger.keep(entry)
    await ledger.synced()
    return ledger


@asynccontextmanager
async def restarted(company: Company, told: list[object]) -> AsyncIterator[tuple[Walker, Channel]]:
    """The restarted p1, and the channel of p0, a member that notes what it is told."""
    walker, believer = company.walker(1, life=1), endpoint_in(company.network, "p0")
    members = over(believer, MEMBERS)
    for kind in (Promise, Restarted):
        members.on(kind, lambda envelope: told.append(envelope.message))
    for endpoint, peer in ((walker.endpoint, "p0"), (believer, "p1")):
        await endpoint.open()
        endpoint.dial(peer, f"sim://{peer}")
    yield walker, members
    walker.membership.close()
    for endpoint in (walker.endpoint, believer):
        endpoint.abort()


def generations(told: list[object]) -> list[tuple[int, bool]]:
    return [(promise.generation, promise.former) for promise in told if isinstance(promise, Promise)]


def test_a_restarted_member_that_is_taken_for_the_coordinator_says_that_it_only_votes() -> None:
    """Members of a view that was decided before the restart do not know of it, and would wait for it to lead."""

    async def play() -> None:
        company, told = Company(2, records=True), list[object]()
        await on_record(company, Seat(ME, PRESENT))
        async with restarted(company, told) as (walker, members):
            members.post("p1", Suspicion(5, "p2", "a whim"))
            await asyncio.sleep(1.0)
            assert generations(told) == [(5, True)]
            walker.membership._take(after(PRESENT), "p0")
            await asyncio.sleep(1.0)
            assert generations(told) == [(5, True), (6, True)]

    scene(play)


def test_a_life_that_was_let_in_and_ended_before_it_heard_of_that_is_voted_for_by_the_next() -> None:
    """It has never voted. Three of four members may live, and could else decide nothing."""

    async def play() -> None:
        company, told = Company(2, records=True), list[object]()
        await on_record(company, Seat(ME, PRESENT), Lives(7, 5, (8,)))
        async with restarted(company, told) as (walker, _):
            present = walker.membership.me.life
            await asyncio.sleep(1.0)
            kept = Ledger(company.stores[1])
            assert kept.former() == Former(Seat(ME, PRESENT), None, None, (8, present))
            walker.membership._take(after(PRESENT, p1=9), "p0")
            await asyncio.sleep(1.0)
            assert generations(told) == [], "no life of this record"
            walker.membership._take(late := after(PRESENT, p1=8), "p0")
            await asyncio.sleep(1.0)
            assert generations(told) == [(6, True)]
            assert (former := kept.former()) is not None
            assert (former.seat, former.lives) == (Seat(replace(ME, life=8), late), (8, present))

    scene(play)


def test_lives_on_record_of_another_seat_are_not_voted_for() -> None:
    """They may have voted since, in a view of their own."""

    async def play() -> None:
        company = Company(2, records=True)
        for lives in (Lives(6, 5, (8,)), Lives(7, 4, (8,))):
            ledger = await on_record(company, Seat(ME, PRESENT), lives)
            assert ledger.former() == Former(Seat(ME, PRESENT), None, None)

    scene(play)


def test_a_member_that_counts_on_a_life_that_was_over_before_it_came_is_told() -> None:
    """It has no link to that life, and the one to its successor does not end: it would wait for that for ever."""

    async def play() -> None:
        company, told = Company(2), list[object]()
        async with restarted(company, told) as (_, members):
            members.post("p1", Install(PRESENT))
            await asyncio.sleep(1.0)
            assert told == [Restarted(7)]
            foreign = replace(PRESENT, view=replace(PRESENT.view, members=(ME,)))
            members.post("p1", Install(foreign))
            await asyncio.sleep(1.0)
            assert told == [Restarted(7)], "a newcomer only passes on a view in which it is not"

        recorded, told = Company(2, records=True), list[object]()
        await on_record(recorded, Seat(ME, PRESENT))
        async with restarted(recorded, told) as (_, members):
            members.post("p1", Install(after(PRESENT)))
            await asyncio.sleep(1.0)
            assert Restarted(7) not in told, "it votes on behalf of that life"

    scene(play)


def test_a_member_that_is_told_of_a_life_that_is_over_counts_on_it_no_more() -> None:
    async def play() -> None:
        company = Company(3, rounds=10**6, train_s=lambda index: 1.0)
        await company.gathered(2)
        roster, teller = company[0].membership._roster, over(company[2].endpoint, MEMBERS)
        life = company[2].membership.me.life
        teller.post("p0", Restarted(life + 1))
        await asyncio.sleep(0.5)
        assert "p2" not in roster.gone, "another life"
        generation = roster.view.generation
        teller.post("p0", Restarted(life))
        await company.until(lambda: roster.view.generation > generation)
        assert not any(one.life == life for one in roster.view.members)
        await company.over()

    scene(play)
