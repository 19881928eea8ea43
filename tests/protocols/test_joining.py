"""Joining a run that goes on: at any moment, through any member, whoever dies meanwhile; or being told why not."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from company import Company, Walker
from conformance import over
from simulated import PATIENCE_S, no_complaints, now, simulate  # noqa: F401
from tiers import soaked
from villages import Town

from samovar.protocols.link.link import PeerLost
from samovar.protocols.members.errors import JoinRefused, MembershipError
from samovar.protocols.members.joining import _ASK_MAX as ASK_MAX
from samovar.protocols.members.messages import MEMBERS, Uninvited
from samovar.protocols.members.occasion import Occasion
from samovar.protocols.members.roster import TRY_FOR
from samovar.protocols.members.view import Attributes, Member

ADMISSION_S = [0.02 * step for step in range(30)]
"""Moments of an admission, since it was asked for."""


def test_a_newcomer_during_a_round_is_in_the_next_round() -> None:
    async def main() -> None:
        company = Company(3, rounds=6)
        await company.gathered(rounds=2)
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
        await company.gathered(rounds=1)
        for index, contact in ((3, "p0"), (4, "p1"), (5, "p2")):
            company.add(index, contact)
        await asyncio.sleep(0.15)
        company.add(6, "p1")
        await company.ended()
        company.agree()
        assert company[0].outcomes[-1].members == 7
        assert not company[0].membership.removals

    simulate(main())


def test_many_newcomers_at_once_all_get_in_and_cost_the_members_few_rounds() -> None:
    """Among them those who began a moment later, so that there is more than one change to be let in by."""

    async def main() -> None:
        company = Company(4, rounds=6, size=1000, train_s=lambda index: 0.5, schedule="sharded")
        company.peers_max = 28
        await company.gathered(rounds=2)
        generation, began, round_ = company[0].membership.view.generation, now(), company[0].sgd.state.round
        for index in range(4, 28):
            asyncio.get_running_loop().call_later(0.05 * (index % 8), company.add, index, f"p{index % 2}")
        await company.until(lambda: len(company[0].membership.view.ids) == 28)
        assert now() - began < PATIENCE_S
        assert company[0].membership.view.generation - generation <= 8, "never more at once than there are"
        await company.until(lambda: company[0].sgd.state.round >= round_ + 3)
        assert now() - began < 2 * PATIENCE_S
        await company.ended()
        company.agree()
        assert not company[0].membership.removals

    simulate(main())


def test_a_joiner_whose_contact_is_silent_for_a_while_asks_it_again() -> None:
    async def main() -> None:
        company = Company(3, rounds=30)
        await company.gathered(rounds=1)
        late = company.add(3, "p1")
        company.part(["p3"], ["p0", "p1", "p2"])
        await asyncio.sleep(2.5 * PATIENCE_S)
        company.heal()
        await company.ended()
        company.agree()
        assert late.outcomes[-1].members == 4

    simulate(main())


every = pytest.mark.parametrize("delays_s", [ADMISSION_S[::3], soaked(ADMISSION_S)], ids=["a third", "all"])


@every
def test_a_joiner_whose_contact_dies_goes_to_another_member(delays_s: list[float]) -> None:
    """The contact dies at every moment of the admission, one after the other."""
    let_in = refused = 0
    for delay_s in delays_s:

        async def main(delay_s: float = delay_s) -> Walker:
            company = Company(4, rounds=8)
            await company.gathered(rounds=1)
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
    assert let_in > len(delays_s) * 2 / 3
    assert refused > 0


@every
def test_a_coordinator_that_dies_with_an_introduction_in_hand_delays_it_only(delays_s: list[float]) -> None:
    for delay_s in delays_s:

        async def main(delay_s: float = delay_s) -> None:
            company = Company(4, rounds=10)
            await company.gathered(rounds=1)
            late = company.add(4, "p2")
            await asyncio.sleep(delay_s)
            company[0].crash()
            await company.ended()
            company.agree()
            assert late.outcomes[-1].members == 4

        simulate(main())


def test_a_coordinator_that_is_given_up_sends_its_waiting_newcomers_elsewhere() -> None:
    async def main() -> None:
        company = Company(3, rounds=20)
        await company.gathered(rounds=1)
        company.part(["p0"], ["p1", "p2"])
        company.add(3, "p0")
        await company.until(lambda: "p0" not in company[1].membership.view.ids)
        assert "p3" in company[0].membership._roster.newcomers
        company.heal()
        healed = now()
        await company.until(lambda: "p3" in company[1].membership.view.everybody)
        assert now() - healed < PATIENCE_S, "else it would wait for four patiences, and then ask again"
        await company.ended()
        company.agree()

    simulate(main())


def test_a_returning_member_is_not_given_up_for_its_former_links() -> None:
    """It may have begun another link since it was given up, and before it knew; that one ends too."""

    async def main() -> None:
        company = Company(4, rounds=20)
        await company.gathered(rounds=1)
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
            await company.gathered(rounds=1)
            await asyncio.sleep(0.4)
            company[2].crash()
            await asyncio.sleep(pause_s)
            again = company.add(2, "p1", life=1)
            await company.ended()
            company.agree()
            assert again.outcomes[-1].members == 4
            lost = [loss.peer for loss in company[0].membership.removals]
            assert lost == ["p2"], "the others were not drawn into it"

        simulate(main())


def test_the_coordinator_itself_may_be_restarted() -> None:
    async def main() -> None:
        company = Company(4, rounds=10)
        await company.gathered(rounds=1)
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
    if "me" in changed:
        membership._roster.me = changed.pop("me")
    membership._admission._terms = replace(membership.terms, **changed)
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
        ({"run": "another"}, "this is run 'test', not 'another'"),
        ({"layout": "0" * 32, "model": "1 element"}, "different layouts: 1 element, test; is it the same task file?"),
        ({"me": Member("p1", "p9", "sim://p9", Attributes(data_shard=9), 0)}, "another peer's name"),
        ({"me": Member("p9", "p9", "x" * 1000, Attributes(data_shard=9), 0)}, "the run is full: 3 members"),
    ],
)
def test_a_newcomer_that_does_not_fit_is_refused_with_the_reason(
    changed: dict[str, Any], said: str, monkeypatch
) -> None:
    monkeypatch.setattr("samovar.protocols.members.view.VIEW_BYTES_MAX", 500)

    async def main() -> None:
        company = Company(3, rounds=4)
        await company.gathered()
        error = await stranger(company, **changed)
        assert isinstance(error, JoinRefused)
        assert said in str(error)
        await company.ended()
        company.agree()
        assert len(company[0].membership.view.members) == 3

    simulate(main())


def test_a_contact_that_is_no_member_sends_the_newcomer_elsewhere() -> None:
    async def main() -> None:
        company = Company(3, rounds=4)
        await company.gathered()
        loner = company.walker(8)
        await loner.endpoint.open()
        loner.endpoint.admit("p9")
        error = await stranger(company, contact="p8")
        loner.endpoint.abort()
        await company.ended()
        assert isinstance(error, MembershipError)
        assert "in no view itself" in str(error)

    simulate(main())


def test_a_joiner_at_the_end_is_told_that_the_run_is_over() -> None:
    async def main() -> None:
        company = Company(3, rounds=1, train_s=lambda index: 1.0)
        company[2].train_s = 30.0
        await company.gathered()
        company[0].membership.finished.add("p0")
        error = await stranger(company)
        assert isinstance(error, JoinRefused)
        assert "the run is over" in str(error)
        await company.ended()

    simulate(main())


@pytest.mark.parametrize("contact", ["p0", "p1"], ids=["the coordinator", "another member"])
def test_a_newcomer_that_waits_while_the_run_ends_is_told_and_keeps_no_member_from_its_end(contact: str) -> None:
    """It comes amid the last round, for whose end the change for newcomers waits."""

    async def main() -> None:
        company = Company(3, rounds=1, train_s=lambda index: 1.0)
        company[2].train_s = 6.0
        await company.gathered()
        await asyncio.sleep(1.5)
        error = await stranger(company, contact)
        assert isinstance(error, JoinRefused)
        assert "the run is over" in str(error)
        ended = now()
        await company.ended()
        company.agree()
        assert now() < ended + 1.0

    simulate(main(), within_s=20.0)


def test_a_change_amid_a_newcomers_confirmation_waits_for_nobody() -> None:
    """The newcomer's contact has not led the change by which it comes, so it asks others whether that holds. Meanwhile
    the next newcomer makes the coordinator propose again."""

    async def main() -> None:
        for later_s in ADMISSION_S:
            town = Town(founders=4)
            await town.come("p0")
            second = await town.come("p1")
            await second.until(lambda of=second: len(of.view.ids) == 2)
            first = asyncio.create_task(town.come("p2", contact="p1"))
            await asyncio.sleep(later_s)
            await asyncio.gather(first, town.come("p3", contact="p1"))
            await asyncio.wait_for(town.all_have("p0", "p1", "p2", "p3"), PATIENCE_S / 2)
            town.over()

    simulate(main())


# Rests between changes


def occasion_of(company: Company) -> Occasion:
    return company[0].membership._change.occasion


def test_a_newcomer_that_comes_while_changes_rest_is_told_for_how_long_and_does_not_give_up() -> None:
    """It asks as often as it does at most in less time than the rest."""

    async def main() -> None:
        company, told = Company(3, rounds=300), list[str]()
        await company.gathered(rounds=2)
        occasion_of(company).rest(0.5 * PATIENCE_S + 20.0)  # as after a storm of changes: 200 s
        late = company.add(3, "p1")
        late.membership.on_waiting.append(told.append)
        began = now()
        await company.until(lambda: late.id in company[0].membership.view.everybody)
        assert now() - began > 180.0 > TRY_FOR * ASK_MAX * PATIENCE_S
        assert told[0].startswith("the others let it in again in 200 s"), told
        assert told[0].endswith("members have come and gone too often of late")
        await company.over()
        assert not company[0].membership.removals

    simulate(main(), within_s=600.0)


def test_a_newcomer_that_the_coordinator_has_lost_changes_no_view() -> None:
    """Its contact, which does not know that, would introduce it to each new view, and so bring about the next one."""

    async def main() -> None:
        company = Company(3, rounds=300)
        await company.gathered(rounds=2)
        occasion_of(company).rest(0.5 * PATIENCE_S + 2.0)  # 20 s
        company.cut("p3", "p0")
        company.cut("p0", "p3")
        late = company.add(3, "p1")
        await company.until(lambda: late.id in company[0].membership._roster.newcomers)
        late.crash()
        before = company[0].membership.view
        await asyncio.sleep(25.0)
        assert occasion_of(company)._resting is None
        assert company[0].membership.view is before
        await company.over()

    simulate(main())


def test_the_time_of_gathering_is_no_reason_to_rest() -> None:
    async def main() -> None:
        company = Company(3, rounds=300, founders=3)
        company[0].start(None)
        company[1].start("p0")
        await company.until(lambda: len(company[0].membership.view.ids) == 2)
        for _ in range(10):
            occasion_of(company).rest(10.0)
        company[2].start("p0")
        await company.until(lambda: company[0].sgd.state.round >= 2)
        late, began = company.add(3, "p1"), now()
        await company.until(lambda: late.id in company[0].membership.view.everybody)
        assert now() - began < 2 * PATIENCE_S
        await company.over()

    simulate(main())


# Turned away


def test_a_refusal_without_a_reason_is_told_as_one() -> None:
    async def main() -> None:
        company = Company(2, rounds=300)
        await company.gathered(rounds=1)
        company[0].membership._change.occasion.rest(10 * PATIENCE_S)
        late = company.add(2, "p1")
        await company.until(lambda: late.membership._admission.asks)
        over(company[1].endpoint, MEMBERS).post(late.id, Uninvited(" "))
        await late.ended()
        assert isinstance(late.error, JoinRefused)
        assert str(late.error) == "it is not let in, and was not told why"
        await company.over()

    simulate(main())
