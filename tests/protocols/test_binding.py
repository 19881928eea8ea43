"""Which adopted decree a proposer has to propose: a chosen one always, and none that only liars tell of."""

import random
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from company import Company
from simulated import no_complaints, simulate  # noqa: F401
from test_decrees import STATE, roster_of
from test_echoes import Liar, another
from test_swapped_words import adopts_at_once

from samovar.protocols.channel import Envelope
from samovar.protocols.members.binding import binding
from samovar.protocols.members.echoes import RANKS, enough_of
from samovar.protocols.members.messages import MEMBERS, Adopt, Adopted, Leave, Promise, Propose
from samovar.protocols.members.quorum import Quorum
from samovar.protocols.members.view import Decree, Version, View

LATE = 1 << 40
"""A counter of ballots that no honest member comes to."""


def plan(number: int) -> Decree:
    return Decree(View(8, (), True), Version(number, number), (), ())


def told(ballot: int = 0, decree: Decree | None = None) -> Promise:
    return Promise(7, LATE, LATE, STATE, STATE, True, ballot, decree)


def bound(
    n: int,
    promises: Mapping[int, Promise],
    *,
    me: int | None = None,
    echoed: Mapping[int, tuple[int, Decree]] | None = None,
    holders: Mapping[int, Decree] | None = None,
    started: bool = True,
    quorum: int | None = None,
) -> Decree | None:
    """What binds the member `me` of `n` (by default the first that has promised). `echoed`: the ballots and decrees of
    the echoes; `holders`: members that say that a decree holds."""
    roster, _ = roster_of(n, started=started)
    roster.me = roster.view.members[min(promises) if me is None else me]
    echoes: Any = SimpleNamespace(
        tellers=lambda decree: {f"p{one}": said[0] for one, said in (echoed or {}).items() if said[1] == decree}
    )
    hearsay: Any = SimpleNamespace(
        of_another=lambda decree: {f"p{one}" for one, held in (holders or {}).items() if held != decree}
    )
    return binding(roster, Quorum(roster, quorum), echoes, hearsay, {f"p{i}": one for i, one in promises.items()})


@pytest.mark.parametrize("n", range(1, 8))
def test_honest_members_never_choose_two_decrees(n: int) -> None:
    """Random proposers, of which each hears a random quorum and is adopted by random members; several at a time."""
    for seed in range(60):
        draw = random.Random(f"{n} {seed}")
        promised, adopted, echoed = [0] * n, [told()] * n, dict[int, tuple[int, Decree]]()
        running: dict[int, Decree] = {}
        adopters: dict[int, set[int]] = {}
        for counter in range(1, 40):
            if draw.random() < 0.3:
                members = draw.sample(range(n), draw.randint(n // 2 + 1, n))
                ballot = counter * RANKS + members[0]
                promised = [ballot if one in members else before for one, before in enumerate(promised)]
                heard = {one: echo for one, echo in echoed.items() if draw.random() < 0.5}
                promises = {one: adopted[one] for one in members}
                running[ballot] = bound(n, promises, me=members[0], echoed=heard) or plan(counter)
                asked = members[0]
            elif running:
                ballot, asked = draw.choice([*running]), draw.randrange(n)
            else:
                continue
            if ballot >= promised[asked]:
                promised[asked], adopted[asked] = ballot, told(ballot, running[ballot])
                echoed[asked] = ballot, running[ballot]
                adopters.setdefault(ballot, set()).add(asked)
        chosen = {running[ballot] for ballot, members in adopters.items() if len(members) > n // 2}
        assert len(chosen) <= 1, seed


def test_before_the_start_a_decree_of_the_half_with_the_most_senior_binds() -> None:
    for n in (2, 4, 6):
        half = {one: told(RANKS, plan(1)) if one < n // 2 else told() for one in range(n)}
        assert bound(n, half, me=n - 1, started=False) == plan(1)


@pytest.mark.parametrize("n", range(1, 8))
def test_a_proposer_keeps_to_its_own_decree_that_few_have_adopted(n: int) -> None:
    for me in range(n):
        promises = {one: told(RANKS + me, plan(1)) if one == me else told() for one in range(n)}
        assert bound(n, promises, me=me) == plan(1)


@pytest.mark.parametrize("quorum", [3, 5])
def test_more_than_half_bind_under_a_larger_quorum_and_beside_a_restarted_proposer(quorum: int) -> None:
    """Its own adoption may not be on record; and more than half adopt no other decree when they know of each other."""
    adopted = told(RANKS, plan(1))
    five = {0: replace(told(), former=True), 1: adopted, 2: adopted, 3: told(), 4: told()}
    assert bound(5, five, me=4, quorum=quorum) == plan(1)
    assert bound(5, five | {0: told()}, me=4, quorum=quorum) is None, "then the proposer has told all that it adopted"
    assert bound(5, five | {0: adopted}, me=4, quorum=quorum) == plan(1)


@pytest.mark.parametrize("n", range(3, 14))
def test_a_decree_that_only_liars_tell_of_does_not_bind(n: int) -> None:
    """As long as they, and those that do not answer, are no quorum together, whoever is said to have proposed it."""
    for liars in range(1, max(1, (n - 1) // 3) + 1):
        for silent in range(n // 2 - liars + 1):
            for proposer in range(n):
                lie = told(LATE * RANKS + proposer, plan(66))
                promises = {one: lie if one >= n - liars else told() for one in range(silent, n)}
                assert bound(n, promises) is None


@pytest.mark.parametrize("n", range(4, 14))
def test_a_decree_in_whose_view_a_member_is_binds_though_liars_hide_it(n: int) -> None:
    """The leader p0 lies with as many as may, and a member that has gone on to the view promises nothing."""
    liars, ballot = (n - 1) // 3, RANKS
    honest = range(liars, liars + enough_of(n) - liars)
    promises = {one: told(ballot, plan(1)) if one in honest else told() for one in range(n)}
    gone = promises.pop(honest[0])
    assert bound(n, promises, me=n - 1, echoed={honest[0]: (gone.adopted, plan(1))}) == plan(1)


@pytest.mark.parametrize("n", range(4, 14))
def test_a_leader_that_lies_alone_has_no_second_decree_preferred(n: int) -> None:
    """It told enough for one member to go on of a decree, and all others of another one under a higher ballot."""
    first, second = (RANKS, plan(1)), (LATE * RANKS, plan(2))
    promises = {one: told(*(first if 0 < one < enough_of(n) else second)) for one in range(n)}
    del promises[1]
    assert bound(n, promises, me=n - 1, echoed={1: first}, holders={1: plan(1)}) == plan(1)


@pytest.mark.parametrize("dies", [False, True], ids=["the leader lives", "the leader died"])
@pytest.mark.parametrize("alleged", ["the first", "the second", "its own"])
@pytest.mark.parametrize("n", [4, 5, 7])
def test_a_false_promise_of_one_member_decides_no_view(n: int, alleged: str, dies: bool) -> None:
    """It says to each leader that it has adopted that of the first or second in seniority, or its own."""

    async def play() -> None:
        company, views = Company(n, rounds=100_000, train_s=lambda index: 0.5), list[View]()
        await company.gathered(2)
        view = company[0].membership.view
        by_seniority = sorted(company.walkers, key=lambda walker: view.by_seniority.index(walker.id))
        (*honest, liar), first = by_seniority, by_seniority[0]
        proposer = {"the first": first, "the second": honest[1], "its own": liar}[alleged]
        if dies:
            honest.remove(first)
        say, ballot = liar.membership._channel.post, LATE * RANKS + view.ids.index(proposer.id)
        for walker in honest:
            walker.membership.on_view.append(views.append)

        def lie(to: str, message: object) -> None:
            if isinstance(message, Promise) and message.generation == view.generation:
                message = replace(message, adopted=ballot, decree=evil(view, {honest[0].id, liar.id}))
            say(to, message)

        liar.membership._channel.post = lie  # type: ignore[method-assign]
        first.crash() if dies else first.membership.renew()
        await company.until(lambda: all(walker.membership.view.generation > view.generation for walker in honest))
        reached = max(walker.sgd.state.round for walker in honest) + 4
        await company.until(lambda: all(walker.sgd.state.round >= reached for walker in honest))
        assert all({walker.id for walker in honest} <= {*one.ids} for one in views)
        refused = {peer for walker in honest for peer in walker.endpoint.refused}
        assert refused == ({liar.id} if proposer in honest else set()), "the leader knows of one lie"
        await company.over()

    simulate(play(), within_s=2_000.0)


def test_a_leader_that_adopted_a_dead_members_decree_is_followed_by_a_member_that_has_its_earlier_one() -> None:
    """Of five, two die at once: one had told the leader alone of its decree, and nobody echoes it."""

    async def play() -> None:
        company = Company(5, rounds=100_000, train_s=lambda index: 0.5)
        await company.gathered(2)
        view, acceptor = company[0].membership.view, company[0].membership._change.acceptor
        by_seniority = sorted(company.walkers, key=lambda walker: view.by_seniority.index(walker.id))
        first, leader, member, other, last = by_seniority
        assert acceptor.latest is not None
        mine, theirs = (another(replace(acceptor.latest, view=replace(view, generation=4)), which) for which in (1, 2))
        adopts_at_once(member)
        acceptor = leader.membership._change.acceptor
        for ballot, decree, proposer in ((RANKS, mine, leader), (2 * RANKS, theirs, first)):
            acceptor.adopt(ballot + view.ids.index(proposer.id), decree, proposer.id)
        leader.membership._channel.post(member.id, Adopt(3, RANKS + view.ids.index(leader.id), mine))
        await company.until(lambda: member.membership._change.acceptor.has_adopted(mine))
        first.crash()
        last.crash()
        await company.until(lambda: all(one.membership.view.generation == 4 for one in (leader, member, other)))
        assert member.membership.view.members[0].attributes.capacity == theirs.view.members[0].attributes.capacity
        await company.over()

    simulate(play(), within_s=2_000.0)


def evil(view: View, members: set[str]) -> Decree:
    """A decree of the next view with these members alone."""
    kept = tuple(member for member in view.members if member.id in members)
    return Decree(View(view.generation + 1, kept, True), STATE, tuple(members), ())


def test_a_former_leader_that_promises_another_decree_than_the_one_that_holds_moves_no_two_apart() -> None:
    """p1 is in the view of the first, and out of reach. The leader says that it leaves, and that it adopted another."""

    async def play() -> None:
        liar = Liar(4, lambda to, word: word.decree if isinstance(word, Adopt) or to == "p1" else None)
        company = await liar.gathered()
        say, reception = company[0].membership._channel.post, company[0].endpoint.reception
        generation = await liar.moves_one()
        first = company[1].membership._change.acceptor.latest
        assert first is not None
        company.part(["p1"], ["p2", "p3"])

        def promise(envelope: Envelope) -> None:
            asked, lie = envelope.message, another(first, 7)
            late = LATE * RANKS
            say(envelope.sender, Promise(generation, asked.ballot, asked.ballot, STATE, STATE, True, late, lie))

        def adopt(envelope: Envelope) -> None:
            asked = envelope.message
            say(envelope.sender, Adopted(generation, asked.ballot, asked.ballot))

        reception._handlers[MEMBERS, Propose], reception._handlers[MEMBERS, Adopt] = promise, adopt
        for to in ("p2", "p3"):
            say(to, Leave("it has other plans"))
        others = company.walkers[2:]
        await company.until(lambda: all(one.membership.view.generation > generation for one in others))
        liar.together()
        await company.over()

    simulate(play(), within_s=2_000.0)
