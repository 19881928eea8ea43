"""Deciding the next view: two halves never both do, and what may have been decided is kept."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from company import Company, assert_one_truth
from conformance import over
from puppet import NOTHING, Puppet, decree, with_puppet
from simulated import PATIENCE_S, no_complaints, simulate  # noqa: F401
from test_swapped_words import adopts_at_once

from samovar.aggregation.mean import Mean
from samovar.aggregation.periods.policy import PeriodState
from samovar.protocols.local_sgd.commit import Commit
from samovar.protocols.local_sgd.rounds import Contribution, Result
from samovar.protocols.local_sgd.state import State, state_fingerprint
from samovar.protocols.local_sgd.trial import Trial
from samovar.protocols.members.echoes import RANKS
from samovar.protocols.members.errors import NoQuorum
from samovar.protocols.members.messages import MEMBERS, Adopt, Adopted, Promise, Propose, Suspicion
from samovar.protocols.members.postponed import _FREE
from samovar.protocols.members.roster import TRY_FOR
from samovar.protocols.members.view import Decree, Version


def test_two_members_that_cannot_hear_each_other_do_not_both_decide() -> None:
    """The two most senior cannot hear each other, and both can hear all others: ballots compete."""
    for n in (4, 5):

        async def main(n: int = n) -> None:
            company = Company(n, rounds=6)
            await company.gathered(rounds=1)
            company.part(["p0"], ["p1"])
            await company.until(lambda: max(walker.sgd.state.round for walker in company.walkers) >= 4)
            company.heal()
            await company.ended()
            assert_one_truth(company)
            company.agree([walker for walker in company.walkers if walker.finished])
            assert sum(walker.finished for walker in company.walkers) >= n - 1

        simulate(main())


@pytest.mark.parametrize("way", [("p0", "p2"), ("p2", "p0"), ("p1", "p2"), ("p2", "p1")])
def test_a_way_that_fails_in_one_direction_costs_a_member_at_most(way: tuple[str, str]) -> None:
    async def main() -> None:
        company = Company(4, rounds=8)
        await company.gathered(rounds=1)
        company.cut(*way)
        await company.until(lambda: max(walker.sgd.state.round for walker in company.walkers) >= 4)
        company.heal()
        await company.ended()
        company.agree([walker for walker in company.walkers if walker.finished])
        assert sum(walker.finished for walker in company.walkers) >= 3

    simulate(main())


def test_a_quorum_that_the_user_set_is_kept() -> None:
    async def main(quorum: int) -> Company:
        company = Company(5, rounds=4, quorum=quorum, give_up_after_s=4 * PATIENCE_S)
        await company.gathered(rounds=1)
        company[3].crash()
        company[4].crash()
        await company.ended()
        return company

    simulate(main(3)).agree()
    four = simulate(main(4))
    assert all(isinstance(walker.error, NoQuorum) for walker in four.survivors)
    assert any("3 of 5 peers are left, 4 are needed" in str(walker.error) for walker in four.survivors)


def test_after_a_promise_nothing_is_committed_in_the_old_generation() -> None:
    async def scene(puppet: Puppet) -> None:
        (promise,) = await puppet.tell("p0", Propose(3, 65536))
        assert (promise.promised, promise.result.number, promise.adopted) == (65536, 0, 0)
        assert not puppet.walker.membership.settled
        await puppet.tell("p0", Commit(3, 1, 77))
        assert puppet.sgd._verdicts.on((3, 1)) is None

    with_puppet(scene)


def test_a_commit_of_another_generation_counts_for_nothing() -> None:
    async def scene(puppet: Puppet) -> None:
        for generation in (2, 4, 10**9):
            await puppet.tell("p0", Commit(generation, 1, 77))
            assert puppet.sgd._verdicts.on((generation, 1)) is None
        await puppet.tell("p0", Commit(3, 1, 77))
        assert puppet.sgd._verdicts.on((3, 1)) == 77, "but that of ours does"

    with_puppet(scene)


def test_a_lower_ballot_is_denied_and_a_higher_ballot_learns_the_adopted_decree() -> None:
    async def scene(puppet: Puppet) -> None:
        members = puppet.walker.membership.view.members
        adopts_at_once(puppet.walker)
        (promise,) = await puppet.tell("p2", Propose(3, 65538))
        (denied,) = await puppet.tell("p0", Propose(3, 65536))
        assert denied.promised == 65538 > denied.ballot
        (adopted,) = await puppet.tell("p0", Adopt(3, 65536, decree(4, members[:2])))
        assert adopted.promised == 65538 > adopted.ballot, "not adopted"
        (adopted,) = await puppet.tell("p2", Adopt(3, 65538, decree(4, members[1:])))
        assert adopted.promised == adopted.ballot == 65538
        (promise,) = await puppet.tell("p0", Propose(3, 131072))
        assert (promise.promised, promise.adopted) == (131072, 65538)
        assert promise.decree == decree(4, members[1:]), "p0 has to propose this one"
        assert puppet.walker.membership.view.generation == 3, "adopted is not installed"

    with_puppet(scene)


def test_nobody_has_a_decree_adopted_under_the_ballot_of_another() -> None:
    """The others would take its decree for a second one of the member whose ballot it is."""

    async def scene(puppet: Puppet) -> None:
        members = puppet.walker.membership.view.members
        assert await puppet.tell("p2", Adopt(3, 65536, decree(4, members[1:]))) == []
        assert "under the ballot of another" in puppet.walker.endpoint.refused["p2"]
        assert puppet.walker.membership._change.acceptor.adopted is None

    with_puppet(scene)


def test_an_adoption_waits_while_the_coordinators_may_hold_and_costs_its_proposer_one_try() -> None:
    """After that the proposer is answered as before. The coordinator itself knows whether its own holds."""

    async def main(receiver: int) -> None:
        company = Company(5, rounds=100_000)
        await company.gathered(rounds=1)
        view, loop = company[0].membership.view, asyncio.get_running_loop()
        by_seniority = sorted(company.walkers, key=lambda walker: view.by_seniority.index(walker.id))
        first, asked, rival = by_seniority[0], by_seniority[receiver], by_seniority[-1]
        acceptor, answers = asked.membership._change.acceptor, list[Promise | Adopted]()
        acceptor._answer = lambda to, answer: answers.append(answer)  # type: ignore[method-assign]
        say, rank, latest = over(rival.endpoint, MEMBERS), view.ids.index(rival.id), acceptor.latest
        assert latest is not None
        acceptor.adopt(RANKS + view.ids.index(first.id), replace(latest, given=True), first.id)
        say.post(asked.id, Adopt(view.generation, 2 * RANKS + rank, replace(latest, given=False)))
        began_s = loop.time()
        await company.until(lambda: answers != [])
        assert (loop.time() < began_s + 1.0) is (asked is first)
        assert (loop.time() > began_s + TRY_FOR * PATIENCE_S - 1.0) is (asked is not first)
        for counter in range(3, 3 + _FREE - 1):
            say.post(asked.id, Propose(view.generation, counter * RANKS + rank))
            await asyncio.sleep(0.2)
            assert len(answers) == counter - 1
        await company.over()

    for receiver in (0, 1):
        simulate(main(receiver))


def test_the_successor_of_a_dead_leader_proposes_the_decree_that_may_hold() -> None:
    async def scene(puppet: Puppet) -> None:
        members = puppet.walker.membership.view.members
        half_decided = decree(4, members[1:])
        await puppet.tell("p0", Propose(3, 65536))
        await puppet.tell("p0", Adopt(3, 65536, half_decided))
        proposed: list[Adopt] = []

        def promise(envelope: Any) -> None:
            ballot = envelope.message.ballot
            over(puppet.others["p2"], MEMBERS).post("p1", Promise(3, ballot, ballot, NOTHING, NOTHING, True, 0, None))

        def adopt(envelope: Any) -> None:
            proposed.append(envelope.message)
            over(puppet.others["p2"], MEMBERS).post("p1", Adopted(3, envelope.message.ballot, envelope.message.ballot))

        over(puppet.others["p2"], MEMBERS).on(Propose, promise)
        over(puppet.others["p2"], MEMBERS).on(Adopt, adopt)
        puppet.others["p0"].abort()
        await puppet.tell("p2", Suspicion(3, "p0", "it is silent"))
        assert proposed == [], "p1 has not lost it"
        await asyncio.sleep(3 * PATIENCE_S)
        assert [adopt.decree for adopt in proposed][:1] == [half_decided]
        assert puppet.walker.membership.removals[0].peer == "p0"

    with_puppet(scene)


def test_no_view_is_decided_that_no_member_can_go_on_from() -> None:
    """In its former life p2 voted for a result, which it does not hold any more: p0 may have committed it."""

    async def scene(puppet: Puppet) -> None:
        result, holders, proposed = Version(1, 77), set[str](), list[Adopt]()

        def promise(envelope: Any) -> None:
            ballot = envelope.message.ballot
            answer = Promise(3, ballot, ballot, NOTHING, result, "p2" in holders, 0, None)
            over(puppet.others["p2"], MEMBERS).post("p1", answer)

        over(puppet.others["p2"], MEMBERS).on(Propose, promise)
        over(puppet.others["p2"], MEMBERS).on(Adopt, lambda envelope: proposed.append(envelope.message))
        puppet.others["p0"].abort()
        await asyncio.sleep(5 * PATIENCE_S)
        assert proposed == []
        holders.add("p2")
        await asyncio.sleep(2 * PATIENCE_S)
        assert (proposed[0].decree.base, proposed[0].decree.donors) == (result, ("p2",))

    with_puppet(scene)


def test_a_change_ends_with_its_view_though_all_have_promised() -> None:
    """The others decide the next view while the leader's own promise is written to its disk."""

    async def scene(puppet: Puppet) -> None:
        membership, asked = puppet.walker.membership, set[int]()
        members, state = membership.view.members, puppet.sgd.standing().state

        def promise(envelope: Any) -> None:
            asked.add(envelope.message.generation)
            ballot = envelope.message.ballot
            over(puppet.others["p2"], MEMBERS).post("p1", Promise(3, ballot, ballot, state, state, True, 0, None))

        async def overtaken() -> None:
            if membership.view.generation == 3:
                membership._take(decree(4, members[1:]), "p2")

        over(puppet.others["p2"], MEMBERS).on(Propose, promise)
        membership._change._ledger.synced = overtaken  # type: ignore[method-assign]
        puppet.others["p0"].abort()
        await asyncio.sleep(5 * PATIENCE_S)
        assert (membership.view.generation, asked) == (4, {3})
        assert membership._change.acceptor.adopted is None, "nothing is adopted in the view that came"

    with_puppet(scene)


def test_a_leader_that_has_promised_a_rival_meanwhile_has_nobody_adopt_its_decree() -> None:
    """The rival proposes while the leader's own promise is written to its disk. It could not adopt the decree itself,
    so a member that did would be taken for a liar."""

    async def scene(puppet: Puppet) -> None:
        membership, asked, adopts = puppet.walker.membership, list[int](), list[int]()
        rival, state = over(puppet.others["p2"], MEMBERS), puppet.sgd.standing().state

        def promise(envelope: Any) -> None:
            asked.append(envelope.message.ballot)
            rival.post("p1", Promise(3, asked[-1], asked[-1], state, state, True, 0, None))

        async def outbid() -> None:
            if len(asked) == 1:
                rival.post("p1", Propose(3, asked[0] + RANKS + 1))
                await membership.until(lambda: membership._change.promised > asked[0])

        rival.on(Propose, promise)
        over(puppet.others["p0"], MEMBERS).on(Adopt, lambda envelope: adopts.append(envelope.message.ballot))
        membership._change._ledger.synced = outbid  # type: ignore[method-assign]
        membership.suspect("p0", "it holds up the others")
        await asyncio.sleep(PATIENCE_S)
        assert len(asked) > 1
        assert adopts
        assert asked[0] not in adopts

    with_puppet(scene)


@pytest.mark.parametrize("hopeful", [True, False], ids=["in its view", "amid a change"])
def test_a_result_that_comes_amid_a_change_is_neither_kept_nor_told(hopeful: bool) -> None:
    """This peer has already told the leader of the change what it holds."""
    before = State(0, 0, torch.zeros(3), (), PeriodState(1))
    result = Result((3, 1), replace(before, round=1), 2.0, 0.5, 1.0, 77)
    kept, told = list[Result | None](), list[tuple[Any, ...]]()
    stub = SimpleNamespace(view=SimpleNamespace(ids=("p0", "p1")), in_place=False, on=lambda key: 77)
    stub.of = lambda *arguments: result
    stub.mean = lambda *arguments: answered(Mean(torch.ones(3), (), 2.0, 1.0), 77)
    stub.vote = stub.reach = lambda *arguments: answered(told.append(arguments))  # to its record, to the coordinator
    hope: dict[str, Any] = {"hopeful": lambda key: hopeful, "keep": kept.append, "version": lambda state: 0}
    trial = Trial(stub, stub, stub, stub, stub, inquest=stub, **hope)
    contribution = Contribution(torch.ones(3), weight=1.0, loss=0.5, learning_rate=0.1, elapsed_s=1.0)
    assert asyncio.run(trial.make((3, 1), contribution, before, 4)) is None
    assert (kept, len(told)) == (([result], 2) if hopeful else ([], 0))


@pytest.mark.parametrize("handed_on", [True, False])
def test_a_peer_commits_the_result_that_a_change_hands_on_and_no_other(handed_on: bool) -> None:
    async def scene(puppet: Puppet) -> None:
        own, view = replace(puppet.sgd.state, round=1), puppet.walker.membership.view
        puppet.sgd._keep(Result((3, 1), own, 2.0, 0.5, 1.0, 77))
        base = Version(1, state_fingerprint(own)) if handed_on else Version(0, 0)
        puppet.walker.membership._take(Decree(replace(view, generation=4), base, ("p0", "p1"), ()), "p0")
        assert puppet.sgd.state.round == (1 if handed_on else 0)

    with_puppet(scene)


async def answered(*values: Any) -> Any:
    return values
