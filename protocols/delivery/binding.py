"""Binding: which incarnation of a peer a link talks to, and what it takes to be believed.

An incarnation is a number drawn anew for every link, so that a peer that restarted, or that gave a link up, never takes
a message meant for its past self. To bind to one takes proof that it lives now: its pong to a ping of ours, and when
another was bound before, to a ping sent since. So old frames, however late they come, prove nothing.
"""

from __future__ import annotations

import math

_CHALLENGE_S = 0.05
"""How long an incarnation that we are not bound to has to answer before it is asked again."""
_CHALLENGED_MAX = 8
_PINGS_KEPT = 256
_REMEMBERED_S = 30.0
"""A trip is the shortest of the last seconds, so many or twice as many: that has waited for the least."""


class Shortest:
    """The shortest of the last trips, infinite: there was none."""

    def __init__(self) -> None:
        self._each_s, self._since = [math.inf, math.inf], 0.0

    def take(self, trip_s: float, now: float) -> float:
        """The shortest, with this one."""
        if now > self._since + _REMEMBERED_S:
            self._each_s, self._since = [math.inf, self._each_s[0]], now
        self._each_s[0] = min(self._each_s[0], trip_s)
        return self.trip_s

    @property
    def trip_s(self) -> float:
        return min(self._each_s)


class Binding:
    """One link's view of who is who. `towards` is the peer's incarnation, 0 until one is bound."""

    def __init__(self, incarnation: int) -> None:
        self.incarnation, self.towards = incarnation, 0
        # Pings are numbered from the incarnation on, so that no pong to another link of ours is taken for one to this.
        self.last_ping = self._bound_at_ping = incarnation
        self._challenged: dict[int, float] = {}
        self._pings: dict[int, float] = {}
        self._there_and_back, self._back = Shortest(), Shortest()

    def next_ping(self, now: float) -> int:
        self.last_ping += 1
        self._pings[self.last_ping] = now
        if len(self._pings) > _PINGS_KEPT:
            del self._pings[next(iter(self._pings))]  # the oldest
        return self.last_ping

    def take_pong(self, pong: int, now: float) -> bool:
        """Whether it answers a ping of ours, for the first time."""
        asked_at = self._pings.pop(pong, None)
        if asked_at is None:
            return False
        self._there_and_back.take(now - asked_at, now)
        return True

    @property
    def round_trip_s(self) -> float | None:
        trip_s = self._there_and_back.trip_s
        return trip_s if trip_s < math.inf else None

    def waited_s(self, sent_at_s: float, now: float) -> float:
        """How much longer than others a pulse has been on its way, which was sent then on the other side's clock."""
        trip_s = now - sent_at_s  # and how the clocks differ
        return trip_s - self._back.take(trip_s, now)

    def proves(self, pong: int) -> bool:
        """Whether who sent `pong` lives, and later than the incarnation that is bound."""
        return self._bound_at_ping < pong <= self.last_ping

    def bind(self, incarnation: int) -> None:
        self.towards, self._bound_at_ping = incarnation, self.last_ping

    def both(self, incarnation: int, towards: int) -> bool:
        """Whether `incarnation`, which says that it is bound to `towards`, and we are bound to each other."""
        return incarnation == self.towards and towards == self.incarnation

    def may_challenge(self, incarnation: int, now: float) -> bool:
        """Whether to ask `incarnation` for proof. Not every time it speaks: two of one name, as of a key that is in use
        on two machines, would have ever more to ask."""
        if now < self._challenged.get(incarnation, -_CHALLENGE_S) + _CHALLENGE_S:
            return False
        if len(self._challenged) >= _CHALLENGED_MAX:
            self._challenged.clear()
        self._challenged[incarnation] = now
        return True

    def answered(self, incarnation: int) -> None:
        """`incarnation` may be asked again at once."""
        self._challenged.pop(incarnation, None)
