"""Rounds under faults: whatever dies, whenever, all survivors go on with the same bits, or say why they cannot."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from simulated import PATIENCE_S, Company, Walker, no_complaints, simulate  # noqa: F401

from samovar.aggregation.periods.adacomm import AdaComm
from samovar.aggregation.schedules.known import SCHEDULES
from samovar.protocols.delivery.link import PeerLost
from samovar.protocols.local_sgd import Contribution
from samovar.protocols.members.membership import MembershipError, NoQuorum
from samovar.protocols.reduction import allreduce as allreduce_module
from samovar.protocols.reduction import reducer as reducer_module
from samovar.protocols.reduction.chunks import Chunk
from samovar.protocols.state import State


def started(company: Company) -> Callable[[], bool]:
    return lambda: all(walker.membership.view.started for walker in company.walkers)


def moved(walkers: list[Walker]) -> float:
    """By how much one round moves the common vector: the weighted mean of what these bring."""
    return sum(walker.weight * walker.stride for walker in walkers) / sum(walker.weight for walker in walkers)


def value(walker: Walker) -> float:
    return float(walker.sgd.state.vector[0])


# Without faults


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
def test_whose_part_is_late_is_named_by_those_to_whom_it_goes_and_by_nobody_else(slow: int, schedule: str) -> None:
    """Who only passes on what is late itself is not blamed for it."""
    company = Company(4, rounds=1, schedule=schedule, train_s=lambda index: 5.0 if index == slow else 1.0)
    simulate(company.run())
    named = {walker.outcomes[0].waited_for for walker in company.walkers if walker is not company[slow]} - {None}
    assert named <= {company[slow].id}
    assert named or schedule in ("naive", "double_tree"), "there some have no part that goes out by itself"


def test_a_long_run_keeps_nothing_of_past_rounds() -> None:
    company = simulate(Company(3, rounds=60, train_s=lambda index: 0.05).run())
    company.agree()
    for walker in company.walkers:
        verdicts, inbox = walker.sgd._verdicts, walker.sgd._inbox
        assert len(verdicts._commits) <= 2
        assert len(verdicts._votes) <= 2
        assert len(inbox._waiting) <= 2
        assert len(walker.membership._roster._waiting) <= 4


# A death


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
        (loss,) = walker.membership.losses
        assert (loss.peer, loss.address, loss.left) == (f"p{victim}", f"sim://p{victim}", False)
        assert "not heard of for 4 s" in loss.why
        assert "joins again by itself" in loss.advice
        assert company.died_s <= loss.since_s <= company.recovered_s


def test_the_mean_divides_by_who_contributed() -> None:
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
        company = Company(n, quorum=quorum, schedule=schedule)

        def crash() -> None:
            if started(company)():
                company[victim].crash()

        company.network.before[at] = crash
        company.start()
        await company.until(started(company))
        await company.ended()
        return company

    return simulate(main(), within_s=100)


def last_delivery(n: int, schedule: str) -> tuple[int, int]:
    """Numbers of deliveries: when all peers know that the run has started, and at its end."""

    async def main() -> tuple[int, int]:
        company = Company(n, schedule=schedule)
        company.start()
        while not started(company)():  # noqa: ASYNC110  # the world is watched from outside
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
        (3, "ring", 1),
        (3, "halving_doubling", 1),
        (4, "ring", 7),
        (4, "halving_doubling", 7),
        (5, "ring", 13),
        (5, "halving_doubling", 17),
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


@pytest.mark.parametrize("n", [4, 5])
def test_two_crashes_in_one_round_are_survived_while_a_majority_is_left(n: int) -> None:
    first, last = last_delivery(n, "ring")
    rng = random.Random(n)
    agreed = hopeless = 0
    for _ in range(40):

        async def main() -> Company:
            company = Company(n)
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
    assert agreed > 0
    assert (hopeless > 0) == (n == 4), "two of four are no majority"


def test_without_a_quorum_all_that_are_left_say_so_within_a_bound() -> None:
    async def main() -> tuple[Company, float]:
        company = Company(5, rounds=4)
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


# Splits


def assert_one_truth(company: Company) -> None:
    """No two peers ever committed different results for the same round."""
    results: dict[int, set[bytes]] = {}
    for walker in company.walkers:
        for outcome in walker.outcomes:
            results.setdefault(outcome.state.round, set()).add(outcome.state.vector.numpy().tobytes())
    assert {round: len(different) for round, different in results.items() if len(different) > 1} == {}


@pytest.mark.parametrize("minority", [(0, 1), (3, 4), (0, 4)])
def test_a_minority_never_commits(minority: tuple[int, int]) -> None:
    """2 | 3: the three go on, the two wait; when the split heals they join again and catch up."""

    async def main() -> Company:
        company = Company(5, rounds=8)
        company.start()
        await company.until(lambda: company[0].sgd.state.round == 1)
        await asyncio.sleep(0.5)
        few = [company[index] for index in minority]
        many = [walker for walker in company.walkers if walker not in few]
        company.part([walker.id for walker in few], [walker.id for walker in many])
        await company.until(lambda: all(walker.sgd.state.round >= 4 for walker in many))
        assert all(walker.sgd.state.round <= 2 for walker in few)
        stuck_at = [walker.sgd.state.round for walker in few]
        await asyncio.sleep(PATIENCE_S)
        assert [walker.sgd.state.round for walker in few] == stuck_at, "a minority commits nothing"
        company.heal()
        await company.until(lambda: all(walker.sgd.state.round >= 5 for walker in company.walkers))
        await company.ended()
        company.few = few
        return company

    company = simulate(main())
    company.agree()
    assert_one_truth(company)
    assert company.network.happened["cut"] > 0
    for walker in company.few:
        assert any(outcome.caught_up for outcome in walker.outcomes)
        assert not any(outcome.generation < 4 and outcome.state.round > 2 for outcome in walker.outcomes)
        assert walker.outcomes[-1].members == 5


def test_a_split_without_a_majority_waits_and_goes_on_when_it_heals() -> None:
    """2 | 2: nobody may decide anything; healed in time, all go on. Three who find each other first may do so without
    the fourth, who comes back."""

    async def main() -> Company:
        company = Company(4, rounds=3)
        company.start()
        await company.until(lambda: company[0].sgd.state.round == 1)
        company.part(["p0", "p2"], ["p1", "p3"])
        await asyncio.sleep(2.5 * PATIENCE_S)
        assert {walker.sgd.state.round for walker in company.walkers} == {1}
        company.heal()
        await company.ended()
        return company

    company = simulate(main())
    company.agree()
    assert_one_truth(company)
    assert len({loss.peer for walker in company.walkers for loss in walker.membership.losses}) <= 1


def test_a_stale_generation_is_refused_and_catches_up() -> None:
    """A peer that stood still while the others went on speaks from the past: it is told so, and returns."""

    async def main() -> Company:
        company = Company(4, rounds=8)
        company.start()
        await company.until(lambda: company[0].sgd.state.round == 1)
        company.part(["p2"], ["p0", "p1", "p3"])
        await company.until(lambda: company[0].sgd.state.round >= 3)
        company.heal()
        await company.ended()
        return company

    company = simulate(main())
    company.agree()
    assert_one_truth(company)
    assert sum(walker.membership.stale_refused for walker in company.walkers) > 0
    assert any(outcome.caught_up for outcome in company[2].outcomes)
    rounds = [outcome.state.round for outcome in company[2].outcomes]
    assert rounds == sorted(set(rounds)), "it went forward only"
    assert company[2].outcomes[-1].members == 4


# Broken peers


@pytest.mark.parametrize("field", ["vector", "loss", "learning_rate", "elapsed_s", "weight"])
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_contribution_that_is_not_finite_is_an_error_of_its_owner(field: str, poison: float) -> None:
    async def main() -> Company:
        company = Company(4)
        honest = company[1].brings

        def brings() -> Contribution:
            brought = honest()
            values = {name: getattr(brought, name) for name in Contribution.__slots__}
            values[field] = brought.vector.index_fill(0, torch.tensor([3]), poison) if field == "vector" else poison
            return Contribution(**values)

        company[1].brings = brings  # type: ignore[method-assign]
        return await company.run()

    company = simulate(main())
    assert isinstance(company[1].error, ValueError)
    assert company[1].sgd.state.round == 0
    company.agree([company[0], company[2], company[3]])
    assert torch.isfinite(company[0].sgd.state.vector).all()


def test_a_mean_that_is_not_finite_is_applied_by_nobody(monkeypatch) -> None:
    monkeypatch.setattr(Contribution, "check", lambda self: None)

    async def main() -> Company:
        company = Company(3)
        company[1].stride = float("inf")
        return await company.run()

    company = simulate(main())
    assert all(isinstance(walker.error, ValueError) for walker in company.walkers)
    assert {value(walker) for walker in company.walkers} == {0.0}
    assert {walker.sgd.state.round for walker in company.walkers} == {0}


def test_a_peer_that_sends_a_wrong_chunk_is_suspected_and_the_round_goes_on(monkeypatch) -> None:
    """Though it comes back at once, over and over: between two of its returns a round has its chance."""
    monkeypatch.setattr(allreduce_module, "Allreduce", Lying)
    company = simulate(Company(4, rounds=4).run())
    honest = [company[0], company[1], company[3]]
    company.agree(honest)
    assert value(company[0]) == pytest.approx(4 * moved(honest), rel=1e-5)
    losses = [loss for loss in company[3].membership.losses if loss.peer == "p2"]
    assert len(losses) > 1, "it came back to lie again"
    assert any("it sent" in loss.why and "were due" in loss.why for loss in losses)


class Lying(allreduce_module.Allreduce):
    """p2 sends what is not due."""

    def _send(self, way: Any) -> None:
        if self._endpoint.id == "p2":
            self._endpoint.offer(way.peer, Chunk(*self._turn, way.runs[0].step, 10**6, 1), bytes(4))
        else:
            super()._send(way)


def disagreeing(monkeypatch, *, different: dict[str, float]) -> None:
    """Let the machines of these peers add up wrongly, once."""
    honest = reducer_module.allreduce

    async def allreduce(endpoint, *args, **kwargs) -> torch.Tensor:
        total = await honest(endpoint, *args, **kwargs)
        if endpoint.id in different:
            total = total.clone()  # it may still be on its way to others
            total[0] += different.pop(endpoint.id)
        return total

    monkeypatch.setattr(reducer_module, "allreduce", allreduce)


@pytest.mark.parametrize(
    "different",
    [{"p1": 1.0}, {"p0": 1.0}, {"p0": 1.0, "p2": 1.0}, {"p0": 1.0, "p1": 2.0, "p2": 3.0}, {"p3": 1.0, "p2": 2.0}],
)
@pytest.mark.parametrize("n", [2, 3, 4])
def test_when_results_differ_one_of_them_is_everybodys(n: int, different: dict[str, float], monkeypatch) -> None:
    disagreeing(monkeypatch, different=dict(different))
    company = simulate(Company(n).run())
    company.agree()
    assert_one_truth(company)
    wrong = [peer for peer in different if int(peer[1:]) < n]
    if len(wrong) < n / 2:
        assert value(company[0]) == pytest.approx(2 * moved(company.walkers), rel=1e-5), "the one that most had"
        assert all(company[int(peer[1:])].outcomes[0].caught_up for peer in wrong)


# Everything at once


async def stormy_world(seed: int) -> Company:
    """Crashes, restarts, splits, one-way cuts, leaves and late joins at random; then all ways heal."""
    rng = random.Random(seed)
    n = rng.randint(3, 6)
    link = rng.choice(["10mbit,40ms", "100mbit,5ms", "1mbit,100ms"]) + rng.choice(["", "", ",5ms", ",40ms"])
    company = Company(
        n,
        rounds=rng.randint(3, 6),
        size=rng.choice([1, 10, 3000]),
        link=link,
        seed=seed,
        schedule=rng.choice(["ring", "halving_doubling"]),
        train_s=lambda index: rng.uniform(0.1, 2.0),
    )
    company.start()
    await company.until(started(company))
    lives, leaving = Counter[int](), []
    for _ in range(rng.randint(1, 4)):
        await asyncio.sleep(rng.choice([rng.uniform(0, 0.3), rng.uniform(0, 3), rng.uniform(0, 8)]))
        alive = [walker for walker in company.walkers if walker.task is not None and not walker.task.done()]
        if not alive:
            break
        one, another = rng.choice(alive), rng.choice(alive)
        fault = rng.choice(["crash", "two crashes", "restart", "partition", "cut", "heal", "leave", "join"])
        company.faults[fault] += 1
        if fault in ("crash", "restart", "two crashes"):
            one.crash()
        if fault == "two crashes" and another is not one:
            another.crash()
        if fault == "restart":
            await asyncio.sleep(rng.choice([0.01, rng.uniform(0, 6)]))
            if another is not one and another.task is not None and not another.task.done():
                lives[one.index] += 1
                company.add(one.index, another.id, life=lives[one.index])
        if fault == "partition":
            ids = rng.sample([walker.id for walker in alive], len(alive))
            half = rng.randint(0, len(ids))
            company.part(ids[:half], ids[half:])
        if fault == "cut":
            company.cut(one.id, another.id)
        if fault == "heal":
            company.heal()
        if fault == "leave":
            leaving.append(asyncio.ensure_future(one.leave()))
        if fault == "join" and len(company.walkers) < company.peers_max:
            company.add(max(walker.index for walker in company.walkers) + 1, one.id)
    await asyncio.sleep(rng.choice([0, rng.uniform(0, 20)]))
    company.heal()
    await company.ended()
    await asyncio.gather(*leaving)
    return company


def test_a_storm_never_splits_the_run_and_never_stalls_it() -> None:
    faults, ends = Counter[str](), Counter[str]()
    for seed in range(60):
        company = simulate(stormy_world(seed), within_s=400)
        assert_one_truth(company)
        finished = [walker for walker in company.walkers if walker.finished]
        assert len({walker.bits for walker in finished}) <= 1
        for walker in company.walkers:
            assert walker.error is None or isinstance(walker.error, MembershipError | PeerLost)
            ends["finished" if walker.finished else type(walker.error).__name__] += 1
        faults += company.faults
    assert min(faults[fault] for fault in ("crash", "two crashes", "restart", "partition", "cut", "leave", "join")) >= 3
    assert ends["finished"] > sum(ends.values()) / 2
    assert ends["NoQuorum"] > 0


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
