"""What one member says again and again, and is not so, stops the rounds of no others."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from company import Company, Walker
from conformance import over
from puppet import Puppet, decree, with_puppet
from simulated import PATIENCE_S, simulate
from test_lone_proposals import rounds_beside
from test_swapped_words import Crowd

from samovar.protocols.members.echoes import RANKS, Echo, mark_of
from samovar.protocols.members.messages import (
    MEMBERS,
    Adopt,
    Adopted,
    AskAnew,
    Confirmed,
    Install,
    Introduce,
    Promise,
    Propose,
)
from samovar.protocols.members.postponed import _FREE
from samovar.protocols.members.view import Decree, Version

NOBODYS = Version(1 << 40, 77)
"""A version of the state that nobody holds."""


def nothing(crowd: Crowd, victim: str) -> None:
    pass


def the_rest_joins_anew(crowd: Crowd, victim: str, *, votes: bool = False) -> None:
    for member in crowd.view.members:
        if member.id not in (victim, crowd.company[-1].id):
            crowd.say.post(victim, Introduce(replace(member, life=4711), Version(0, 0), crowd.view.generation, votes))


def the_rest_votes_for_former_lives(crowd: Crowd, victim: str) -> None:
    the_rest_joins_anew(crowd, victim, votes=True)


def one_joins_anew(crowd: Crowd, victim: str) -> None:
    if victim != "p1":
        member = next(one for one in crowd.view.members if one.id == "p1")
        crowd.say.post(victim, Introduce(replace(member, life=4711), Version(0, 0), crowd.view.generation))


def i_vote_for_a_former_life(crowd: Crowd, victim: str) -> None:
    state = crowd.company[0].membership.standing.state
    crowd.say.post(victim, Promise(crowd.view.generation, 0, 0, state, state, True, 0, None, True))


def adopt_what_nobody_holds(crowd: Crowd, victim: str) -> None:
    crowd.proposes(replace(crowd.decree(0), base=NOBODYS), victim)


def adopt_what_is_over(crowd: Crowd, victim: str) -> None:
    crowd.proposes(crowd.decree(0), victim)


def go_on_with_what_nobody_holds(crowd: Crowd, victim: str) -> None:
    decree = replace(crowd.decree(0), base=NOBODYS)
    for message in (Propose(crowd.view.generation, crowd.ballot), Adopt(crowd.view.generation, crowd.ballot, decree)):
        crowd.say.post(victim, message)
    crowd.say.post(victim, Install(decree))


def test_no_lie_that_one_member_repeats_stops_the_rounds_of_the_others() -> None:
    usual = rounds_beside(nothing, to=slice(0, 0))
    assert usual > 50
    lies: list[Callable[[Crowd, str], None]] = [
        the_rest_joins_anew, the_rest_votes_for_former_lives, one_joins_anew, i_vote_for_a_former_life,
        adopt_what_nobody_holds, adopt_what_is_over, go_on_with_what_nobody_holds,
    ]  # fmt: skip
    made = {lie.__name__: rounds_beside(lie, to=slice(None)) for lie in lies}
    assert {name: rounds for name, rounds in made.items() if rounds < 0.8 * usual} == {}


def test_a_member_that_is_said_to_join_anew_keeps_its_place() -> None:
    async def play() -> None:
        crowd = Crowd(4)
        company = await crowd.gathered()
        for _ in range(40):
            for walker in crowd.honest:
                one_joins_anew(crowd, walker.id)
            await asyncio.sleep(0.25)
        assert all(walker.membership.view == crowd.view for walker in crowd.honest)
        await company.over()

    simulate(play(), within_s=2_000.0)


async def restarted(company: Company, index: int, contact: str) -> Walker:
    """A member that was killed and is started anew before any other has noticed."""
    company[index].crash()
    await company[index].ended()
    return company.add(index, contact, life=1)


def test_a_member_that_was_restarted_unnoticed_is_let_in_by_its_own_word() -> None:
    """The coordinator hears of it from its contact first, and its question only shows that the old link is over."""

    async def play() -> None:
        company = Company(4, rounds=100_000, train_s=lambda index: 0.5)
        await company.gathered(2)
        life = company[2].membership.me.life
        again = await restarted(company, 2, "p1")
        await asyncio.sleep(1.5 * PATIENCE_S)
        assert again.membership.view.generation
        present = company[0].membership.view.anybody("p2")
        assert present is not None
        assert present.life == again.membership.me.life != life
        await company.over()

    simulate(play(), within_s=2_000.0)


def test_a_member_that_goes_on_does_not_answer_whether_it_joins_anew() -> None:
    async def scene(puppet: Puppet) -> None:
        heard = list[object]()
        over(puppet.others["p0"], MEMBERS).on(Introduce, lambda envelope: heard.append(envelope.message))
        await puppet.tell("p0", AskAnew(3))
        assert heard == []

    with_puppet(scene)


def test_a_member_that_is_there_is_dialled_at_no_address_that_another_names() -> None:
    async def scene(puppet: Puppet) -> None:
        dialled, membership = list[str](), puppet.walker.membership
        membership._channel.endpoint.dial = lambda peer, address: dialled.append(address)  # type: ignore[method-assign]
        p0 = replace(membership.view.members[0], life=4711, address="sim://elsewhere")
        await puppet.tell("p2", Introduce(p0, Version(0, 0), 3))
        assert dialled == []
        membership.suspect("p0", "it was busy")
        await asyncio.sleep(PATIENCE_S)
        assert "sim://elsewhere" in dialled

    with_puppet(scene)


@pytest.mark.parametrize("liar", [0, 1], ids=["the coordinator", "the other"])
def test_of_two_members_one_that_was_sent_ahead_alone_calls_the_other_after_it(liar: int) -> None:
    """The one that has told of the view did not go there itself. Each waits for the other in a view of its own."""

    async def play() -> None:
        company = Company(2, rounds=100_000, train_s=lambda index: 0.5)
        await company.gathered(2)
        view, teller, victim = company[0].membership.view, company[liar], company[1 - liar]
        following = replace(view, generation=view.generation + 1)
        install = Install(Decree(following, victim.membership.standing.state, (victim.id,), ()))
        over(teller.endpoint, MEMBERS).post(victim.id, install)
        await company.until(lambda: victim.membership.view == following)
        reached = victim.sgd.state.round + 4
        await company.until(lambda: all(walker.sgd.state.round >= reached for walker in company.walkers))
        await company.over()

    simulate(play(), within_s=20 * PATIENCE_S)


@pytest.mark.parametrize("word", ["echo", "confirmed"])
def test_a_member_that_has_adopted_another_decree_since_counts_for_its_first_no_more(word: str) -> None:
    async def play() -> None:
        crowd = Crowd(5)
        company = await crowd.gathered()
        victim, teller, (first, second) = company[1], company[2], (crowd.decree(0), crowd.decree(1))
        say, hearsay = over(teller.endpoint, MEMBERS), victim.membership._change.hearsay
        crowd.say.post(victim.id, Install(first))
        await asyncio.sleep(0.3)
        say.post(victim.id, Confirmed(mark_of(first), 2))
        await asyncio.sleep(0.1)
        assert hearsay._claims[mark_of(first)].adopted == {teller.id}
        later = Echo(crowd.view.generation, crowd.ballot, mark_of(second)), Confirmed(mark_of(first), 1)
        say.post(victim.id, later[word == "confirmed"])
        await asyncio.sleep(0.1)
        assert hearsay._claims[mark_of(first)].adopted == set()
        await company.over()

    simulate(play(), within_s=2_000.0)


def test_a_word_on_one_decree_takes_back_none_on_another() -> None:
    """Else one that tells of two decrees in turn would keep a member from ever counting the adoptions of the others."""

    async def play() -> None:
        crowd = Crowd(5)
        company = await crowd.gathered()
        victim, (first, second) = company[1], (crowd.decree(0), crowd.decree(1))
        hearsay = victim.membership._change.hearsay
        crowd.say.post(victim.id, Install(first))
        over(company[0].endpoint, MEMBERS).post(victim.id, Install(second))
        await asyncio.sleep(0.3)
        say = over(company[2].endpoint, MEMBERS)
        say.post(victim.id, Confirmed(mark_of(first), 2))
        say.post(victim.id, Confirmed(mark_of(second), 1))
        await asyncio.sleep(0.1)
        assert hearsay._claims[mark_of(first)].adopted == {company[2].id}
        say.post(victim.id, Confirmed(mark_of(second), 2))
        await asyncio.sleep(0.1)
        assert hearsay._claims[mark_of(first)].adopted == set()
        await company.over()

    simulate(play(), within_s=2_000.0)


@pytest.mark.parametrize("known", [True, False])
def test_the_first_decrees_of_a_member_that_does_not_lead_wait_for_the_coordinator_only_if_their_base_is_unknown(
    known: bool,
) -> None:
    """Else a coordinator that is heard, but hangs, would lead instead without end."""

    async def scene(puppet: Puppet) -> None:
        membership, answers = puppet.walker.membership, list[type]()
        await puppet.tell("p0", Promise(3, 0, 0, NOBODYS, NOBODYS, True, 0, None))
        base = membership.standing.state if known else NOBODYS
        wished = replace(decree(4, membership.view.members), base=base)
        for number in range(1, _FREE + 2):
            answer = await puppet.tell("p2", Adopt(3, number * RANKS + 2, wished))
            answers.append(type(answer[0]))
        first = Adopted if known else Promise
        assert answers == [first] * _FREE + [Promise]

    with_puppet(scene)
