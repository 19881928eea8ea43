"""Occasion: decides when the coordinator leads a change of the view that only newcomers need.

While the members are busy with an exchange that a change would end (`Membership.busy`), the change waits for the end of
the exchange, or for two patiences, whichever is sooner. The coordinator also rests while changes take more than a tenth
of the time, beyond an allowance of half a patience: the members can work however many peers come and go, and newcomers
that arrive during a rest are let in together. The time of a change counts until a quorum has agreed. Further waiting
(for a dead or slow member) does not count, because it would keep out returning peers. Before the run has started there
is no rest, and no time is counted. Newcomers that wait for the end of a rest are told how long it lasts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..channel import Channel
from ..testpoints import buggify, sometimes, witness
from .departure import is_over
from .messages import Later
from .next_view import idle_change
from .roster import Roster
from .terms import Terms

_SHARE = 0.1
_FREE_PATIENCES = 0.5


@dataclass(frozen=True, slots=True)
class Counted:
    """Event for a simulation's checkers: this peer counts the seconds of a change that it has led, because of which
    newcomers may have to wait."""

    seconds: float


class Occasion:
    """Decides when one peer, as coordinator, leads changes of the view for newcomers alone. `consider` is called when
    such a change may have become possible."""

    def __init__(self, channel: Channel, roster: Roster, terms: Terms, consider: Callable[[], None]) -> None:
        self._channel, self._roster, self._terms, self._consider = channel, roster, terms, consider
        self._busy = self._waited = False
        self._waiting: asyncio.TimerHandle | None = None
        """The timer that ends waiting for a busy conversation."""
        self._resting: asyncio.TimerHandle | None = None
        self._told: set[int] = set()
        """Lives of the newcomers that were told of the present rest."""
        self._spent_s, self._spent_at_s = 0.0, 0.0
        """Time spent on changes, less a tenth of the time since; and when it was last computed, on the loop's clock."""

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Context of an exchange with the others that a change of the view would cancel: changes for newcomers wait for
        its end, but no longer than twice the endpoint's patience. At its end `consider` is called. Not reentrant."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
            self._consider()

    def begin(self) -> None:
        """Start afresh in another view: a change for newcomers may again wait until the members are no longer busy."""
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting, self._waited = None, False

    def rest(self, took_s: float) -> None:
        """Count the time of a change that this peer has led. `took_s`: seconds until the quorum had agreed on it. If
        changes have taken too long, no further one for newcomers is led for a while. Nothing is counted before the run
        has started."""
        loop = asyncio.get_running_loop()
        if not self._roster.view.started:
            return
        witness(Counted(took_s))
        left_s = max(0.0, self._spent_s - _SHARE * (loop.time() - self._spent_at_s))
        self._spent_s, self._spent_at_s = left_s + took_s, loop.time()
        self._end_rest()
        over_s = self._spent_s - _FREE_PATIENCES * self._channel.endpoint.patience_s
        if over_s > 0:
            self._resting = loop.call_later(over_s / _SHARE, self._rested)

    def stop(self) -> None:
        """Cancel all timers: none of them calls `consider` any more."""
        self.begin()
        self._end_rest()

    @property
    def now(self) -> bool:
        """Whether a change for newcomers or learners is due (`idle_change`), and this peer may lead it now: the run is
        not over, this peer does not rest, and the members are not busy or the change has waited long enough. Newcomers
        are told of a rest."""
        if is_over(self._roster, self._terms) or not idle_change(self._roster, self._channel.endpoint.is_lost):
            return False
        if self._resting is not None:
            sometimes("newcomers wait as changes took too long")
            self._tell(self._resting.when() - asyncio.get_running_loop().time())
            return False
        if not self._busy:
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
