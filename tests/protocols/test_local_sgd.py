"""Rounds: all commit the same bits, the mean is right, and who was waited for is told."""

import pytest
import torch
from company import Company, moved, value
from simulated import no_complaints, simulate  # noqa: F401

from samovar.aggregation.periods.adacomm import AdaComm
from samovar.aggregation.schedules.registry import SCHEDULES
from samovar.protocols.local_sgd.state import State


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("schedule", ["ring", "halving_doubling"])
def test_all_commit_the_same_bits_and_the_mean_is_right(n: int, schedule: str) -> None:
    company = simulate(Company(n, rounds=3, schedule=schedule).run())
    company.agree()
    assert value(company[0]) == pytest.approx(3 * moved(company.walkers), rel=1e-5)
    for walker in company.walkers:
        assert [outcome.state.round for outcome in walker.outcomes] == [1, 2, 3]
        assert [outcome.members for outcome in walker.outcomes] == [n] * 3
        assert not any(outcome.caught_up for outcome in walker.outcomes)
        assert walker.sgd.state.step == 30
        assert {outcome.loss for outcome in walker.outcomes} == {o.loss for o in company[0].outcomes}


def test_the_last_round_is_as_short_as_the_run_demands() -> None:
    async def main() -> Company:
        company = Company(2)
        company.steps = 25
        company.walkers = [company.walker(index) for index in range(2)]
        return await company.run()

    company = simulate(main())
    company.agree()
    assert [outcome.state.step for outcome in company[0].outcomes] == [10, 20, 25]


def test_a_peer_of_weight_zero_follows_and_changes_nothing() -> None:
    async def main() -> Company:
        company = Company(3)
        company[2].weight, company[2].stride = 0.0, float("nan")
        return await company.run()

    company = simulate(main())
    company.agree()
    assert value(company[0]) == pytest.approx(2 * moved(company.walkers[:2]), rel=1e-5)


def test_every_peer_agrees_on_the_period() -> None:
    """AdaComm decides from numbers that ride along in the round, so all choose the same without a word."""
    company = Company(4, rounds=12, period=AdaComm(initial=10, block_s=2.0, rounds_min=1))
    simulate(company.run())
    company.agree()
    periods = [[outcome.state.period for outcome in walker.outcomes] for walker in company.walkers]
    assert all(period == periods[0] for period in periods)
    assert len({period.period for period in periods[0]}) >= 3, "it did change"


@pytest.mark.parametrize("slow", range(4))
def test_time_spent_waiting_for_a_slow_peer_is_told_from_the_transfer(slow: int) -> None:
    """Wherever in the ring it stands: all but itself wait, and nobody has much to transfer."""
    company = simulate(Company(4, rounds=1, train_s=lambda index: 5.0 if index == slow else 1.0).run())
    for walker in company.walkers:
        (outcome,) = walker.outcomes
        assert outcome.wait_s == pytest.approx(0.0 if walker is company[slow] else 4.0, abs=0.5)
        assert outcome.transfer_s < 0.2


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("slow", range(4))
def test_the_owner_of_a_late_part_is_named_and_no_other_peer(slow: int, schedule: str) -> None:
    """A peer that only passes on what is late itself is not blamed for it."""
    company = Company(4, rounds=1, schedule=schedule, train_s=lambda index: 5.0 if index == slow else 1.0)
    simulate(company.run())
    named = {walker.outcomes[0].waited_for for walker in company.walkers if walker is not company[slow]} - {None}
    assert named <= {company[slow].id}
    assert named or schedule in ("naive", "double_tree"), "there some have no part that goes out by itself"


def test_a_long_run_keeps_nothing_of_past_rounds() -> None:
    company = simulate(Company(3, rounds=60, train_s=lambda index: 0.05).run())
    company.agree()
    for walker in company.walkers:
        verdicts, inbox = walker.sgd._verdicts, walker.sgd._reducer.inbox
        assert len(verdicts._commits) <= 2
        assert len(verdicts._votes) <= 2
        assert len(inbox._waiting) <= 2
        assert len(walker.membership._roster._waiting) <= 4


def test_a_state_is_never_written_to() -> None:
    """What a donor hands out and what the trainer started from must not change under them."""

    async def main() -> tuple[Company, list[tuple[State, torch.Tensor]]]:
        company, seen = Company(3, rounds=4), []
        company.start()
        for round in range(4):
            await company.until(lambda round=round: company[0].sgd.state.round >= round)
            seen += [(walker.sgd.state, walker.sgd.state.vector.clone()) for walker in company.walkers]
        await company.ended()
        return company, seen

    company, seen = simulate(main())
    company.agree()
    assert all(torch.equal(state.vector, copy) for state, copy in seen)
