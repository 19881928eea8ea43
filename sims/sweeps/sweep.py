"""The sweep: many scenarios, each drawn from a seed and judged in a world of its own, on all cores of the machine. A
place is a rare situation that the library's code names where it occurs (`testpoints.sometimes`); a sweep counts how
often each is reached."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

from ...peers.machine.torch_imports import do_without_compiler
from ..conversations.simulation import simulation
from ..scenarios.scenario import Kind
from ..world.world import BEGUN_AGAIN, BY_PRIORITIES
from .draw import draw
from .verdict import Verdict, judge

SITES = (
    "a disk is slow",
    "a donor is busy",
    "a frame goes out twice",
    "an early deadline",
    "newcomers do not wait",
    "the least credit",
    "the smallest chunk",
)
PLACES = (
    "a message was sent again",
    "a relay carried a stream",
    "a relay was given up",
    "an old generation was refused",
    "too few answered",
    "two led at once",
)
TOO_RARE = (
    "a broken edge works again",
    "a member counted on a life that was over before it came",
    "a leader told two members two decrees",
    "a proposal was passed on to the coordinator",
    "a member that was left behind asked for the view",
    "a member that joins anew was asked over a new link",
    "a learner gave way to a newcomer",
    "a learner is too slow",
    "newcomers wait as changes took too long",
    "an acceptor went on for a former life",
    "an adopted decree does not bind",
    "an edge was broken",
    "too many edges of one peer were broken",
    "a peer that had lost the coordinator, and nobody else, joined anew",
    "a peer's own work took too long",
    "a peer that computed for too long was given up",
    "a peer was held off",
    "no newcomer could reach the members",
    "an acceptor of a former life was taken for the coordinator",
    "nobody there had what is committed",
    "parts by bandwidth",
)
"""The `sometimes` places that a sweep need not reach, because some hundred seeds may all miss them: they need several
faults at one moment, or a large model on unequal links. The rare places of one conversation stand in its
`Simulation`."""
NOISES = ("lost", "doubled", "overtaken", "garbled", "cut")
REQUIRED = (
    *PLACES,
    *NOISES,
    BY_PRIORITIES,
    BEGUN_AGAIN,
    *(f"fault: {kind}" for kind in Kind),
    *(f"buggify: {site}" for site in SITES),
)
"""The names of the places, kinds of faults and `buggify` sites that a large sweep must reach, but for those that are
out of reach of all its conversations. A sweep that misses one has not tested it."""
REQUIRED_FROM = 300
"""The number of seeds from which on a sweep must reach all of `REQUIRED`, and the number of seeds of one conversation
from which on it must reach the places of that conversation."""
SAME_AGAIN = "the same seed gives the same run"
"""The name of the promise that is checked by running a seed twice."""
_TWICE = 0.05
"""The share of seeds that are run twice, to compare the digests of the two runs."""


def unmet(verdicts: Mapping[str, int], reached: Counter[str]) -> list[str]:
    """The places that a sweep should have reached and did not; none for a sweep, or a conversation in it, of fewer than
    `REQUIRED_FROM` seeds. `verdicts`: conversation -> number of its seeds; `reached`: place -> how often it was
    reached."""
    required = list[str]()
    if sum(verdicts.values()) >= REQUIRED_FROM:
        beyond = [set(simulation(protocol).out_of_reach) for protocol in verdicts]
        required += [what for what in REQUIRED if what not in set.intersection(*beyond)]
    for protocol, count in verdicts.items():
        required += simulation(protocol).required if count >= REQUIRED_FROM else ()
    return [what for what in required if reached[what] == 0]


def judge_seed(seed: int, protocol: str | None = None) -> Verdict:
    """The verdict on the scenario of `seed` and `protocol` (`draw`). If no promise was broken, one seed in twenty is
    run again: other digests break the promise `SAME_AGAIN`."""
    verdict = judge(draw(seed, protocol))
    if verdict.broken is None and random.Random(f"twice {seed}").random() < _TWICE:
        again = judge(draw(seed, protocol))
        if again.digest != verdict.digest:
            return replace(verdict, broken=f"{SAME_AGAIN}: {verdict.digest} and {again.digest}")
    return verdict


def begin_worker() -> None:
    """Prepare a process of a sweep. Ctrl-C ends it at once: it would else judge the seeds that it has been given, and
    Python waits for it meanwhile. Its models are never compiled, and importing the compiler would take it a second."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    do_without_compiler()


def sweep(
    seeds: Iterable[int],
    *,
    protocol: str | None = None,
    workers: int | None = None,
    progress: Callable[[], object] = lambda: None,
) -> Iterator[Verdict]:
    """Judge the scenario of each of `seeds`. Yields the verdicts in the order of `seeds`. `protocol`: the conversation
    of all seeds; None: they are divided among the registered ones. `progress` is called after each verdict, perhaps on
    another thread. `workers`: number of processes; None: one for each core; 1: all work is done in this process."""
    workers = os.cpu_count() or 1 if workers is None else workers
    if workers == 1:
        for seed in seeds:
            verdict = judge_seed(seed, protocol)
            progress()
            yield verdict
        return
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=begin_worker)
    try:
        due = [pool.submit(judge_seed, seed, protocol) for seed in seeds]
        for future in due:
            future.add_done_callback(lambda future: progress())
        for future in due:
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
