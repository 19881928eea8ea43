"""The sweep: many scenarios, each drawn from a seed and judged in a world of its own, on all cores."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

from ..scenarios.draw import draw
from ..scenarios.scenario import Kind
from ..world.world import BEGUN_AGAIN, BY_PRIORITIES
from .verdict import Verdict, judge

SITES = (
    "a donor is busy",
    "a frame goes out twice",
    "an early deadline",
    "an attempt begins late",
    "an early deadline for a part",
    "newcomers do not wait",
    "the least credit",
    "the smallest chunk",
)
PLACES = (
    "a donor was lost",
    "a message was sent again",
    "a result was handed on by a change",
    "an old generation was refused",
    "too few answered",
    "two led at once",
)
TOO_RARE = (
    "a bad sum was made again",
    "a broken edge works again",
    "a learner gave way to a newcomer",
    "a learner is too slow",
    "a learner lost all members",
    "a site's sum was bad and none was taken",
    "a sum was bad",
    "newcomers wait as changes took too long",
    "an acceptor went on for a former life",
    "an edge was broken",
    "too many edges of one peer were broken",
    "who had lost the coordinator, and nobody else, joined anew",
    "whose numbers cannot be right was given up",
    "a late part",
    "a mate went on without the mean that it holds",
    "a peer cannot know whether a mate took what both summed",
    "a peer's own work took too long",
    "who computed for too long was given up",
    "a peer was held off",
    "nobody contributed to a round",
    "a result differed and was not taken",
    "a site took what its last attempt had come to",
    "a site's means differed and none was taken",
    "a site does not tell any more what it took at a turn",
    "no donor had the state",
    "nobody there had what is committed",
    "parts by bandwidth",
)
"""Places that some hundred seeds may all miss: they take several faults at one moment, or a large model on unequal
links."""
NOISES = ("lost", "doubled", "overtaken", "garbled", "cut")
REQUIRED = (
    *PLACES,
    *NOISES,
    BY_PRIORITIES,
    BEGUN_AGAIN,
    *(f"fault: {kind}" for kind in Kind),
    *(f"buggify: {site}" for site in SITES),
)
"""The places that a sweep must have reached: otherwise it shows nothing about them."""
REQUIRED_FROM = 300
"""From this number of seeds on, a sweep must reach all of them."""
SAME_AGAIN = "the same seed gives the same run"
"""The promise that only two runs can check."""
_TWICE = 0.05
"""The share of seeds that are judged twice: equal runs have equal digests."""


def unmet(verdicts: int, reached: Counter[str]) -> list[str]:
    """The places that a sweep of so many verdicts should have reached and did not."""
    return [what for what in REQUIRED if reached[what] == 0] if verdicts >= REQUIRED_FROM else []


def judge_seed(seed: int) -> Verdict:
    """The verdict on the scenario of `seed`. Some seeds are run twice."""
    verdict = judge(draw(seed))
    if verdict.broken is None and random.Random(f"twice {seed}").random() < _TWICE:
        again = judge(draw(seed))
        if again.digest != verdict.digest:
            return replace(verdict, broken=f"{SAME_AGAIN}: {verdict.digest} and {again.digest}")
    return verdict


def sweep(
    seeds: Iterable[int], *, workers: int | None = None, progress: Callable[[], object] = lambda: None
) -> Iterator[Verdict]:
    """The verdicts in the order of `seeds`. `progress` is called after each verdict, perhaps in another thread.
    `workers`: processes, None for one a core; with 1 all work is done in this process."""
    workers = os.cpu_count() or 1 if workers is None else workers
    if workers == 1:
        for seed in seeds:
            verdict = judge_seed(seed)
            progress()
            yield verdict
        return
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        due = [pool.submit(judge_seed, seed) for seed in seeds]
        for future in due:
            future.add_done_callback(lambda future: progress())
        for future in due:
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
