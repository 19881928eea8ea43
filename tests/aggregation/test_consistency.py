"""Consistency: which worker may go on, and what its read contains."""

import heapq
import random

import pytest

from samovar.aggregation.consistency import Consistency, lacking, parse_consistency, spread
from samovar.aggregation.options import OptionError


def test_each_consistency_requires_its_own_clocks_of_a_read() -> None:
    workers = ("a", "b")
    needs = {text: parse_consistency(text).required("a", 5, workers) for text in ("bsp", "ssp:2", "bounded:2", "async")}
    assert needs == {"bsp": {"b": 5, "a": 5}, "ssp:2": {"b": 3, "a": 5}, "bounded:2": {"b": 3, "a": 3}, "async": {}}
    assert parse_consistency("ssp:5").required("a", 5, workers) == {"a": 5}, "nobody need have begun"


def test_a_read_names_the_workers_it_lacks() -> None:
    assert lacking({"a": 3, "b": 1}, {"a": 3, "b": 2, "c": 1}) == ["b", "c"]
    assert lacking({"a": 3}, {"a": 3}) == []


def clocks_of(consistency: Consistency, workers: int, seed: int, until: float) -> list[list[int]]:
    """The clocks of all workers at each event, for steps of random lengths. A worker pushes at the end of its step."""
    chance, clocks, history = random.Random(seed), [0] * workers, []
    running = [(chance.expovariate(1.0), worker) for worker in range(workers)]
    heapq.heapify(running)
    waiting: list[int] = []
    while running and running[0][0] < until:
        now, worker = heapq.heappop(running)
        clocks[worker] += 1
        history.append(list(clocks))
        waiting.append(worker)
        known = dict(enumerate(clocks))
        for one in list(waiting):
            if not lacking(known, consistency.required(one, clocks[one], range(workers))):
                waiting.remove(one)
                heapq.heappush(running, (now + chance.expovariate(1.0), one))
    assert running, "some worker can always go on"
    return history


@pytest.mark.parametrize(("text", "most"), [("bsp", 1), ("ssp:0", 1), ("ssp:3", 4), ("bounded:2", 3)])
def test_clocks_differ_by_at_most_the_bound_and_the_running_step(text: str, most: int) -> None:
    history = [clocks for seed in range(5) for clocks in clocks_of(parse_consistency(text), 6, seed, 60.0)]
    spreads = [spread(clocks) for clocks in history]
    assert max(spreads) == most, "the bound is kept, and used"


def test_without_a_bound_clocks_drift_apart() -> None:
    assert spread(clocks_of(parse_consistency("async"), 6, 0, 200.0)[-1]) > 8


@pytest.mark.parametrize(("workers_", "clocks", "gain"), [(16, 400, {"ssp:1": 1.62, "ssp:3": 2.24, "ssp:8": 2.78})])
def test_stale_synchronous_workers_gain_the_speed_of_the_papers_page(
    workers_: int, clocks: int, gain: dict[str, float]
) -> None:
    """PAPERS.md B6, with exponential step times. `benchmarks/papers/staleness.py` prints all of it."""

    def rate(text: str) -> float:
        history = clocks_of(parse_consistency(text), workers_, 0, clocks)
        return sum(history[-1]) / workers_ / clocks

    base = rate("bsp")
    for text, due in gain.items():
        assert rate(text) / base == pytest.approx(due, rel=0.1)


@pytest.mark.parametrize("text", ["ssp:-1", "ssp:x", "bounded:2000000", "bsp:1"])
def test_a_bad_bound_is_refused(text: str) -> None:
    with pytest.raises(OptionError):
        parse_consistency(text)


def test_an_unknown_consistency_is_refused() -> None:
    with pytest.raises(ValueError, match="there are bsp, ssp, bounded, async"):
        parse_consistency("linear")
