"""Handshake: how a link learns which incarnation of its peer is alive.

An incarnation is a random number that a peer draws anew for every link. A peer that restarted, or that gave a link up,
has another one, so it never takes a message meant for its former self. This side binds its link to the incarnation of
the peer that has answered one of the link's pings: from then on it exchanges messages with that incarnation only.
Another incarnation that answers a ping sent since then ends the link, and a new link begins. Old frames, however late
they arrive, prove nothing.
"""

from __future__ import annotations

import math

_CHALLENGE_S = 0.05
"""The least seconds between two challenges to an incarnation that is not bound."""
_CHALLENGED_MAX = 8
_PINGS_KEPT = 256
_REMEMBERED_S = 30.0
"""The shortest trip is taken over the last 30 to 60 s: that trip has waited least in queues."""


class Shortest:
    """The shortest of the trip times, in seconds, of the last 30 to 60 s; infinite before the first one."""

    def __init__(self) -> None:
        self.trip_s = math.inf
        """The shortest of the recent trips."""
        self._each_s, self._since = [math.inf, math.inf], 0.0

    def take(self, trip_s: float, now: float) -> float:
        """Add a trip that ended at `now`, in seconds on any one clock. Returns the shortest of the recent ones."""
        if now > self._since + _REMEMBERED_S:
            self._each_s, self._since = [math.inf, self._each_s[0]], now
        self._each_s[0] = min(self._each_s[0], trip_s)
        self.trip_s = min(self._each_s)
        return self.trip_s


class Binding:
    """One link's handshake. `incarnation`: this side's own; `towards`: the peer's incarnation that the link is bound
    to, 0 before the first."""

    def __init__(self, incarnation: int) -> None:
        self.incarnation, self.towards = incarnation, 0
        # Pings are numbered from the incarnation on, so that no pong to another link of ours is taken for one to this.
        self.last_ping = self._bound_at_ping = incarnation
        self._challenged: dict[int, float] = {}
        self._pings: dict[int, float] = {}
        self._there_and_back, self._back = Shortest(), Shortest()

    def next_ping(self, now: float) -> int:
        """The number for a new ping, which the caller sends at `now`."""
        self.last_ping += 1
        self._pings[self.last_ping] = now
        if len(self._pings) > _PINGS_KEPT:
            del self._pings[next(iter(self._pings))]  # the oldest
        return self.last_ping

    def take_pong(self, pong: int, now: float) -> bool:
        """Measure the round trip by a pong with this number that arrived at `now`. Returns False, and measures nothing,
        where the number is that of no ping of this link, of one that was answered before, or of one before the last
        256."""
        asked_at = self._pings.pop(pong, None)
        if asked_at is None:
            return False
        self._there_and_back.take(now - asked_at, now)
        return True

    @property
    def round_trip_s(self) -> float | None:
        """The shortest recent round trip in seconds; None: none was measured."""
        trip_s = self._there_and_back.trip_s
        return trip_s if trip_s < math.inf else None

    def waited_s(self, sent_at_s: float, now: float) -> float:
        """Seconds that a pulse, which the peer sent at `sent_at_s` on its own clock and which arrived at `now` on this
        side's, has waited in queues: its time on the way beyond the shortest recent one. The offset of the two clocks
        cancels. To be called once for each pulse, whose time on the way then counts as a recent one."""
        trip_s = now - sent_at_s  # and how the clocks differ
        return trip_s - self._back.take(trip_s, now)

    def proves(self, pong: int) -> bool:
        """Whether `pong` answers a ping that was sent after the present incarnation was bound, which proves that the
        pong's sender is alive now."""
        return self._bound_at_ping < pong <= self.last_ping

    def bind(self, incarnation: int) -> None:
        """Bind this link to the peer's `incarnation`: from now on only pongs to later pings prove that another one is
        alive."""
        self.towards, self._bound_at_ping = incarnation, self.last_ping

    def both(self, incarnation: int, towards: int) -> bool:
        """Whether this link and the peer's link are bound to each other. `incarnation`, `towards`: the peer's, as a
        frame states them."""
        return incarnation == self.towards and towards == self.incarnation

    def may_challenge(self, incarnation: int, now: float) -> bool:
        """Whether to challenge `incarnation`, that is to ping it so that it can prove to be alive. True counts as a
        challenge made at `now`. False within 0.05 s of the last challenge to it: two processes that use one key would
        otherwise challenge each other ever more often."""
        if now < self._challenged.get(incarnation, -_CHALLENGE_S) + _CHALLENGE_S:
            return False
        if len(self._challenged) >= _CHALLENGED_MAX:
            self._challenged.clear()
        self._challenged[incarnation] = now
        return True

    def answered(self, incarnation: int) -> None:
        """Note that `incarnation` has answered its challenge, so that it may be challenged again at once."""
        self._challenged.pop(incarnation, None)
