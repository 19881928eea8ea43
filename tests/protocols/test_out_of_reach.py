"""Members out of reach, resumed runs, and the waits for those that do not come back."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from company import Company, Walker, started
from scenes import scene
from simulated import LINK, PATIENCE_S, endpoint_in, layout_of, no_complaints, now, simulate  # noqa: F401

from samovar.protocols.local_sgd.rounds import Contribution
from samovar.protocols.members.errors import NoQuorum


def test_a_run_is_resumed_from_the_only_checkpoint_that_is_ahead_or_without_it() -> None:
    """Its holder may even go while the others fetch it: then all go on from what they have."""
    for victim in (3, 1):

        async def play(victim: int = victim) -> Company:
            company = Company(4, rounds=42, size=100_000, link="10mbit,40ms", founders=4)
            for walker in company.walkers:
                had = 40 if walker.index == 1 else 30
                state = replace(walker.sgd.state, round=had, step=10 * had)
                walker.sgd.state = replace(state, vector=state.vector + float(had))
            company.start()
            await company.until(lambda: started(company))
            await asyncio.sleep(0.2)
            assert {walker.sgd.state.round for walker in company.walkers} == {30, 40}
            company[victim].crash()
            await company.ended()
            return company

        company = scene(play)
        company.agree()
        first = min(outcome.state.round for outcome in company[0].outcomes if not outcome.caught_up)
        assert first == (41 if victim == 3 else 31)


def test_members_out_of_reach_are_waited_for_and_named_until_they_are_back() -> None:
    async def play() -> tuple[Company, list[str]]:
        company = Company(4, rounds=20, train_s=lambda index: 1.0, give_up_after_s=None)
        await company.gathered(5)
        told: list[str] = []
        for walker in company.walkers:
            walker.membership.on_waiting.append(told.append)
        company.part(["p0"], ["p1"], ["p2"], ["p3"])
        await asyncio.sleep(100)
        assert not any(walker.error for walker in company.walkers)
        company.heal()
        await company.ended()
        return company, told

    company, told = scene(play)
    company.agree()
    assert company.network.happened["cut"] > 0
    alone = [why for why in told if "only 1 of 4 peers answer" in why]
    assert any("p1, p2, p3 not" in why for why in alone)
    assert 8 <= len(alone) <= 16, "each of them every 30 s"


def test_the_wait_for_members_out_of_reach_can_be_limited() -> None:
    async def play() -> Company:
        company = Company(4, rounds=20, train_s=lambda index: 1.0, give_up_after_s=20.0)
        await company.gathered(5)
        company.part(["p0"], ["p1"], ["p2"], ["p3"])
        await company.ended()
        return company

    company = scene(play)
    assert all(isinstance(walker.error, NoQuorum) for walker in company.walkers)


def test_members_that_were_seen_to_end_are_not_waited_for() -> None:
    """Three of four were seen to end: nobody can come back."""

    async def play() -> tuple[Company, float]:
        company = Company(4, rounds=20, train_s=lambda index: 1.0)
        await company.gathered(5)
        for index in (1, 2, 3):
            company[index].crash()
            company[0].endpoint.gone(f"p{index}", "its process was killed")
        began = now()
        await company.ended()
        return company, now() - began

    company, took_s = scene(play)
    assert isinstance(company[0].error, NoQuorum)
    assert took_s < 2 * PATIENCE_S


def test_a_loss_below_zero_is_a_loss_like_others() -> None:
    """The weighted mean of the peers' losses may be anything."""

    async def play() -> Company:
        company = Company(3, rounds=4)
        for walker in company.walkers:
            walker.brings = lossless(walker)  # type: ignore[method-assign]
        return await company.run()

    def lossless(walker: Walker) -> Callable[[], Contribution]:
        usual = walker.brings
        return lambda: usual()._replace(loss=-3.5)

    company = scene(play)
    company.agree()
    assert company[0].outcomes[-1].loss == pytest.approx(-3.5)
