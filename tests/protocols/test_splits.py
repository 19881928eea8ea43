"""Rounds under splits, and under everything at once: a minority commits nothing, and comes back when they heal."""

import asyncio
import random
from collections import Counter

import pytest
from company import Company, assert_one_truth, started
from simulated import PATIENCE_S, no_complaints, now, simulate  # noqa: F401
from tiers import soaked

from samovar.protocols.link.link import PeerLost
from samovar.protocols.members.errors import MembershipError
from samovar.protocols.members.messages import Anew, Introduce, Propose
from samovar.protocols.wire.frames import decode
from samovar.sims.world.ways import Frame


@pytest.mark.parametrize("minority", [(0, 1), (3, 4), (0, 4)])
def test_a_minority_never_commits(minority: tuple[int, int]) -> None:
    """2 | 3: the three go on, the two wait; when the split heals they join again and catch up."""

    async def main() -> Company:
        company = Company(5, rounds=12)
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
    assert len({loss.peer for walker in company.walkers for loss in walker.membership.removals}) <= 1


def test_a_stale_generation_is_refused_and_catches_up() -> None:
    """A peer that stood still while the others went on speaks from the past: it is told so, and returns."""

    async def main() -> Company:
        company = Company(4, rounds=12)
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
    assert sum(walker.membership._outsiders.refused for walker in company.walkers) > 0
    assert any(outcome.caught_up for outcome in company[2].outcomes)
    rounds = [outcome.state.round for outcome in company[2].outcomes]
    assert rounds == sorted(set(rounds)), "it went forward only"
    assert company[2].outcomes[-1].members == 4


@pytest.mark.parametrize("held_up_s", [0.06, 0.5])
def test_a_farewell_that_comes_after_the_return_was_told_does_not_undo_the_return(held_up_s: float) -> None:
    """A peer that was away tells the coordinator that it joins anew, and a moment later another member introduces it
    there. Of the two messages, which come by different ways, either may come first. (The way to the coordinator is the
    slower one, so that another member is the contact.)"""

    async def main() -> None:
        company, heard = Company(4, rounds=40), list[type]()

        def see(frame: Frame, sent: bool) -> None:
            kind = type(decode(frame.header, len(frame.payload)).message)
            if sent and kind is Propose and (frame.sender, frame.to) == ("p2", "p0"):
                company.network.clog("p2", "p0", now() + held_up_s)  # this one, and all that follow
            if not sent and frame.to == "p0" and kind in (Anew, Introduce):
                heard.append(kind)

        await company.gathered(rounds=1)
        company.part(["p2"], ["p0", "p1", "p3"])
        await company.until(lambda: "p2" not in company[0].membership.view.ids)
        await asyncio.sleep(1.5 * PATIENCE_S)  # until the others no longer try to tell it so
        company.network.seen.append(see)
        company.heal()
        began_s = now()
        await company.until(lambda: company[2].membership.learns)
        assert now() - began_s < PATIENCE_S
        assert heard == ([Introduce, Anew] if held_up_s > 0.1 else [Anew, Introduce])
        await company.over()

    simulate(main())


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
        give_up_after_s=4 * PATIENCE_S,
    )
    company.start()
    await company.until(lambda: started(company))
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


@pytest.mark.parametrize("seeds", [30, soaked(60)])
def test_a_storm_never_splits_the_run_and_never_stalls_it(seeds: int) -> None:
    faults, ends = Counter[str](), Counter[str]()
    for seed in range(seeds):
        company = simulate(stormy_world(seed), within_s=400)
        assert_one_truth(company)
        finished = [walker for walker in company.walkers if walker.finished]
        assert len({walker.bits for walker in finished}) <= 1
        for walker in company.walkers:
            assert walker.error is None or isinstance(walker.error, MembershipError | PeerLost)
            ends["finished" if walker.finished else type(walker.error).__name__] += 1
        faults += company.faults
    assert (
        min(faults[fault] for fault in ("crash", "two crashes", "restart", "partition", "cut", "leave", "join"))
        >= seeds / 30
    )
    assert ends["finished"] > sum(ends.values()) / 2
    assert ends["NoQuorum"] > 0
