"""Stragglers: a peer whose connection delays a round for longer than bytes and bandwidth explain is given up.

A peer that has contributed to a round, or catches up with the others, predicts how long the sum should take: the
schedule's cost for the bytes, on links with the costs that all agreed on in the round before. Its deadline is the
patience plus `TIMES` the prediction. Past that it tells the two most senior members once an interval that the round is
`Late`, with the measured bandwidth from each member to it (`link_quality.packet_train`). A peer that has not
contributed yet reports nothing: it computes, and no peer is given up for that. When all members have reported, the
slowest connection is given up if it carries an eighth of the usual bandwidth or less, and enough members are left.
Where all are equally slow no peer is given up, and the next round's costs account for it. Connections are rated as in
`bandwidths`, because a slow link may be the fault of either end. The coordinator judges all others; the next in
seniority judges the coordinator.

The patience is for rare delays. Time that a round takes beyond `TIMES` its prediction shortens the patience of the next
ones, down to an interval. Predictions use the best costs ever agreed on here: a peer that has become slow must not make
that usual. A peer that was given up is let in again only after a while (`probation`).

Cost: none in a round that takes less than the patience. A late round costs two small messages an interval, and packet
trains to each of four members, with twice the time between trains after each: 0.4 % of the bandwidth for a patience.
On failure: the next interval's message replaces a lost one. A peer that is silent for the patience is lost
(`endpoint`). There is no deadline in shared memory, which has no bandwidth, nor in a view of more than 64 members.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median_low

from ...aggregation.schedules.choice import UNKNOWN, LinkCosts
from ..channel import Channel, Envelope
from ..collectives.reducer import Reducer
from ..filling import Filling
from ..limits import MEASURED_MEMBERS_MAX
from ..link_quality.bandwidths import Levels, in_Bps, make_sense, slower_ends
from ..link_quality.packet_train import Dispersion
from ..members.membership import Membership
from ..stalls.probation import Probation
from ..testpoints import buggify, sometimes
from ..transfer.chunks import AttemptId
from ..transport import PeerId
from ..wire.frames import message
from .rounds import LOCAL_SGD

TIMES = 8
"""A sum may take this many times its predicted time. Agreed costs are right to within a factor of about two; the rest
is for moderately unequal connections, and for other traffic on the same lines."""
_SLOWER_LEVELS = 6
"""How many levels below the usual one a connection is slow enough to be given up. A level is half an octave, so this is
an eighth of the bandwidth."""
_TRAIN = 1 / 1000
"""The share of the patience that a packet train takes on a usual connection. Four trains at once to a peer that is 100
times slower delay its heartbeats by less than half the patience."""


@message(LOCAL_SGD)
@dataclass(frozen=True, slots=True)
class Late:
    """Sent to the two most senior members: the sum of this round is past its deadline on the sender. `levels`:
    bandwidths from each member to the sender, in rank order, as levels (`link_quality.bandwidths`); 0: unknown."""

    generation: int
    round: int
    levels: Levels


class Lateness:
    """One peer's watch on its sums. While a sum is late, it reports that to the two most senior members. If it is one
    of these, it judges the reports: once all members have reported, it has the membership remove the member whose
    connection is far slower than the others', if the run can spare that member. `size_bytes` returns the size of the
    vector that a round sums, `costs` the link costs that all agreed on."""

    def __init__(
        self,
        channel: Channel,
        membership: Membership,
        reducer: Reducer,
        size_bytes: Callable[[], int],
        costs: Callable[[], LinkCosts],
    ) -> None:
        self._channel, self._membership, self._reducer = channel, membership, reducer
        self._size_bytes, self._costs = size_bytes, costs
        self._dispersion, self._probation = Dispersion(channel, membership), Probation(membership)
        self._attempt: AttemptId | None = None
        self._generation = 0
        self._best = UNKNOWN
        self._foreseen: tuple[int, float | None] | None = None
        """The generation of the last prediction, and its seconds."""
        self._began_s = self._train_s = self._over_s = 0.0
        self._is_late = False
        self._timer: asyncio.TimerHandle | None = None
        self._told: dict[PeerId, Late] = {}
        channel.on(Late, self._on_late)

    @contextmanager
    def of(self, attempt: AttemptId, filling: Filling | None = None) -> Iterator[None]:
        """Context in which an attempt at a round, or a catch-up with it, is watched. Its time counts from when this
        peer's contribution is complete. `filling`: tracks the contribution while it is incomplete; None: it is
        complete."""
        self._attempt, self._is_late = attempt, False
        if self._generation != attempt[0]:
            self._generation, self._over_s = attempt[0], 0.0
        if filling is None:
            self._begin(attempt)
        else:
            filling.when_whole(partial(self._begin, attempt))
        try:
            yield
        finally:
            self._attempt = None
            self._end()

    def _begin(self, attempt: AttemptId) -> None:
        """This peer's contribution is complete: begin to count time."""
        if attempt == self._attempt and 1 < len(self._membership.view.ids) <= MEASURED_MEMBERS_MAX:
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
        """Predict the time of the sum and set the deadline. Most rounds are over by now, and need no prediction."""
        foreseen_s = self._foreseen_s()
        if foreseen_s is not None:
            self._call_in(TIMES * foreseen_s, self._tell)

    def _foreseen_s(self) -> float | None:
        """Predicted seconds of the sum, on links as good as they ever were; None: this peer is no member, or alone."""
        if self._channel.endpoint.id not in self._membership.view.ids or len(self._membership.view.ids) < 2:
            return None
        costs, generation = self._costs(), self._membership.view.generation
        if costs.bandwidth_Bps is not None and costs.bandwidth_Bps > (self._best.bandwidth_Bps or 0.0):
            self._best, self._foreseen = costs, None
        if self._foreseen is None or self._foreseen[0] != generation:
            self._foreseen = generation, self._reducer.foreseen_s(self._size_bytes(), self._best)
        return self._foreseen[1]

    def _tell(self) -> None:
        now, self._is_late = self._now(), True
        assert self._attempt is not None
        if self._channel.endpoint.id not in self._membership.view.ids:
            return
        if now >= self._train_s:
            self._train_s = now + max(self._channel.endpoint.patience_s, now - self._began_s)
            self._dispersion.send(
                round((self._costs().bandwidth_Bps or 0.0) * _TRAIN * self._channel.endpoint.patience_s)
            )
        late = Late(self._membership.view.generation, self._attempt[1], self._dispersion.levels())
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
        """Give up the connection that holds up the round, if this peer is its judge and all members have reported the
        sum late."""
        view, membership = self._membership.view, self._membership
        if self._attempt is None or not self._is_late:
            return
        told = [self._told[peer] for peer in view.ids if peer in self._told]
        # A slow peer's `Late` queues behind its contribution, so it may arrive only after its round is over.
        since = (view.generation, self._attempt[1] - 1)
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
        assert self._attempt is not None
        round_, waited_s = self._attempt[1], self._now() - self._began_s
        times = f"{self._foreseen_s() or 0.0:.1f} s were foreseen, {waited_s:.1f} s have passed"
        carries = f"its connection carries {carries_Bps / 1000:,.1f} kB/s, the others' {usual_Bps / 1000:,.1f} kB/s"
        why = f"its contribution to round {round_} is late: {times}; {carries}"
        self._probation.add(peer, waited_s, why)
        self._membership.suspect(peer, why)

    def _call_in(self, seconds: float, do: Callable[[], None]) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, do)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
