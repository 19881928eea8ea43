"""Lateness: whose connection holds up a round for longer than bytes and bandwidth say, and how all go on without it.

Who brings its part to a round, or catches up with the others, foresees how long that takes: by the schedule's cost for
the bytes, on links that cost what all agreed on in the round before. The patience and `TIMES` that later, each
interval, it tells the two most senior members that the round is Late, with what the ways to it carry now
(`dispersion`). Who has not begun tells nothing: it computes, and nobody is given up for that. When all have told, the
slowest connection is given up if it carries an eighth of the usual or less, and enough are left; where all are as slow
as each other, nobody is, and the next round's costs say so. A connection counts as in `bandwidths`: one slow way may be
so for either end. The coordinator judges all others, the next in seniority judges the coordinator.

The patience is for what comes to pass now and then. What a round takes beyond that `TIMES`, the next ones have less of
it, down to an interval. And costs are the best that were ever agreed on here: one who has become slow must not make all
take it for usual. Who was given up is let in again only after a while (`probation`).

Cost: none in a round that takes less than the patience. In a late one two small messages an interval, and a train to
each of four members, at moments each twice as far apart as those before: 0.4 % of the bandwidth for a patience.
On loss: what one interval does not tell the next one does. Who tells nothing for a patience is lost (`endpoint`). In
memory that the members share there is no bandwidth, and no deadline; nor in a view of more than 64.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median_low

from ..aggregation.agreed import UNKNOWN, LinkCosts
from .bandwidths import WORLD_MOST, Levels, in_Bps, make_sense, slower_ends
from .channel import Channel, Envelope
from .dispersion import Dispersion
from .filling import Filling
from .members.membership import Membership
from .probation import Probation
from .reduction.reducer import Reducer
from .rounds import LOCAL_SGD, Key
from .transport import PeerId
from .wire import message
from .witness import buggify, sometimes

TIMES = 8
"""How many times as long as foreseen a sum may take. Costs are agreed on to within a factor of two or so; unequal
connections that a round bears at all, and others who use the same lines, make up as much again."""
_SLOWER_LEVELS = 6
"""An eighth: half octaves are told."""
_TRAIN = 1 / 1000
"""Of the patience, how long a train takes on a usual way: so four to one that is 100 times slower, all at once, keep
its heartbeats waiting for less than half of it."""


@message(LOCAL_SGD)
@dataclass(frozen=True, slots=True)
class Late:
    """Told to the two most senior: the sum of this round has not come about here by its deadline. `levels`: of the ways
    from the members to me, in rank order."""

    generation: int
    round: int
    levels: Levels


class Lateness:
    """One peer's part in it, and the judge's. `size_bytes`: what is summed up in a round; `costs`: what links cost, as
    agreed."""

    def __init__(
        self,
        channel: Channel,
        membership: Membership,
        reducer: Reducer,
        size_bytes: int,
        costs: Callable[[], LinkCosts],
    ) -> None:
        self._channel, self._membership, self._reducer = channel, membership, reducer
        self._size_bytes, self._costs = size_bytes, costs
        self._dispersion, self._probation = Dispersion(channel, membership), Probation(membership)
        self._key: Key | None = None
        self._generation = 0
        self._best = UNKNOWN
        self._foreseen: tuple[int, float | None] | None = None
        """In which generation, and how long."""
        self._began_s = self._train_s = self._over_s = 0.0
        self._is_late = False
        self._timer: asyncio.TimerHandle | None = None
        self._told: dict[PeerId, Late] = {}
        channel.on(Late, self._on_late)

    @contextmanager
    def of(self, key: Key, filling: Filling | None = None) -> Iterator[None]:
        """While that attempt at a round is made, or caught up for. `filling`: of this peer's, if it is not whole."""
        self._key, self._is_late = key, False
        if self._generation != key[0]:
            self._generation, self._over_s = key[0], 0.0
        if filling is None:
            self._begin(key)
        else:
            filling.when_whole(partial(self._begin, key))
        try:
            yield
        finally:
            self._key = None
            self._end()

    def _begin(self, key: Key) -> None:
        """This peer's part is whole."""
        if key == self._key and 1 < len(self._membership.view.ids) <= WORLD_MOST:
            self._began_s = self._train_s = self._now()
            if buggify("an early deadline for a part"):
                self._call_in(0.0, self._tell)
            else:
                self._call_in(
                    max(self._channel.endpoint.interval_s, self._channel.endpoint.patience_s - self._over_s), self._look
                )

    def _end(self) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer, took_s = None, self._now() - self._began_s
        if self._over_s or took_s > self._channel.endpoint.interval_s:
            over_s = took_s - TIMES * (self._foreseen_s() or took_s)
            self._over_s = min(max(0.0, self._over_s + over_s), self._channel.endpoint.patience_s)

    def _look(self) -> None:
        """Most rounds are over by now: only for the others it is worth it to foresee anything."""
        foreseen_s = self._foreseen_s()
        if foreseen_s is not None:
            self._call_in(TIMES * foreseen_s, self._tell)

    def _foreseen_s(self) -> float | None:
        """How long the sum takes, on links as good as they have ever been; None when this peer has no part in it."""
        if self._channel.endpoint.id not in self._membership.view.ids or len(self._membership.view.ids) < 2:
            return None
        costs, generation = self._costs(), self._membership.view.generation
        if costs.bandwidth_Bps is not None and costs.bandwidth_Bps > (self._best.bandwidth_Bps or 0.0):
            self._best, self._foreseen = costs, None
        if self._foreseen is None or self._foreseen[0] != generation:
            self._foreseen = generation, self._reducer.foreseen_s(self._size_bytes, self._best)
        return self._foreseen[1]

    def _tell(self) -> None:
        now, self._is_late = self._now(), True
        assert self._key is not None
        if self._channel.endpoint.id not in self._membership.view.ids:
            return
        if now >= self._train_s:
            self._train_s = now + max(self._channel.endpoint.patience_s, now - self._began_s)
            self._dispersion.send(
                round((self._costs().bandwidth_Bps or 0.0) * _TRAIN * self._channel.endpoint.patience_s)
            )
        late = Late(self._membership.view.generation, self._key[1], self._dispersion.levels())
        for judge in self._membership.leaders:
            if judge == self._channel.endpoint.id:
                self._take(judge, late)
            else:
                self._channel.post(judge, late)
        self._call_in(self._channel.endpoint.interval_s, self._tell)

    def _on_late(self, envelope: Envelope) -> None:
        if self._membership.current(envelope, envelope.message.generation):
            self._take(envelope.sender, envelope.message)

    def _take(self, peer: PeerId, late: Late) -> None:
        if make_sense(late.levels, len(self._membership.view.ids)):
            self._told[peer] = late
            self._judge()

    def _judge(self) -> None:
        """Give up whoever holds up the round, if that is for us to say, and when all who are there wait for it."""
        view, membership = self._membership.view, self._membership
        if self._key is None or not self._is_late:
            return
        told = [self._told[peer] for peer in view.ids if peer in self._told]
        # Behind its own part, what a slow peer tells of a round may come only when that is over.
        since = (view.generation, self._key[1] - 1)
        ways = [late.levels for late in told if late.generation == since[0] and late.round >= since[1]]
        if len(ways) < len(view.ids):
            return
        levels = dict(zip(view.ids, slower_ends(ways), strict=True))
        slowest = min(levels, key=levels.__getitem__)
        usual = median_low(level for peer, level in levels.items() if peer != slowest)
        coordinator, *deputy = membership.leaders
        judges = [coordinator] if slowest != coordinator else deputy
        late = 0 < levels[slowest] <= usual - _SLOWER_LEVELS
        if late and self._channel.endpoint.id in judges and membership.can_spare(slowest):
            self._give_up(slowest, in_Bps(levels[slowest]), in_Bps(usual))

    def _give_up(self, peer: PeerId, carries_Bps: float, usual_Bps: float) -> None:
        sometimes("a late part")
        assert self._key is not None
        round_, waited_s = self._key[1], self._now() - self._began_s
        times = f"{self._foreseen_s() or 0.0:.1f} s were foreseen, {waited_s:.1f} s have passed"
        carries = f"its connection carries {carries_Bps / 1000:,.1f} kB/s, the others' {usual_Bps / 1000:,.1f} kB/s"
        why = f"its part of round {round_} is late: {times}; {carries}"
        self._probation.add(peer, waited_s, why)
        self._membership.suspect(peer, why)

    def _call_in(self, seconds: float, do: Callable[[], None]) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, do)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
