"""Whose word about the view counts: that of several members. A key that was let in, a learner, and one member alone end
nobody's membership and move nobody to another view."""

import asyncio
from dataclasses import replace

import pytest
from company import Company, Walker
from conformance import over
from simulated import endpoint_in, simulate

from samovar.protocols.members.echoes import Echo
from samovar.protocols.members.invitation import Invitation
from samovar.protocols.members.messages import (
    MEMBERS,
    Adopt,
    Confirm,
    Confirmed,
    Install,
    Introduce,
    Learned,
    Promise,
    Reinvite,
    Stale,
)
from samovar.protocols.members.view import Adoption, Decree, Version, View

FAR = 2**20


async def with_a_silent_learner() -> tuple[Company, Walker]:
    """Three that make rounds, and a fourth in their view that never says that it has learned."""
    company = Company(3, rounds=1000, train_s=lambda index: 0.5)
    await company.gathered(2)
    late = company.add(3, "p0")
    late.membership.learning.tell = lambda version, took_s: None  # type: ignore[method-assign]
    await company.until(lambda: all("p3" in walker.membership.view.everybody for walker in company.walkers))
    await asyncio.sleep(2.0)
    assert late.membership.learns
    return company, late


async def nobody_is_moved(company: Company, generation: int) -> None:
    round_ = company[0].sgd.state.round
    await company.until(lambda: all(walker.sgd.state.round >= round_ + 4 for walker in company.walkers[:3]))
    assert [walker.membership.view.generation for walker in company.walkers[:3]] == [generation] * 3
    assert not company[0].membership.removals


@pytest.mark.parametrize("by", ["a learner", "a key that was let in"])
@pytest.mark.parametrize("word", ["stale", "install", "introduce", "promise"])
def test_only_members_are_believed_about_the_view(word: str, by: str) -> None:
    async def play() -> None:
        company, late = await with_a_silent_learner()
        teller = late.endpoint
        if by == "a key that was let in":
            teller = endpoint_in(company.network, "p7", seed=1)
            await teller.open()
        view = company[0].membership.view
        others = View(view.generation + 1, tuple(one for one in view.members if one.id != "p1"), True)
        anew = replace(view.members[1], life=4711)
        words = {
            "stale": Stale(view.generation + 1, "p3", ("p0", "p2")),
            "install": Install(Decree(others, Version(FAR, 1), ("p0",), ())),
            "introduce": Introduce(anew, Version(0, 0), view.generation),
            "promise": Promise(view.generation, 0, 0, Version(0, 0), Version(0, 0), True, 0, None, True),
        }
        for walker in company.walkers[:3]:
            walker.endpoint.admit(teller.id)
            teller.admit(walker.id)
            teller.dial(walker.id, walker.endpoint.address)
            over(teller, MEMBERS).post(walker.id, words[word])
        await teller.drain()
        await nobody_is_moved(company, view.generation)
        assert not any(walker.membership._roster._former for walker in company.walkers[:3])
        if teller is not late.endpoint:
            teller.abort()
        await company.over()

    simulate(play(), within_s=2_000.0)


def test_a_learner_cannot_replace_its_invite() -> None:
    """It could let in whom it likes, and keep out the others."""

    async def play() -> None:
        company, late = await with_a_silent_learner()
        for walker in company.walkers[:3]:
            over(late.endpoint, MEMBERS).post(walker.id, Reinvite("", Invitation("its own")))
        await nobody_is_moved(company, company[0].membership.view.generation)
        assert company[0].membership.inviting.present is None
        await company.over()

    simulate(play(), within_s=2_000.0)


def forged(view: View, without: str = "", only: tuple[str, ...] = (), base: int = FAR) -> Install:
    """The next view, which nobody decided."""
    members = tuple(one for one in view.members if one.id != without and (not only or one.id in only))
    return Install(Decree(View(view.generation + 1, members, True), Version(base, 1), (members[0].id,), ()))


@pytest.mark.parametrize("teller", ["p1", "p0"], ids=["a member", "the coordinator"])
@pytest.mark.parametrize("word", ["a view without one", "a view of two", "stale", "a view of another for each"])
def test_one_members_word_on_another_view_moves_no_member(word: str, teller: str) -> None:
    async def play() -> None:
        company, late = await with_a_silent_learner()
        view, liar = company[0].membership.view, next(one for one in company.walkers if one.id == teller)
        others = [one.id for one in company.walkers if one is not liar]
        for number, victim in enumerate(others):
            words = {
                "a view without one": forged(view, without="p2"),
                "a view of two": forged(view, only=(teller, victim)),
                "stale": Stale(view.generation + 1, teller, tuple(one for one in view.ids if one != victim)),
                "a view of another for each": forged(view, base=FAR + number),
            }
            over(liar.endpoint, MEMBERS).post(victim, words[word])
        await nobody_is_moved(company, view.generation)
        assert late.membership.view.generation == view.generation
        await company.over()

    simulate(play(), within_s=2_000.0)


def test_a_newcomer_believes_its_contact_and_no_other_member_alone() -> None:
    async def play() -> None:
        company, _ = await with_a_silent_learner()
        view, newcomer = company[0].membership.view, company.add(4, "p2")
        await company.until(lambda: bool(newcomer.membership.hosts))
        me = replace(newcomer.membership.me, since=view.generation + 1)
        fake = View(view.generation + 1, (*view.members[:2], me), True)
        over(company[1].endpoint, MEMBERS).post("p4", Install(Decree(fake, Version(FAR, 1), ("p1",), ())))
        await company.until(lambda: newcomer.membership.view.generation > 0)
        assert newcomer.membership.view == company[2].membership.view
        await company.over()

    simulate(play(), within_s=2_000.0)


def test_a_member_that_missed_the_decree_takes_it_when_others_confirm_it() -> None:
    async def play() -> None:
        company, _ = await with_a_silent_learner()
        handlers = company[2].endpoint.reception._handlers
        handlers[MEMBERS, Adopt] = handlers[MEMBERS, Echo] = lambda envelope: None
        asked = list[object]()
        usual = handlers[MEMBERS, Confirmed]
        handlers[MEMBERS, Confirmed] = lambda envelope: (asked.append(envelope.message), usual(envelope))[1]
        view = company[0].membership.view
        company[0].membership.renew()
        await company.until(lambda: company[2].membership.view.generation > view.generation)
        assert asked
        await company.over()

    simulate(play(), within_s=2_000.0)


def test_a_decree_that_was_adopted_holds_by_its_proposers_word_and_by_no_other_members() -> None:
    """Its proposer may have died before enough had adopted it, and then another one may hold."""

    async def play() -> None:
        company, _ = await with_a_silent_learner()
        view = company[0].membership.view
        install = forged(view, base=company[0].sgd.state.round)
        acceptor = company[2].membership._change.acceptor
        acceptor._adopted = Adoption(1, install.decree, "p0")
        over(company[1].endpoint, MEMBERS).post("p2", install)
        await asyncio.sleep(0.5)
        assert company[2].membership.view.generation == view.generation
        over(company[0].endpoint, MEMBERS).post("p2", install)
        await company.until(lambda: company[2].membership.view.generation == view.generation + 1)
        await company.over()

    simulate(play(), within_s=2_000.0)


def test_the_word_of_the_only_member_within_reach_is_enough() -> None:
    async def play() -> None:
        company, _ = await with_a_silent_learner()
        view = company[0].membership.view
        company.part(["p1", "p2"], ["p0", "p3"])
        over(company[1].endpoint, MEMBERS).post("p2", forged(view, without="p0", base=company[2].sgd.state.round))
        await company.until(lambda: company[2].membership.view.generation > view.generation)
        await company.over()

    simulate(play(), within_s=2_000.0)


def test_a_member_that_tells_of_views_without_end_has_the_others_ask_only_so_often() -> None:
    async def play() -> None:
        company, _ = await with_a_silent_learner()
        view, asked = company[0].membership.view, 0

        def count(envelope: object) -> None:
            nonlocal asked
            asked += 1

        company[0].endpoint.reception._handlers[MEMBERS, Confirm] = count
        for number in range(500):
            over(company[1].endpoint, MEMBERS).post("p2", forged(view, base=FAR + number))
            await asyncio.sleep(0.01)
        assert 1 <= asked <= 10 * (1 + 5.0 / company[0].endpoint.interval_s)
        assert len(company[2].membership._change.hearsay._claims) == 1
        await nobody_is_moved(company, view.generation)
        await company.over()

    simulate(play(), within_s=2_000.0)


def test_an_asker_about_a_past_view_gets_the_present_view_once_an_interval() -> None:
    async def play() -> None:
        company, late = await with_a_silent_learner()
        told = list[Decree]()
        late.endpoint.reception._handlers[MEMBERS, Install] = lambda envelope: told.append(envelope.message.decree)
        for number in range(500):
            over(late.endpoint, MEMBERS).post("p0", Learned(1, Version(1, number), 0.1))
            await asyncio.sleep(0.01)
        assert 1 <= len(told) <= 2 + 5.0 / company[0].endpoint.interval_s
        await company.over()

    simulate(play(), within_s=2_000.0)


def test_repeated_promises_make_no_member_choose_its_watched_peers_anew() -> None:
    async def play() -> None:
        company, _ = await with_a_silent_learner()
        first, other = company[0].membership._roster, company[1]
        await asyncio.sleep(2.0)
        chosen, watch = 0, first.watch

        def counted() -> None:
            nonlocal chosen
            chosen += 1
            watch()

        first.watch = counted  # type: ignore[method-assign]
        generation = first.view.generation
        for n in range(1000):
            promise = Promise(generation, n, n, Version(0, 0), Version(0, 0), True, 0, None)
            over(other.endpoint, MEMBERS).post(first.id, promise)
        await other.endpoint.drain()
        assert chosen <= 1
        await nobody_is_moved(company, generation)
        await company.over()

    simulate(play(), within_s=2_000.0)
