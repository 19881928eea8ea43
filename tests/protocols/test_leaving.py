"""Leaving a run: who says so is let go at once, and nobody waits for who is gone at the end."""

import asyncio

import pytest
from company import Company
from simulated import PATIENCE_S, no_complaints, now, simulate  # noqa: F401


@pytest.mark.parametrize("leaver", [0, 1, 3])
def test_a_leaving_peer_is_let_go_at_once_and_is_no_loss(leaver: int) -> None:
    async def main() -> None:
        company = Company(4, rounds=4)
        await company.gathered(rounds=1)
        await asyncio.sleep(0.5)
        began = now()
        await company[leaver].leave()
        assert now() - began < 1, "nobody waited for its silence"
        await company.ended()
        company.agree()
        assert company.survivors[0].outcomes[-1].members == 3
        for walker in company.survivors:
            (loss,) = walker.membership.removals
            assert (loss.peer, loss.left, loss.advice) == (f"p{leaver}", True, "")
            assert loss.why == "left: it has other plans"

    simulate(main())


def test_the_last_of_two_members_goes_on_alone() -> None:
    for leaver in range(2):

        async def main(leaver: int = leaver) -> None:
            company = Company(2, rounds=4)
            await company.gathered(rounds=1)
            await company[leaver].leave()
            await company.ended()
            company.agree()
            assert company.survivors[0].outcomes[-1].members == 1

        simulate(main())


@pytest.mark.parametrize("apart_s", [0.0, 0.05, 0.3])
def test_all_members_but_one_may_leave(apart_s: float) -> None:
    async def main() -> None:
        company = Company(5, rounds=5)
        await company.gathered(rounds=1)
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
        assert all(loss.left for loss in company[3].membership.removals)

    simulate(main())


def test_all_members_may_leave_together_and_no_member_waits() -> None:
    async def main() -> None:
        company = Company(4, rounds=5)
        await company.gathered(rounds=1)
        began = now()
        await asyncio.gather(*(walker.leave() for walker in company.walkers))
        assert now() - began <= 2 * PATIENCE_S
        await company.ended()
        assert not company.survivors

    simulate(main())


def test_a_leaver_that_dies_before_it_is_let_go_is_a_loss_like_any_other() -> None:
    async def main() -> None:
        company = Company(4, rounds=4)
        await company.gathered(rounds=1)
        company[1].membership.leave("bye")
        await asyncio.sleep(0.05)
        company[1].crash()
        await company.ended()
        company.agree()
        assert company.survivors[0].outcomes[-1].members == 3

    simulate(main())


@pytest.mark.parametrize("victim", range(3))
def test_a_member_that_dies_at_the_end_does_not_keep_the_others(victim: int) -> None:
    async def main() -> None:
        company = Company(3, rounds=2)
        await company.gathered()
        await company.until(lambda: company[victim].sgd.state.round == 2)
        company[victim].crash()
        began = now()
        await company.ended()
        company.agree()
        assert now() - began < 4 * PATIENCE_S

    simulate(main())


def test_a_finished_peer_stays_until_its_newcomers_are_told() -> None:
    """Its change waits for its own record, on a disk that is busy."""

    async def main() -> None:
        company = Company(1)
        walker, change, disk = company[0], company[0].membership._change, asyncio.Event()
        step = walker.step

        async def then_changes() -> None:
            await step()
            if walker.sgd.period == 0:
                change.renew()

        walker.step = then_changes  # type: ignore[method-assign]
        await company.gathered(1)
        change._ledger.synced = disk.wait  # type: ignore[method-assign,assignment]
        await asyncio.sleep(3 * PATIENCE_S)
        assert (walker.sgd.period, walker.finished) == (0, False)
        disk.set()
        await company.ended()
        company.agree()

    simulate(main())
