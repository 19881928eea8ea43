"""Predicted times are those of the closed formulas where there are any, and else bounded by the links."""

import math
import time
from collections.abc import Callable
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samovar.aggregation.schedules.choice import UNKNOWN, LinkCosts, fastest
from samovar.aggregation.schedules.cost import Links, choose, predict, timeline
from samovar.aggregation.schedules.hierarchical import Hierarchical
from samovar.aggregation.schedules.registry import SCHEDULES
from samovar.aggregation.schedules.schedule import Schedule
from samovar.aggregation.schedules.shares import bottleneck, shares
from samovar.aggregation.schedules.verify import prove

ALPHA_S, BPS = 50e-6, 1.25e9  # 10 Gbit/s
BETA, GAMMA = 1 / BPS, 1e-10
WORLDS = (2, 3, 5, 7, 8, 13, 16, 32, 33, 64)
POWERS = (2, 4, 8, 16, 32, 64)
SIZES = (10_000, 1_000_000, 100_000_000)
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)


def overlapping(p: int, gamma_s_per_byte: float = 0.0) -> Links:
    return Links.uniform(p, alpha_s=ALPHA_S, Bps=BPS, gamma_s_per_byte=gamma_s_per_byte)


def queueing(p: int, gamma_s_per_byte: float = 0.0) -> Links:
    """Every message keeps its ports busy for alpha, as the closed formulas have it."""
    return Links.uniform(p, alpha_s=0.0, Bps=BPS, gamma_s_per_byte=gamma_s_per_byte, overhead_s=ALPHA_S)


def naive(p: int, n: int) -> float:
    return 2 * (p - 1) * (ALPHA_S + n * BETA)


def sharded(p: int, n: int) -> float:
    return 2 * (p - 1) * (ALPHA_S + n / p * BETA)


def ring(p: int, n: int, gamma: float = 0.0) -> float:
    return 2 * (p - 1) * (ALPHA_S + n / p * BETA) + (p - 1) / p * n * gamma


def halving_doubling(p: int, n: int, gamma: float = 0.0) -> float:
    return 2 * math.log2(p) * ALPHA_S + 2 * (p - 1) / p * n * BETA + (p - 1) / p * n * gamma


def hierarchical(q: int, h: int, n: int, gamma: float = 0.0) -> float:
    inside = 2 * (q - 1) * (ALPHA_S + n / q * BETA)
    return inside + 2 * (h - 1) * (ALPHA_S + n / (q * h) * BETA) + (q * h - 1) / (q * h) * n * gamma


@pytest.mark.parametrize(
    ("name", "n", "wanted_ms"),
    [
        ("naive", 10_000, 7.31),
        ("ring", 10_000, 6.32),
        ("halving_doubling", 10_000, 0.62),
        ("naive", 100_000_000, 10086),
        ("ring", 100_000_000, 163.8),
        ("halving_doubling", 100_000_000, 158.1),
    ],
)
def test_64_peers_at_50_us_and_10_gbit_take_the_times_of_the_literature(name: str, n: int, wanted_ms: float) -> None:
    assert predict(SCHEDULES[name], queueing(64), n, n) == pytest.approx(wanted_ms / 1e3, rel=0.01)


@pytest.mark.parametrize("links", [overlapping, queueing])
@pytest.mark.parametrize(("formula", "worlds"), [(ring, WORLDS), (halving_doubling, POWERS)])
def test_one_message_at_a_time_costs_the_closed_formula(
    formula: Callable[[int, int, float], float], worlds: tuple[int, ...], links: Callable[[int, float], Links]
) -> None:
    for p, n, gamma in product(worlds, SIZES, (0.0, GAMMA)):
        got = predict(SCHEDULES[formula.__name__], links(p, gamma), n, n)
        assert got == pytest.approx(formula(p, n, gamma), rel=0.01), (p, n, gamma)


@pytest.mark.parametrize("formula", [naive, sharded])
def test_many_messages_to_one_queue_up_but_overlap_on_their_way(formula: Callable[[int, int], float]) -> None:
    for p, n in product(WORLDS, SIZES):
        schedule = SCHEDULES[formula.__name__]
        assert predict(schedule, queueing(p), n, n) == pytest.approx(formula(p, n), rel=0.01), (p, n)
        overlapped = formula(p, n) - 2 * (p - 1) * ALPHA_S + 2 * ALPHA_S
        assert predict(schedule, overlapping(p), n, n) == pytest.approx(overlapped, rel=0.01), (p, n)


@pytest.mark.parametrize("name", ["naive", "sharded"])
def test_additions_go_on_while_the_next_message_comes_in(name: str) -> None:
    for p, n in product(WORLDS, SIZES):
        none, some = (predict(SCHEDULES[name], overlapping(p, gamma), n, n) for gamma in (0.0, GAMMA))
        size = n / SCHEDULES[name].parts(p)
        assert none + 0.99 * size * GAMMA <= some <= none + (p - 1) * 1.01 * size * GAMMA, (p, n)


@pytest.mark.parametrize(("q", "h"), [(2, 2), (4, 2), (2, 4), (3, 5), (8, 4), (8, 8), (1, 6), (6, 1)])
def test_groups_cost_their_own_rings_and_the_rings_across(q: int, h: int) -> None:
    for n, gamma in product(SIZES, (0.0, GAMMA)):
        got = predict(Hierarchical(q), overlapping(q * h, gamma), n, n)
        assert got == pytest.approx(hierarchical(q, h, n, gamma), rel=0.01), (n, gamma)


@pytest.mark.parametrize("p", [8, 16, 31, 32, 64, 100])
def test_the_double_tree_is_a_pipeline_of_blocks(p: int) -> None:
    for n, k in product((10**7, 10**8, 10**9), (32, 100, 300)):
        formula = 2 * (math.log2(p) + k) * (ALPHA_S + n * BETA / k)
        assert predict(SCHEDULES["double_tree"], queueing(p), n, math.ceil(n / k)) == pytest.approx(formula, rel=0.25)


@every_schedule
def test_smaller_chunks_are_never_slower_if_they_cost_nothing(schedule: Schedule) -> None:
    for p in (2, 5, 8, 12):
        times = [predict(schedule, overlapping(p), 1 << 20, 1 << chunk) for chunk in (20, 16, 12)]
        assert all(later <= sooner * 1.01 for sooner, later in pairwise(times)), times


@every_schedule
def test_every_message_is_sent_and_no_port_carries_more_than_it_can(schedule: Schedule) -> None:
    for p in (1, 2, 7, 8, 12):
        n = 1000 * schedule.parts(p)
        links, cost = overlapping(p), prove(schedule, p)
        found = list(timeline(schedule, links, n, 512))
        for rank in range(p):
            mine = [sent for sent in found if sent.sender == rank]
            assert len(mine) == cost.messages[rank]
            assert sum(sent.bytes for sent in mine) == 1000 * cost.parts_sent[rank]
            for ends, Bps in ((mine, links.up_Bps), ([s for s in found if s.receiver == rank], links.down_Bps)):
                busy_s = sum(sent.bytes for sent in ends) / Bps[rank]
                assert busy_s <= max((sent.end_s for sent in ends), default=0.0)
        assert all(0 <= s.step < cost.steps and s.start_s + s.bytes * BETA + ALPHA_S <= s.end_s * 1.001 for s in found)


times_s, rates = st.floats(0.0, 0.1), st.floats(1e5, 1e9)


@every_schedule
@settings(deadline=None, max_examples=40)
@given(data=st.data(), p=st.integers(1, 9), chunk=st.sampled_from([100, 1000, 10**6]))
def test_no_link_is_better_for_being_worse(schedule: Schedule, data: st.DataObject, p: int, chunk: int) -> None:
    one_each = [data.draw(st.lists(kind, min_size=p, max_size=p)) for kind in (times_s, rates, rates)]
    good = Links(alpha_s=tuple(one_each[0]), up_Bps=tuple(one_each[1]), down_Bps=tuple(one_each[2]))
    worse = [data.draw(st.lists(st.floats(1.0, 10.0), min_size=p, max_size=p)) for _ in range(3)]
    bad = Links(
        alpha_s=tuple(map(float.__mul__, good.alpha_s, worse[0])),
        up_Bps=tuple(map(float.__truediv__, good.up_Bps, worse[1])),
        down_Bps=tuple(map(float.__truediv__, good.down_Bps, worse[2])),
        gamma_s_per_byte=1e-9,
        overhead_s=1e-5,
    )
    assert predict(schedule, good, 5000, chunk) <= predict(schedule, bad, 5000, chunk) * (1 + 1e-9)


def test_a_fast_server_serves_many_slow_clients_at_once() -> None:
    n, slow = 10**6, 1e6
    links = Links(alpha_s=(0.0,) * 11, up_Bps=(100 * slow,) + (slow,) * 10, down_Bps=(100 * slow,) + (slow,) * 10)
    assert predict(SCHEDULES["naive"], links, n, n) == pytest.approx(2 * n / slow, rel=0.25)


def test_unequal_parts_make_the_slowest_link_the_least_busy() -> None:
    bandwidths, has_data, n = [10e6] * 2 + [0.1e6] * 6, [True] * 8, 10**7
    links = Links(alpha_s=(0.0,) * 8, up_Bps=tuple(bandwidths), down_Bps=tuple(bandwidths))
    share = shares(bandwidths, has_data)
    choice = choose([SCHEDULES["sharded"]], links, n, 1000, share)
    assert choice.best.shares == share
    assert choice.best.seconds == pytest.approx(n * bottleneck(share, bandwidths, has_data), rel=0.05)
    assert choice.best.seconds == pytest.approx(n * 10.0 / 1e6, rel=0.05)
    assert predict(SCHEDULES["sharded"], links, n, 1000) == pytest.approx(n * 17.5 / 1e6, rel=0.05)


def test_parts_without_a_byte_are_not_sent() -> None:
    found = list(timeline(SCHEDULES["sharded"], overlapping(4), 100, 1000, (1, 1, 0, 0)))
    assert {sent.receiver for sent in found if sent.step == 0} == {0, 1}
    assert {sent.sender for sent in found if sent.step == 1} == {0, 1}
    assert predict(SCHEDULES["ring"], overlapping(4), 0, 1000) == 0.0


def test_the_choice_is_the_fastest_by_the_closed_formulas() -> None:
    formulas = (naive, ring, halving_doubling)
    for p, n in product((4, 8, 16, 32, 64), (10**3, 10**5, 10**6, 10**7, 10**9)):
        choice = choose([SCHEDULES[formula.__name__] for formula in formulas], queueing(p), n, n)
        seconds = {formula.__name__: formula(p, n) for formula in formulas}
        assert seconds[choice.best.schedule.name] == pytest.approx(min(seconds.values()), rel=0.01)
        assert choice.best.seconds == min(prediction.seconds for prediction in choice.predictions)
        assert [prediction.schedule.name for prediction in choice.predictions] == list(seconds)


def test_a_prediction_for_32_peers_is_there_at_once() -> None:
    links = Links.uniform(32, alpha_s=ALPHA_S, Bps=BPS, gamma_s_per_byte=GAMMA, overhead_s=1e-6)
    for schedule in SCHEDULES.values():
        took = []
        for _ in range(4):
            began = time.process_time()
            predict(schedule, links, 10**8, 1 << 18)
            took.append(time.process_time() - began)
        assert min(took) < 0.05, schedule.name


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"alpha_s": (), "up_Bps": (), "down_Bps": ()}, "one rank at least"),
        ({"alpha_s": (0.0, 0.0), "up_Bps": (1.0,), "down_Bps": (1.0,)}, "every rank has one"),
        ({"alpha_s": (-1.0,), "up_Bps": (1.0,), "down_Bps": (1.0,)}, "times must be"),
        ({"alpha_s": (0.0,), "up_Bps": (1.0,), "down_Bps": (1.0,), "overhead_s": math.nan}, "times must be"),
        ({"alpha_s": (0.0,), "up_Bps": (0.0,), "down_Bps": (1.0,)}, "rates must be"),
        ({"alpha_s": (0.0,), "up_Bps": (1.0,), "down_Bps": (math.inf,)}, "rates must be"),
    ],
)
def test_links_that_cannot_be_are_refused(arguments: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Links(**arguments)


def test_nothing_to_choose_from_and_no_chunk_to_send_in_are_refused() -> None:
    with pytest.raises(ValueError, match="no schedule"):
        choose([], overlapping(2), 10, 10)
    with pytest.raises(ValueError, match="in chunks of 0"):
        predict(SCHEDULES["ring"], overlapping(2), 10, 0)


def test_the_fastest_schedule_follows_the_costs_of_the_links() -> None:
    every = tuple(SCHEDULES.values())
    slow, quick = LinkCosts(0.2, 1e-7), LinkCosts(1e-5, 1e-7)
    assert len({fastest(every, costs, 8, size).name for costs in (slow, quick) for size in (1000, 10**8)}) > 1
    for costs in (slow, quick):
        for size in (1000, 10**6, 10**8):
            links = Links.uniform(
                8, alpha_s=costs.alpha_s, Bps=1 / costs.s_per_byte, gamma_s_per_byte=1e-10, overhead_s=1e-4
            )
            chosen = fastest(every, costs, 8, size)
            best = min(predict(schedule, links, size, 65536) for schedule in every)
            assert predict(chosen, links, size, 65536) <= 1.2 * best


def test_a_cost_that_trembles_does_not_change_the_choice_and_an_unknown_one_leaves_the_default() -> None:
    ring, *others = [SCHEDULES["ring"], *(one for name, one in SCHEDULES.items() if name != "ring")]
    for shake in (0.97, 1.0, 1.03):
        costs = LinkCosts(2.0**-6 * shake, 2.0**-20 * shake)
        assert fastest([ring, *others], costs, 8, 10**6) == fastest(
            [ring, *others], LinkCosts(2.0**-6, 2.0**-20), 8, 10**6
        )
    assert fastest([ring, *others], UNKNOWN, 8, 10) is ring
    assert fastest([ring, *others], LinkCosts(0.2, 0.0), 8, 10) is ring, "its bandwidth is not known"
    assert fastest([ring, *others], LinkCosts(0.2, 1e-7), 10_000, 10) is ring
