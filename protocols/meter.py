"""Where the time of a round goes: each moment counts as compute, wait, transfer, or hidden behind local steps."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cached_property

from .transport import PeerId

Late = Callable[[], Collection[PeerId]]
"""Returns the peers whose own contribution to a sum has not arrived yet."""


class Meter:
    """Counts the seconds of a round, in which several sums may be under way at a time. Until this peer's own
    contribution is complete, time counts as compute, even if chunks are already being sent. Averaging behind local
    steps counts as hidden. Time counts as wait while there are sums and all are stalled because a contribution has not
    begun to arrive, or while the members of the round are being agreed on. All other time is transfer. A stalled sum
    names the peers whose own contribution it waits for; a peer that only passes on late contributions of others is not
    named. `compute_s`, `wait_s`, `transfer_s` and `hidden_s` are the totals as of the last `read`, which has to be
    called before they are used."""

    def __init__(self) -> None:
        self.compute_s = self.wait_s = self.transfer_s = self.hidden_s = 0.0
        self._at = 0.0
        self._hidden = False
        self._round = 0
        self._computing = False
        self._sums = self._unsettled = 0
        self._still: list[Late] = []
        self._waited_for_s: defaultdict[PeerId, float] = defaultdict(float)

    @cached_property
    def _now(self) -> Callable[[], float]:
        """The loop's clock. It is kept, because asking asyncio for the running loop takes longer than a reading."""
        return asyncio.get_running_loop().time

    def begin(self, *, computing: bool, goes_on: bool = False) -> Callable[[], None]:
        """Begin a round: time counts from now on, and the time since the last `read` counts nowhere. `computing`: this
        peer's contribution is not complete yet; the caller calls the returned function when it is, and a call after the
        round does nothing. `goes_on`: the round began with an earlier call, and its seconds so far are kept; else they
        are set to 0."""
        if not goes_on:
            self.compute_s = self.wait_s = self.transfer_s = self.hidden_s = 0.0
            self._waited_for_s.clear()
        self._at, self._computing = self._now(), computing
        self._round += 1
        begun = self._round

        def ready() -> None:
            if begun == self._round:
                self.read()
                self._computing = False

        return ready

    def read(self) -> None:
        """Add the seconds since the last call of `read` or `begin` to `compute_s`, `wait_s`, `transfer_s` or
        `hidden_s`, and, if they count as wait, to the time that each peer in `late` was waited for."""
        now = self._now()
        spent_s, self._at = now - self._at, now
        if not spent_s:
            return
        if self._computing:
            self.compute_s += spent_s
        elif self._hidden:
            self.hidden_s += spent_s
        elif self.waits:
            self.wait_s += spent_s
            for peer in self.late:
                self._waited_for_s[peer] += spent_s
        else:
            self.transfer_s += spent_s

    @contextmanager
    def summing(self) -> Iterator[None]:
        """While in this context, one more sum is under way. Calls `read` at its beginning and at its end, also after an
        error."""
        self.read()
        self._sums += 1
        try:
            yield
        finally:
            self.read()
            self._sums -= 1

    def stall_begins(self, late: Late) -> None:
        """Note that a sum under way is stalled from now on. `late` returns the peers that it waits for."""
        self.read()
        self._still.append(late)

    def stall_ends(self, late: Late) -> None:
        """Note that the sum for which `stall_begins` was called with this same `late` is not stalled any more. Raises
        ValueError if there is none."""
        self.read()
        self._still.remove(late)

    @contextmanager
    def stalled_sum(self, late: Late) -> Iterator[None]:
        """While in this context, one more sum is under way and stalled. `late` returns the peers that it waits for.
        Calls `read` as `summing` does."""
        with self.summing():
            self.stall_begins(late)
            try:
                yield
            finally:
                self.stall_ends(late)

    @contextmanager
    def unsettled(self) -> Iterator[None]:
        """While in this context, the members of the round are being agreed on, and time counts as wait, unless it is
        compute or hidden. Calls `read` as `summing` does."""
        self.read()
        self._unsettled += 1
        try:
            yield
        finally:
            self.read()
            self._unsettled -= 1

    def hide(self, hidden: bool) -> None:
        """Note whether averaging goes on behind local steps from now on, so that time counts as hidden, unless it is
        compute. Calls `read`, which counts the time until now as before."""
        self.read()
        self._hidden = hidden

    def count_as_wait(self, since_s: float) -> None:
        """Count the transfer of a failed sum as wait, because the sum failed when a peer's contribution did not come.
        `since_s`: the value of `transfer_s` when the sum began. Peers that were waited for so far are forgotten
        (`waited_for`)."""
        self.read()
        self.wait_s, self.transfer_s = self.wait_s + self.transfer_s - since_s, since_s
        self._waited_for_s.clear()

    @property
    def waits(self) -> bool:
        """Whether there are sums under way and all are stalled, or the members of the round are being agreed on."""
        return self._unsettled > 0 or 0 < self._sums == len(self._still)

    @property
    def late(self) -> set[PeerId]:
        """The peers whose own contribution is waited for now."""
        return {peer for late in self._still for peer in late()}

    @property
    def waited_for(self) -> PeerId | None:
        """The peer whose contribution took more than half of this peer's waiting (`wait_s`), as of the last `read`;
        None: no such peer."""
        longest_s, peer = max(((spent_s, peer) for peer, spent_s in self._waited_for_s.items()), default=(0.0, None))
        return peer if 2 * longest_s > self.wait_s else None
