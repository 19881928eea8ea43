"""The meter: each moment of a round is compute, waiting or transfer, however many sums are under way."""

import asyncio

import pytest
from company import Company
from simulated import no_complaints, simulate  # noqa: F401

from samovar.aggregation.vector import Part
from samovar.protocols.meter import Meter
from samovar.sims.world.loop import run_virtual

LATENCY_S = 0.25


def nobody() -> list[str]:
    return []


async def a_sum(meter: Meter, start: float, still: tuple[float, float], end: float) -> None:
    await asyncio.sleep(start)
    with meter.summing():
        await asyncio.sleep(still[0] - start)
        meter.stall_begins(nobody)
        await asyncio.sleep(still[1] - still[0])
        meter.stall_ends(nobody)
        await asyncio.sleep(end - still[1])


@pytest.mark.parametrize(
    ("ready_s", "seconds"),
    [
        (0.0, (0.0, 3.0, 7.0)),  # the first alone stands from 1 to 2, both from 3 to 5
        (4.0, (4.0, 1.0, 5.0)),
        (10.0, (10.0, 0.0, 0.0)),
    ],
)
def test_sums_that_are_under_way_at_once_wait_only_while_all_stand_still(
    ready_s: float, seconds: tuple[float, float, float]
) -> None:
    async def main() -> tuple[float, float, float]:
        meter = Meter()
        ready = meter.begin(computing=ready_s > 0)
        asyncio.get_running_loop().call_later(ready_s, ready)
        await asyncio.gather(a_sum(meter, 0.0, (1.0, 5.0), 9.0), a_sum(meter, 2.0, (3.0, 6.0), 10.0))
        meter.read()
        return meter.compute_s, meter.wait_s, meter.transfer_s

    assert run_virtual(main()) == seconds


def test_the_transfer_of_a_failed_sum_counts_as_wait() -> None:
    async def main() -> list[float]:
        meter = Meter()
        meter.begin(computing=True)()
        await asyncio.sleep(1)
        meter.read()
        before_s = meter.transfer_s
        await asyncio.sleep(2)
        meter.count_as_wait(before_s)
        with meter.unsettled():
            await asyncio.sleep(4)
        meter.read()
        return [meter.compute_s, meter.wait_s, meter.transfer_s]

    assert run_virtual(main()) == [0.0, 6.0, 1.0]


def test_a_round_begins_at_zero_and_an_old_contribution_does_not_end_its_compute() -> None:
    async def main() -> list[float]:
        meter = Meter()
        late = meter.begin(computing=True)
        await asyncio.sleep(4)
        ready = meter.begin(computing=True)
        await asyncio.sleep(8)
        late()
        await asyncio.sleep(16)
        ready()
        return [meter.compute_s, meter.wait_s, meter.transfer_s]

    assert run_virtual(main()) == [24.0, 0.0, 0.0]


def test_a_round_of_buckets_is_told_apart_to_the_second() -> None:
    """The second peer begins 2 s later and has each of its four buckets half a second after the one before."""
    buckets = [Part(30, 40), Part(20, 30), Part(10, 20), Part(0, 10)]
    company = Company(
        2, rounds=1, size=40, buckets=buckets, link=f"1gbit,{LATENCY_S}s", train_s=lambda index: 1.0 + 2.0 * index
    )
    simulate(company.run())
    company.agree()
    first, second = (walker.outcomes[0] for walker in company.walkers)
    assert (first.compute_s, second.compute_s) == (pytest.approx(1.0), pytest.approx(3.0))
    # The other hears that they begin a latency later, is ready 4 s later, and its last bucket is a latency on its way.
    assert first.wait_s == pytest.approx(4.0 + 2 * LATENCY_S, abs=0.001)
    # Its last bucket has to go there, and what it is summed up to has to come back.
    assert second.wait_s == pytest.approx(2 * LATENCY_S, abs=0.001)
    assert max(first.transfer_s, second.transfer_s) <= 2 * LATENCY_S + 0.001, "the verdict"
