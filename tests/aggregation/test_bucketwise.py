"""The mean bucket by bucket: what is not there yet is never sent, and a crash in between decides the whole round."""

import asyncio

import pytest
import torch
from company import Company
from simulated import no_complaints, simulate  # noqa: F401
from tiers import one_in

from samovar.aggregation.vector import Part

SIZE = 3000
BUCKETS = [Part(2500, 3000), Part(900, 2500), Part(0, 900)]
SCHEDULES = ("ring", "halving_doubling", "sharded", "double_tree")
schedules = pytest.mark.parametrize("schedule", SCHEDULES)


def company(n: int, schedule: str, *, bucketwise: bool = True) -> Company:
    return Company(n, size=SIZE, schedule=schedule, buckets=BUCKETS if bucketwise else ())


@schedules
def test_the_bucketwise_mean_is_the_mean_of_the_whole_vector(schedule: str) -> None:
    ended = [simulate(company(4, schedule, bucketwise=how).run()) for how in (True, False)]
    one, other = (torch.frombuffer(bytearray(each.agree()), dtype=torch.float32) for each in ended)
    assert torch.allclose(one, other, rtol=1e-6)
    assert one.unique().numel() == 1


@pytest.mark.parametrize("schedule", one_in(2, SCHEDULES))
def test_a_crash_among_the_buckets_leaves_all_of_a_round_or_nothing(schedule: str) -> None:
    last = simulate(company(4, schedule).run()).network.delivered

    async def crashing(event: int) -> Company:
        made = company(4, schedule)
        made.network.before[event] = made[2].crash
        return await made.run()

    for event in range(40, last - 10, last // 12):
        made = simulate(crashing(event))
        assert made.crashed == {2}
        made.agree()
        vector = made[0].sgd.state.vector
        assert vector.unique().numel() == 1, "buckets of different rounds, or of different peers"


def test_the_first_bucket_is_summed_before_the_last_is_there() -> None:
    async def main() -> tuple[float, float]:
        slow = Company(2, rounds=1, size=SIZE, buckets=BUCKETS, link="1mbit,100ms", train_s=lambda index: 4.0)
        whole = Company(2, rounds=1, size=SIZE, link="1mbit,100ms", train_s=lambda index: 4.0)
        return await ended_at(slow), await ended_at(whole)

    bucketwise_s, whole_s = simulate(main())
    assert bucketwise_s < 3.0 + whole_s, "3 s pass until the last bucket is there, in which the others have gone"


async def ended_at(made: Company) -> float:
    """Seconds until its only round was over."""
    began = asyncio.get_running_loop().time()
    made.start()
    await made.until(lambda: made[0].sgd.state.round == 1)
    took_s = asyncio.get_running_loop().time() - began
    await made.ended()
    return took_s
