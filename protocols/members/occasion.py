"""Occasion: when the coordinator leads a change that only newcomers need.

It waits for the end of the round being averaged, or for two patiences, whichever is sooner, so that every attempt has
its chance. It also rests while changes take more than a tenth of the time, beyond an allowance of half a patience: the
members keep training however many peers come and go, and newcomers that come meanwhile are let in together. A change
counts until a quorum has agreed. Further waiting (for a dead member, or a slow one) does not count, because it would
keep out returning peers. Before the run has started there is no rest, and no time is counted. Newcomers that wait for a
rest to end are told for how long.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from ..channel import Channel
from ..testpoints import buggify, sometimes
from .messages import Later
from .next_view import idle_change
from .roster import Roster

_SHARE = 0.1
_FREE_PATIENCES = 0.5


class Occasion:
    """One peer's timing of changes. `consider` is called when an occasion has come."""

    def __init__(self, channel: Channel, roster: Roster, consider: Callable[[], None]) -> None:
        self._channel, self._roster, self._consider = channel, roster, consider
        self._averaging = self._waited = False
        self._waiting: asyncio.TimerHandle | None = None
        """The timer that ends waiting for the end of a round."""
        self._resting: asyncio.TimerHandle | None = None
        self._told: set[int] = set()
        """Lives of the newcomers that were told of the present rest."""
        self._spent_s, self._spent_at_s = 0.0, 0.0
        """Time spent on changes, less a tenth of the time since; and when it was last computed, on the loop's clock."""

    @contextlib.contextmanager
    def averaging(self) -> Iterator[None]:
        """While a round is averaged here."""
        self._averaging = True
        try:
            yield
        finally:
            self._averaging = False
            self._consider()

    def begin(self) -> None:
        """The roster has gone on to another view."""
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting, self._waited = None, False

    def rest(self, took_s: float) -> None:
        """This peer has led a change; the quorum took `took_s` to agree on it. Rest if changes take too long."""
        loop = asyncio.get_running_loop()
        if not self._roster.view.started:
            return
        left_s = max(0.0, self._spent_s - _SHARE * (loop.time() - self._spent_at_s))
        self._spent_s, self._spent_at_s = left_s + took_s, loop.time()
        self._end_rest()
        over_s = self._spent_s - _FREE_PATIENCES * self._channel.endpoint.patience_s
        if over_s > 0:
            self._resting = loop.call_later(over_s / _SHARE, self._rested)

    def stop(self) -> None:
        """Cancel all timers: there are no further occasions."""
        self.begin()
        self._end_rest()

    @property
    def now(self) -> bool:
        """Whether a change for newcomers or learners is due (`idle_change`), and this is an occasion for it."""
        if not idle_change(self._roster):
            return False
        if self._resting is not None:
            sometimes("newcomers wait as changes took too long")
            self._tell(self._resting.when() - asyncio.get_running_loop().time())
            return False
        if not self._averaging:
            return True
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().call_later(2 * self._channel.endpoint.patience_s, self._end_wait)
        return self._waited or buggify("newcomers do not wait")

    def _tell(self, seconds: float) -> None:
        """Tell newcomers that have not been told yet that they are let in after `seconds`, not sooner."""
        for newcomer, came in self._roster.newcomers.items():
            if seconds > 0 and came.member.life not in self._told:
                self._told.add(came.member.life)
                self._channel.post(newcomer, Later(seconds, "members have come and gone too often of late"))

    def _end_wait(self) -> None:
        self._waited = True
        self._consider()

    def _end_rest(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
        self._resting = None
        self._told.clear()

    def _rested(self) -> None:
        self._end_rest()
        self._consider()
