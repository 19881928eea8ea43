"""Bugs that a sweep has to find: each is planted by a test, in the library's own code, and gone when the test ends.

`python tests/planted.py` looks for each of them in 300 seeds, from 1 on, makes the first failures as small as can be,
and prints how many seeds found it and what is left of the scenario.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from samovar.protocols.endpoint import Envelope
from samovar.protocols.local_sgd import Contribution, LocalSGD
from samovar.protocols.members.change import Change
from samovar.protocols.rounds import Key
from samovar.protocols.verdict import Commit, Have, Verdicts
from samovar.sims.scenarios.draw import draw
from samovar.sims.scenarios.text import scenario_text
from samovar.sims.sweeps.minimise import minimise
from samovar.sims.sweeps.verdict import Verdict, judge


def commits_without_a_quorum(patch: pytest.MonkeyPatch) -> None:
    """The first who has a result commits it for all."""

    def count(self: Verdicts, voter: str, have: Have) -> None:
        key = (have.generation, have.round)
        if self._membership.coordinator == self._endpoint.id and key not in self._commits:
            self._announce(Commit(*key, have.fingerprint))

    patch.setattr(Verdicts, "_count", count)


def counts_an_update_twice_after_a_retry(patch: pytest.MonkeyPatch) -> None:
    """What was brought to an attempt that came to nothing is brought to the next one as well."""
    attempt = LocalSGD._attempt

    async def again(self: Any, key: Key, contribution: Contribution) -> None:
        tried = self.__dict__.setdefault("tried", {})
        times = tried[key[1]] = tried.get(key[1], 0) + 1
        await attempt(self, key, replace(contribution, weight=contribution.weight * times))

    patch.setattr(LocalSGD, "_attempt", again)


def accepts_a_stale_generation(patch: pytest.MonkeyPatch) -> None:
    """A view is gone on to whichever generation it is of."""

    def on_install(self: Change, envelope: Envelope) -> None:
        if envelope.sender in self._roster.addresses:
            self._take(envelope.message.decree, envelope.sender)

    patch.setattr(Change, "_on_install", on_install)


PLANTED: list[Callable[[pytest.MonkeyPatch], None]] = [
    commits_without_a_quorum,
    counts_an_update_twice_after_a_retry,
    accepts_a_stale_generation,
]


def found_by(seeds: range) -> list[Verdict]:
    """The verdicts of the seeds that break a promise."""
    verdicts = (judge(draw(seed)) for seed in seeds)
    return [verdict for verdict in verdicts if verdict.broken is not None]


def search(plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    began = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        found = found_by(range(1, 301))
        seeds = [verdict.scenario.settings.seed for verdict in found]
        took_s = time.monotonic() - began
        print(f"{plant.__name__}: {len(found)} of 300 seeds, {seeds[:12]}; {took_s:.0f} s", flush=True)
        for verdict in found[:3]:
            small = minimise(verdict)
            peers, faults = small.scenario.peers, len(small.scenario.faults)
            print(f"{peers} peers, {faults} faults: {small.broken}\n{scenario_text(small.scenario)}", flush=True)


if __name__ == "__main__":
    for bug in PLANTED:
        search(bug)
