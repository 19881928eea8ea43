"""Rounds under deaths: whoever dies, whenever, all survivors go on with the same bits, or say why they cannot."""

import asyncio
import random
from collections import Counter

import pytest
from company import Company, moved, started, value
from simulated import PATIENCE_S, no_complaints, simulate  # noqa: F401
from tiers import soaked

from samovar.protocols.members.errors import NoQuorum


@pytest.mark.parametrize("victim", range(4))
def test_a_killed_peer_never_stalls_the_round(victim: int) -> None:
    async def main() -> Company:
        company = Company(4, rounds=4)
        company.start()
        await company.until(lambda: company[1].sgd.state.round == 1)
        await asyncio.sleep(0.9)
        company[victim].crash()
        company.died_s = asyncio.get_running_loop().time()
        await company.until(lambda: all(walker.sgd.state.round == 2 for walker in company.survivors))
        company.recovered_s = asyncio.get_running_loop().time()
        await company.ended()
        return company

    company = simulate(main())
    company.agree()
    assert company.recovered_s - company.died_s < 2 * PATIENCE_S
    assert {walker.membership.view.generation for walker in company.survivors} == {4}
    for walker in company.survivors:
        (loss,) = walker.membership.removals
        assert (loss.peer, loss.address, loss.left) == (f"p{victim}", f"sim://p{victim}", False)
        assert "not heard of for 4 s" in loss.why
        assert "joins again by itself" in loss.advice
        assert company.died_s <= loss.since_s <= company.recovered_s


def test_the_mean_divides_by_the_contributors_alone() -> None:
    async def main() -> Company:
        company = Company(4, rounds=3)
        company.start()
        await company.until(lambda: company[0].sgd.state.round == 1)
        company[2].crash()
        await company.ended()
        return company

    company = simulate(main())
    company.agree()
    rest = [company[0], company[1], company[3]]
    assert value(company[0]) == pytest.approx(moved(company.walkers) + 2 * moved(rest), rel=1e-5)


def crashed_at(n: int, victim: int, at: int, quorum: int | None, schedule: str) -> Company:
    async def main() -> Company:
        company = Company(n, quorum=quorum, schedule=schedule, give_up_after_s=4 * PATIENCE_S)

        def crash() -> None:
            if started(company):
                company[victim].crash()

        company.network.before[at] = crash
        company.start()
        await company.until(lambda: started(company))
        await company.ended()
        return company

    return simulate(main(), within_s=100)


def last_delivery(n: int, schedule: str) -> tuple[int, int]:
    """Numbers of deliveries: when all peers know that the run has started, and at its end."""

    async def main() -> tuple[int, int]:
        company = Company(n, schedule=schedule)
        company.start()
        while not started(company):  # noqa: ASYNC110  # the world is watched from outside
            await asyncio.sleep(0.001)
        first = company.network.delivered
        await company.ended()
        company.agree()
        return first, company.network.delivered

    return simulate(main())


@pytest.mark.parametrize(
    ("n", "schedule", "every"),
    [
        (2, "ring", 1),
        (3, "ring", 11),
        soaked(3, "ring", 1),
        soaked(3, "halving_doubling", 1),
        soaked(4, "ring", 7),
        (4, "halving_doubling", 23),
        soaked(4, "halving_doubling", 7),
        soaked(5, "ring", 13),
        soaked(5, "halving_doubling", 17),
    ],
)
def test_a_crash_at_any_delivery_decides_the_round(n: int, schedule: str, every: int) -> None:
    """Crash each peer at every (or every few) of the messages of a run: nobody hangs, all that are left agree."""
    first, last = last_delivery(n, schedule)
    assert last - first > 10 * n
    crashes, rounds_survived, ends = 0, Counter[int](), Counter[str]()
    for victim in range(n):
        for at in range(first + 1 + victim % every, last + 1, every):
            company = crashed_at(n, victim, at, None, schedule)
            if victim not in company.crashed:
                continue
            crashes += 1
            rounds_survived[company[victim].sgd.state.round] += 1
            survivors = company.survivors
            assert len(survivors) == n - 1
            if n > 2 or not survivors[0].error:
                company.agree()
            else:
                assert isinstance(survivors[0].error, NoQuorum)
                assert "1 of 2 peers are left, 2 are needed to go on" in str(survivors[0].error)
            ends[type(survivors[0].error).__name__] += 1
    assert crashes >= (last - first) * n // every * 0.8
    assert set(rounds_survived) == {0, 1, 2}, "they did strike in every round, and at the end"
    assert n > 2 or ends["NoQuorum"] > ends["NoneType"] > 0


def test_with_a_quorum_of_one_the_survivor_of_two_goes_on() -> None:
    first, last = last_delivery(2, "ring")
    alone = 0
    for victim in range(2):
        for at in range(first + 1, last + 1, 2):
            company = crashed_at(2, victim, at, 1, "ring")
            company.agree()
            alone += company.survivors[0].outcomes[-1].members == 1
    assert alone > 5


@pytest.mark.parametrize("tries", [10, soaked(40)])
@pytest.mark.parametrize("n", [4, 5])
def test_two_crashes_in_one_round_are_survived_while_a_majority_is_left(n: int, tries: int) -> None:
    first, last = last_delivery(n, "ring")
    rng = random.Random(n)
    agreed = hopeless = 0
    for _ in range(tries):

        async def main() -> Company:
            company = Company(n, give_up_after_s=4 * PATIENCE_S)
            victims = rng.sample(range(n), 2)
            at = rng.randrange(first + 1, last)
            company.network.before[at] = company[victims[0]].crash
            company.network.before[min(last, at + rng.choice([1, 2, 5, 20, 40]))] = company[victims[1]].crash
            return await company.run()

        company = simulate(main(), within_s=150)
        if n == 5 or not any(walker.error for walker in company.survivors):
            company.agree()
            agreed += 1
        else:
            assert all(isinstance(walker.error, NoQuorum) for walker in company.survivors)
            hopeless += 1
    assert agreed > 0 or (n == 4 and tries < 40), "of four only if the second dies when all is over"
    assert (hopeless > 0) == (n == 4), "two of four are no majority"


def test_survivors_without_a_quorum_say_so_within_a_bound() -> None:
    async def main() -> tuple[Company, float]:
        company = Company(5, rounds=4, give_up_after_s=4 * PATIENCE_S)
        company.start()
        await company.until(lambda: company[0].sgd.state.round == 1)
        for victim in (0, 2, 4):
            company[victim].crash()
        died_s = asyncio.get_running_loop().time()
        await company.ended()
        return company, asyncio.get_running_loop().time() - died_s

    company, took_s = simulate(main())
    assert [type(walker.error) for walker in company.survivors] == [NoQuorum, NoQuorum]
    assert any("2 of 5 peers are left, 3 are needed to go on" in str(w.error) for w in company.survivors)
    assert all("--quorum" in str(walker.error) for walker in company.survivors)
    assert took_s < 12 * PATIENCE_S
    assert all(walker.sgd.state.round == 1 for walker in company.survivors), "nothing was committed without a majority"
