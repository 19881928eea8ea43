"""Membership: who comes, who goes, who decides it, and that two halves never both do."""

import asyncio
from typing import Any

import pytest
import torch
from simulated import LINK, PATIENCE_S, Company, Walker, endpoint_in, no_complaints, simulate  # noqa: F401

from samovar.peers.links import parse_link
from samovar.protocols.delivery.link import PeerLost
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.local_sgd import LocalSGD
from samovar.protocols.members.decree import next_decree
from samovar.protocols.members.membership import JoinRefused, MembershipError, NoQuorum
from samovar.protocols.members.roster import Gone, Roster
from samovar.protocols.members.view import (
    VIEW_BYTES_MAX,
    Adopt,
    Adopted,
    Decree,
    Departed,
    Introduce,
    Member,
    Promise,
    Propose,
    View,
    in_words,
    with_data_parts,
)
from samovar.protocols.verdict import Commit, Have
from samovar.sims.network import Network


def now() -> float:
    return asyncio.get_running_loop().time()


async def gathered(company: Company, rounds: int = 0) -> None:
    company.start()
    await company.until(lambda: all(walker.membership.view.started for walker in company.walkers))
    await company.until(lambda: company[0].sgd.state.round >= rounds)


def assert_one_view(walkers: list[Walker]) -> View:
    views = {walker.membership.view for walker in walkers}
    assert len(views) == 1
    return views.pop()


# Gathering


def test_founders_gather_and_begin_together_in_one_view() -> None:
    async def main() -> None:
        company = Company(5)
        await gathered(company)
        await asyncio.sleep(0.5)
        view = assert_one_view(company.walkers)
        assert view.ids == ("p0", "p1", "p2", "p3", "p4"), "in the order of the parts of the data"
        assert [member.data_part for member in view.members] == [0, 1, 2, 3, 4]
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
def test_who_dies_while_they_gather_is_replaced(victim: int) -> None:
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


def test_of_two_that_gather_the_founder_may_go_on_alone_and_only_it() -> None:
    async def main(victim: int) -> Company:
        company = Company(2, founders=3)
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


# Coming


def test_a_peer_that_joins_during_a_round_is_in_the_next() -> None:
    async def main() -> None:
        company = Company(3, rounds=6)
        await gathered(company, rounds=2)
        await asyncio.sleep(0.7)
        late = company.add(3, "p2")
        await company.ended()
        company.agree()
        assert late.outcomes[-1].members == 4
        assert late.outcomes[0].state.round in (3, 4)
        assert [outcome.state.round for outcome in company[0].outcomes] == [1, 2, 3, 4, 5, 6], "nobody lost a round"

    simulate(main())


def test_several_may_join_at_once_and_others_during_that_change() -> None:
    async def main() -> None:
        company = Company(3, rounds=8)
        await gathered(company, rounds=1)
        for index, contact in ((3, "p0"), (4, "p1"), (5, "p2")):
            company.add(index, contact)
        await asyncio.sleep(0.15)
        company.add(6, "p1")
        await company.ended()
        company.agree()
        assert company[0].outcomes[-1].members == 7
        assert not company[0].membership.losses

    simulate(main())


def test_a_joiner_whose_contact_dies_goes_to_another_member() -> None:
    """The contact dies at every moment of the admission, one after the other."""
    let_in = refused = 0
    for delay_s in [0.02 * step for step in range(30)]:

        async def main(delay_s: float = delay_s) -> Walker:
            company = Company(4, rounds=8)
            await gathered(company, rounds=1)
            late = company.add(4, "p2")
            await asyncio.sleep(delay_s)
            company[2].crash()
            await company.ended()
            company.agree([walker for walker in company.survivors if walker is not late])
            if late.error is None:
                company.agree()
            return late

        late = simulate(main())
        if late.error is None:
            let_in += 1
        else:
            assert isinstance(late.error, PeerLost), "it knew nobody else yet"
            refused += 1
    assert let_in > 20
    assert refused > 0


def test_a_coordinator_that_dies_with_an_introduction_in_hand_delays_it_only() -> None:
    for delay_s in [0.02 * step for step in range(30)]:

        async def main(delay_s: float = delay_s) -> None:
            company = Company(4, rounds=10)
            await gathered(company, rounds=1)
            late = company.add(4, "p2")
            await asyncio.sleep(delay_s)
            company[0].crash()
            await company.ended()
            company.agree()
            assert late.outcomes[-1].members == 4

        simulate(main())


def test_a_coordinator_that_is_given_up_sends_elsewhere_who_waits_to_be_let_in() -> None:
    async def main() -> None:
        company = Company(3, rounds=20)
        await gathered(company, rounds=1)
        company.part(["p0"], ["p1", "p2"])
        company.add(3, "p0")
        await company.until(lambda: "p0" not in company[1].membership.view.ids)
        assert "p3" in company[0].membership._roster.newcomers
        company.heal()
        healed = now()
        await company.until(lambda: "p3" in company[1].membership.view.ids)
        assert now() - healed < PATIENCE_S, "else it would wait for four patiences, and then ask again"
        await company.ended()
        company.agree()

    simulate(main())


def test_who_joins_anew_is_not_given_up_for_the_links_it_had_before() -> None:
    """It may have begun another link since it was given up, and before it knew; that one ends too."""

    async def main() -> None:
        company = Company(4, rounds=20)
        await gathered(company, rounds=1)
        company[0].membership.suspect("p3", "a whim")
        await company.until(lambda: "p3" not in company[1].membership.view.ids)
        await company.until(lambda: "p3" in company[1].membership.view.ids)
        generation = company[1].membership.view.generation
        await asyncio.sleep(4 * PATIENCE_S)
        assert company[1].membership.view.generation == generation
        await company.ended()
        company.agree()

    simulate(main())


def test_a_restarted_peer_returns_under_its_old_name() -> None:
    for pause_s in (0.0, 0.3, 1.0, 3.0, 6.0, 10.0):

        async def main(pause_s: float = pause_s) -> None:
            company = Company(4, rounds=12)
            await gathered(company, rounds=1)
            await asyncio.sleep(0.4)
            company[2].crash()
            await asyncio.sleep(pause_s)
            again = company.add(2, "p1", life=1)
            await company.ended()
            company.agree()
            assert again.outcomes[-1].members == 4
            lost = [loss.peer for loss in company[0].membership.losses]
            assert lost == ["p2"], "the others were not drawn into it"

        simulate(main())


def test_the_coordinator_itself_may_be_restarted() -> None:
    async def main() -> None:
        company = Company(4, rounds=10)
        await gathered(company, rounds=1)
        company[0].crash()
        await asyncio.sleep(0.2)
        again = company.add(0, "p1", life=1)
        await company.until(lambda: again.membership.settled)
        assert again.membership.view.by_seniority[-1] == "p0", "it has lost its seniority"
        assert again.membership.coordinator != "p0"
        await company.ended()
        company.agree()

    simulate(main())


async def stranger(company: Company, contact: str = "p0", **changed: Any) -> Exception | None:
    """Somebody who asks to be let in as p9; returns what it gets for that."""
    company.peers_max = 10
    walker = company.walker(9)
    membership = walker.membership
    for name, value in changed.items():
        setattr(membership._roster if name == "me" else membership._admission, name, value)
    await walker.endpoint.open()
    for member in company.walkers:
        member.endpoint.admit("p9")
    walker.endpoint.dial(contact, f"sim://{contact}")
    try:
        await walker.sgd.enter(contact)
    except Exception as error:
        return error
    finally:
        membership.close()
        walker.endpoint.abort()
    return None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"_run": "another"}, "this is run 'test', not 'another'"),
        ({"_layout": "0" * 32, "_model": "1 element"}, "different layouts: 1 element, test"),
        ({"me": Member("p1", "p9", "sim://p9", 9, 0)}, "another peer's name"),
        ({"me": Member("p9", "p9", "x" * 1000, 9, 0)}, "the run is full: 3 members"),
    ],
)
def test_who_does_not_fit_is_refused_with_the_reason(changed: dict[str, Any], said: str, monkeypatch) -> None:
    monkeypatch.setattr("samovar.protocols.members.view.VIEW_BYTES_MAX", 500)

    async def main() -> None:
        company = Company(3, rounds=4)
        await gathered(company)
        error = await stranger(company, **changed)
        assert isinstance(error, JoinRefused)
        assert said in str(error)
        await company.ended()
        company.agree()
        assert len(company[0].membership.view.members) == 3

    simulate(main())


def test_a_contact_that_is_no_member_itself_sends_one_elsewhere() -> None:
    async def main() -> None:
        company = Company(3, rounds=4)
        await gathered(company)
        loner = company.walker(8)
        await loner.endpoint.open()
        loner.endpoint.admit("p9")
        error = await stranger(company, contact="p8")
        loner.endpoint.abort()
        await company.ended()
        assert isinstance(error, MembershipError)
        assert "no member itself" in str(error)

    simulate(main())


def test_a_joiner_at_the_end_is_told_that_the_run_is_over() -> None:
    async def main() -> None:
        company = Company(3, rounds=1, train_s=lambda index: 1.0)
        company[2].train_s = 30.0
        await gathered(company)
        company[0].membership.finished.add("p0")
        error = await stranger(company)
        assert isinstance(error, JoinRefused)
        assert "the run is over" in str(error)
        await company.ended()

    simulate(main())


# Going


@pytest.mark.parametrize("leaver", [0, 1, 3])
def test_who_leaves_is_let_go_at_once_and_is_no_loss(leaver: int) -> None:
    async def main() -> None:
        company = Company(4, rounds=4)
        await gathered(company, rounds=1)
        await asyncio.sleep(0.5)
        began = now()
        await company[leaver].leave()
        assert now() - began < 1, "nobody waited for its silence"
        await company.ended()
        company.agree()
        assert company.survivors[0].outcomes[-1].members == 3
        for walker in company.survivors:
            (loss,) = walker.membership.losses
            assert (loss.peer, loss.left, loss.advice) == (f"p{leaver}", True, "")
            assert loss.why == "left: it has other plans"

    simulate(main())


def test_of_two_the_one_that_is_left_goes_on_alone() -> None:
    for leaver in range(2):

        async def main(leaver: int = leaver) -> None:
            company = Company(2, rounds=4)
            await gathered(company, rounds=1)
            await company[leaver].leave()
            await company.ended()
            company.agree()
            assert company.survivors[0].outcomes[-1].members == 1

        simulate(main())


@pytest.mark.parametrize("apart_s", [0.0, 0.05, 0.3])
def test_everybody_may_leave_but_one(apart_s: float) -> None:
    async def main() -> None:
        company = Company(5, rounds=5)
        await gathered(company, rounds=1)
        await asyncio.sleep(0.5)
        leaving = []
        for leaver in (0, 1, 2, 4):
            leaving.append(asyncio.create_task(company[leaver].leave()))
            await asyncio.sleep(apart_s)
        await asyncio.gather(*leaving)
        await company.ended()
        company.agree()
        assert [walker.id for walker in company.survivors] == ["p3"]
        assert company[3].outcomes[-1].members == 1
        assert all(loss.left for loss in company[3].membership.losses)

    simulate(main())


def test_all_may_leave_together_and_nobody_waits() -> None:
    async def main() -> None:
        company = Company(4, rounds=5)
        await gathered(company, rounds=1)
        began = now()
        await asyncio.gather(*(walker.leave() for walker in company.walkers))
        assert now() - began <= 2 * PATIENCE_S
        await company.ended()
        assert not company.survivors

    simulate(main())


def test_a_leaver_that_dies_before_it_is_let_go_is_a_loss_like_any_other() -> None:
    async def main() -> None:
        company = Company(4, rounds=4)
        await gathered(company, rounds=1)
        company[1].membership.leave("bye")
        await asyncio.sleep(0.05)
        company[1].crash()
        await company.ended()
        company.agree()
        assert company.survivors[0].outcomes[-1].members == 3

    simulate(main())


def test_whoever_finishes_first_waits_for_who_lags() -> None:
    async def main() -> None:
        company = Company(3, rounds=2)
        await gathered(company)
        company.part(["p2"], ["p0", "p1"])
        await company.until(lambda: company[0].sgd.state.round == 2)
        await company.ended()
        company.agree([company[0], company[1]])

    simulate(main())


@pytest.mark.parametrize("victim", range(3))
def test_who_dies_at_the_end_does_not_keep_the_others(victim: int) -> None:
    async def main() -> None:
        company = Company(3, rounds=2)
        await gathered(company)
        await company.until(lambda: company[victim].sgd.state.round == 2)
        company[victim].crash()
        began = now()
        await company.ended()
        company.agree()
        assert now() - began < 4 * PATIENCE_S

    simulate(main())


# Deciding


def test_two_who_hold_each_other_for_dead_do_not_both_decide() -> None:
    """The two most senior cannot hear each other, and both can hear all others: ballots compete."""
    for n in (4, 5):

        async def main(n: int = n) -> None:
            company = Company(n, rounds=6)
            await gathered(company, rounds=1)
            company.part(["p0"], ["p1"])
            await company.until(lambda: max(walker.sgd.state.round for walker in company.walkers) >= 4)
            company.heal()
            await company.ended()
            results: dict[int, set[bytes]] = {}
            for walker in company.walkers:
                for outcome in walker.outcomes:
                    results.setdefault(outcome.state.round, set()).add(outcome.state.vector.numpy().tobytes())
            assert all(len(different) == 1 for different in results.values())
            company.agree([walker for walker in company.walkers if walker.finished])
            assert sum(walker.finished for walker in company.walkers) >= n - 1

        simulate(main())


@pytest.mark.parametrize("way", [("p0", "p2"), ("p2", "p0"), ("p1", "p2"), ("p2", "p1")])
def test_a_way_that_fails_in_one_direction_costs_a_member_at_most(way: tuple[str, str]) -> None:
    async def main() -> None:
        company = Company(4, rounds=8)
        await gathered(company, rounds=1)
        company.cut(*way)
        await company.until(lambda: max(walker.sgd.state.round for walker in company.walkers) >= 4)
        company.heal()
        await company.ended()
        company.agree([walker for walker in company.walkers if walker.finished])
        assert sum(walker.finished for walker in company.walkers) >= 3

    simulate(main())


def test_a_quorum_that_the_user_set_is_kept() -> None:
    async def main(quorum: int) -> Company:
        company = Company(5, rounds=4, quorum=quorum)
        await gathered(company, rounds=1)
        company[3].crash()
        company[4].crash()
        await company.ended()
        return company

    simulate(main(3)).agree()
    four = simulate(main(4))
    assert all(isinstance(walker.error, NoQuorum) for walker in four.survivors)
    assert any("3 of 5 peers are left, 4 are needed" in str(walker.error) for walker in four.survivors)


class Puppet:
    """p1 of three members, of whom p0 and p2 are played by the test."""

    def __init__(self) -> None:
        self.network = Network(parse_link(LINK), 1)
        self.company = Company(3)
        self.company.network = self.network
        self.walker = self.company.walker(1)
        self.others = {name: endpoint_in(self.network, name) for name in ("p0", "p2")}
        self.heard: list[tuple[str, Any]] = []
        for other in self.others.values():
            for kind in (Promise, Adopted, Have):
                other.on(kind, lambda envelope, name=other.id: self.heard.append((name, envelope.message)))

    @property
    def sgd(self) -> LocalSGD:
        return self.walker.sgd

    async def open(self) -> None:
        for endpoint in (self.walker.endpoint, *self.others.values()):
            await endpoint.open()
            for other in ("p0", "p1", "p2"):
                endpoint.dial(other, f"sim://{other}")
        members = tuple(Member(f"p{i}", f"p{i}", f"sim://p{i}", i, i + 1) for i in range(3))
        self.walker.membership._take(Decree(View(3, members, True), 0, ("p0", "p1", "p2"), ()), "p0")

    async def tell(self, sender: str, message: object) -> list[Any]:
        """Say something to p1 and return what it answers."""
        self.heard.clear()
        self.others[sender].post("p1", message)
        await asyncio.sleep(0.5)
        return [heard for name, heard in self.heard if name == sender]

    def close(self) -> None:
        self.walker.membership.close()
        for endpoint in (self.walker.endpoint, *self.others.values()):
            endpoint.abort()


def with_puppet(scene: Any) -> None:
    async def main() -> None:
        puppet = Puppet()
        await puppet.open()
        try:
            await scene(puppet)
        finally:
            puppet.close()

    simulate(main())


def decree(generation: int, members: tuple[Member, ...], round: int = 0) -> Decree:
    return Decree(View(generation, members, True), round, tuple(member.id for member in members), ())


def test_after_a_promise_nothing_is_committed_in_the_old_generation() -> None:
    async def scene(puppet: Puppet) -> None:
        (promise,) = await puppet.tell("p0", Propose(3, 65536))
        assert (promise.promised, promise.round, promise.adopted) == (65536, 0, 0)
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


def test_a_lower_ballot_is_denied_and_a_higher_one_gets_to_know_what_was_adopted() -> None:
    async def scene(puppet: Puppet) -> None:
        members = puppet.walker.membership.view.members
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


def test_who_leads_after_a_dead_leader_proposes_what_may_have_been_decided() -> None:
    async def scene(puppet: Puppet) -> None:
        members = puppet.walker.membership.view.members
        half_decided = decree(4, members[1:], round=0)
        await puppet.tell("p0", Propose(3, 65536))
        await puppet.tell("p0", Adopt(3, 65536, half_decided))
        proposed: list[Adopt] = []

        def promise(envelope: Any) -> None:
            ballot = envelope.message.ballot
            puppet.others["p2"].post("p1", Promise(3, ballot, ballot, 0, 0, 0, None))

        def adopt(envelope: Any) -> None:
            proposed.append(envelope.message)
            puppet.others["p2"].post("p1", Adopted(3, envelope.message.ballot, envelope.message.ballot))

        puppet.others["p2"].on(Propose, promise)
        puppet.others["p2"].on(Adopt, adopt)
        puppet.others["p0"].abort()
        await asyncio.sleep(3 * PATIENCE_S)
        assert [adopt.decree for adopt in proposed][:1] == [half_decided]
        assert puppet.walker.membership.losses[0].peer == "p0"

    with_puppet(scene)


# What is decided


def roster_of(count: int, *, started: bool = True) -> tuple[Roster, dict[str, Promise]]:
    members = tuple(Member(f"p{i}", f"p{i}", "", i, i + 1) for i in range(count))
    endpoint: Endpoint = endpoint_in(Network(parse_link(LINK), 1), "p0")
    roster = Roster(endpoint, members[0])
    roster.view = View(7, members, started)
    return roster, {member.id: Promise(7, 1, 1, 3, 30, 0, None) for member in members}


def test_the_gone_and_the_leaving_are_left_out_and_told_why() -> None:
    roster, promises = roster_of(5)
    roster.gone["p3"] = Gone("it is silent", 1.0)
    del promises["p3"]
    roster.leaving["p1"] = "it has other plans"
    decided = next_decree(roster, promises, founders=5)
    assert decided.view.ids == ("p0", "p2", "p4")
    assert (decided.view.generation, decided.view.started) == (8, True)
    assert decided.departed == (Departed("p1", "it has other plans", True), Departed("p3", "it is silent", False))
    assert (decided.round, decided.donors) == (3, ("p0", "p2", "p4"))


def test_all_go_on_from_the_last_round_that_may_be_committed() -> None:
    """Of four, three make a commit: p2 and the two that are silent may have made one."""
    roster, promises = roster_of(4)
    promises["p2"] = Promise(7, 1, 1, 4, 40, 0, None)
    del promises["p1"], promises["p3"]
    decided = next_decree(roster, promises, founders=4)
    assert (decided.round, decided.donors) == (4, ("p2",))


def test_a_result_that_nobody_can_have_committed_is_not_handed_on() -> None:
    """Else all would depend on the one who has it: should it die before another fetched it, nobody could go on."""
    roster, promises = roster_of(4)
    promises["p2"] = Promise(7, 1, 1, 4, 40, 0, None)
    for silent, expected in (("nobody", 3), ("p3", 3)):
        promises.pop(silent, None)
        decided = next_decree(roster, promises, founders=4)
        assert (decided.round, set(decided.donors)) == (expected, set(promises)), "p2 has the result before, too"


def test_what_the_view_goes_on_from_is_handed_on_however_few_have_it() -> None:
    roster, promises = roster_of(4)
    roster.base = 4
    promises["p2"] = Promise(7, 1, 1, 4, 40, 0, None)
    decided = next_decree(roster, promises, founders=4)
    assert (decided.round, decided.donors) == (4, ("p2",))


def test_of_different_results_the_one_that_most_hold_is_taken() -> None:
    roster, promises = roster_of(5)
    for peer, fingerprint in (("p0", 1), ("p1", 2), ("p2", 2), ("p3", 3)):
        promises[peer] = Promise(7, 1, 1, 4, fingerprint, 0, None)
    assert next_decree(roster, promises, founders=5).donors == ("p1", "p2")


def test_who_alone_holds_the_result_stays_until_another_has_it() -> None:
    roster, promises = roster_of(3)
    del promises["p1"]
    promises["p2"] = Promise(7, 1, 1, 4, 40, 0, None)
    roster.leaving = {"p2": ""}
    decided = next_decree(roster, promises, founders=3)
    assert decided.donors == ("p2",)
    assert "p2" in decided.view.ids


def test_a_newcomer_ahead_of_all_counts_before_the_first_round_only() -> None:
    """Before it, a run may be resumed by peers that come in any order; after it, a round that only a stranger has is
    none of ours."""
    for started, expected in ((False, (9, ("p9",))), (True, (3, ("p0", "p1")))):
        roster, promises = roster_of(2, started=started)
        roster.newcomers["p9"] = Introduce(Member("p9", "p9", "", 9, 0), 9, 90, 7)
        decided = next_decree(roster, promises, founders=3)
        assert (decided.round, decided.donors) == expected
        assert decided.view.started
        assert decided.view.member("p9").since == 8  # type: ignore[union-attr]


def test_a_newcomer_with_the_same_result_is_a_donor_too_and_need_not_fetch_it() -> None:
    roster, promises = roster_of(2)
    roster.newcomers["p9"] = Introduce(Member("p9", "p9", "", 9, 0), 3, 30, 7)
    assert set(next_decree(roster, promises, founders=2).donors) == {"p0", "p1", "p9"}


def test_a_view_never_outgrows_a_message() -> None:
    roster, promises = roster_of(2)
    for index in range(1000):
        member = Member(f"{index:064x}", f"peer {index}", f"tcp://[2001:db8::{index:x}]:40000", index, 0)
        roster.newcomers[member.id] = Introduce(member, 3, 30, 7)
    decided = next_decree(roster, promises, founders=2)
    assert sum(member.nbytes for member in decided.view.members) <= VIEW_BYTES_MAX
    assert len(decided.view.members) > 150
    from samovar.protocols.wire import encode

    promise = Promise(7, 2**40, 2**40, 3, 2**62, 2**40, decided)
    assert len(encode(promise, 0, incarnation=2**62, towards=2**62, seq=2**40)) < 64 * 1024


@pytest.mark.parametrize(
    ("wanted", "taken", "parts", "given"),
    [
        ([1], [0], 3, [1]),
        ([0], [0], 3, [1]),
        ([0, 0, 0], [], 3, [0, 1, 2]),
        ([7], [0], 3, [1]),
        ([2**60, 5], [0, 1, 2], 4, [3, 0]),
        ([0, 0], [0, 1], 2, [0, 1]),
    ],
)
def test_newcomers_get_a_part_of_the_data_of_their_own_while_there_is_one(wanted, taken, parts, given) -> None:
    newcomers = [Member(f"n{i}", "", "", part, 0) for i, part in enumerate(wanted)]
    staying = [Member(f"s{i}", "", "", part, 1) for i, part in enumerate(taken)]
    placed = {member.id: member.data_part for member in with_data_parts(newcomers, staying, parts, 5)}
    assert sorted(placed.values()) == sorted(given)
    assert all(0 <= part < parts for part in placed.values())


def test_a_reason_is_one_printable_line_of_a_bounded_length() -> None:
    assert in_words("line one\nline two\x00\x1b[2J") == "line one line two  [2J"
    assert len(in_words("ß" * 10_000).encode()) <= 1024


def test_states_of_a_resumed_run_are_taken_over_whoever_founds_it() -> None:
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
