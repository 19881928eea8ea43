"""Bugs that a sweep has to find: each is planted by a test, in the library's own code, and gone when the test ends."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from samovar.protocols.change import Change
from samovar.protocols.endpoint import Envelope
from samovar.protocols.local_sgd import Contribution, LocalSGD
from samovar.protocols.rounds import Key
from samovar.protocols.verdict import Commit, Have, Verdicts


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
