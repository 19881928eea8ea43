"""Stalls: a live peer that keeps the others waiting tells them why; after a patience, if one is set, they go on without
it.

Heartbeats go on while a local step or a data loader hangs, because these run off the event loop. So a peer whose own
work takes far longer than usual (`works`) tells all members that it is Stalled: in which work, for how long, and how
long such work usually takes. It repeats this every half minute, and tells when the work has ended. A member that waits
for that peer's contribution to a round then reports the peer to its user. If a peer holds up a sum and tells nothing,
the members that wait for it report it after the same time. A peer that evaluates for all tells the end of each
evaluation, however short, so that the others can account for their wait.

With `patience_s`, a peer that takes local steps for longer is given up. The most senior member that is not over that
time itself gives it up, if the others are enough to go on: in rounds once that member has contributed and waits, and
`by_clocks` at once. The peer is let in again after its `probation`.

Cost: none in a usual round; after an evaluation a message to each member.
On failure: the message is repeated. Work that blocks the event loop itself is noticed as the peer's silence.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

from ..channel import Channel, Envelope
from ..filling import Filling
from ..members.port import RunMembers
from ..meter import Meter
from ..testpoints import sometimes, witness
from ..transport import PeerId
from ..wire.frames import in_words
from .messages import Stall, Stalled, told_end, told_words
from .probation import Probation
from .works import AGAIN_S, EVALUATION, FIRST_S, LOCAL_STEPS, Usual, Work

_NOT_SOONER_S = 5.0
"""The least seconds between two reports on one peer, however often the peer tells that it is stalled."""


@dataclass(frozen=True, slots=True)
class _Wait:
    """A wait for others, since a time on the loop's clock. `awaited` returns the peers that are waited for.
    `came_s`: as for `Stalls.waiting`."""

    awaited: Callable[[], Collection[PeerId]]
    since_s: float
    came_s: Mapping[PeerId, float]


class Stalls:
    """One peer's side. It watches its own work, and tells all members when that takes far longer than usual. While it
    waits, it reports the peers that it waits for, which `meter` knows, to `on_stall`. With `patience_s`, it has the
    membership remove a peer whose local steps take longer than that, if it is the member to decide this. `version`
    returns the number of exchanges, called rounds here, that are over."""

    def __init__(self, channel: Channel, membership: RunMembers, meter: Meter, version: Callable[[], int]) -> None:
        self.meter = meter
        self.patience_s: float | None = None
        """Seconds that a peer may take local steps before the others go on without it; None: no limit."""
        self.by_clocks = False
        """Whether peers count their own exchanges and not common rounds, within a bound. Then the member that decides
        gives a peer up although it may not wait for that peer itself: others do, or will."""
        self.on_stall: list[Callable[[Stall], None]] = []
        self._channel, self._membership, self._round = channel, membership, version
        self._probation = Probation(membership)
        self._works: set[Work] = set()
        self._usual: defaultdict[str, Usual] = defaultdict(Usual)
        self._waits = Usual()
        self._heard: dict[PeerId, tuple[Stalled, float]] = {}
        """The last message of each other peer about itself, and when it was heard."""
        self._evaluations: dict[PeerId, Stalled] = {}
        """The last evaluation that each peer has told the end of."""
        self._unseen: int | None = None
        """The round in which a peer evaluated while this peer waited and did not know for which peer; None: none."""
        self._told_at: dict[PeerId, float] = {}
        """The peers that were reported, and when each was reported last."""
        self._wait: _Wait | None = None
        self._timer: asyncio.TimerHandle | None = None
        channel.on(Stalled, self._on_stalled)

    # This peer's own work

    def begin(self, kind: str, where: Callable[[], str]) -> Work:
        """Begin work of this `kind` by this peer, which others may wait for (`works`); the caller calls `end` of it,
        also when the work fails. `where` returns the progress, as a text for the user; "": none is known."""
        patience_s = self.patience_s if kind == LOCAL_STEPS else None
        work = Work(kind, where, self._usual[kind], patience_s=patience_s, overdue=self._overdue, ended=self._ended)
        self._works.add(work)
        return work

    @contextmanager
    def at_work(self, kind: str, where: Callable[[], str] = lambda: "") -> Iterator[Work]:
        """A context in which this peer does work of this `kind`; it gives the `Work`, and ends it also when an error is
        raised. `where` returns the progress, as a text; "": none is known."""
        work = self.begin(kind, where)
        try:
            yield work
        finally:
            work.end()

    def close(self) -> None:
        """Stop watching this peer's work and reporting the peers that it waits for. Nothing is sent."""
        for work in self._works:
            work.drop()
        self._works.clear()
        self._wait = None
        if self._timer is not None:
            self._timer.cancel()

    def _overdue(self, work: Work) -> None:
        sometimes("a peer's own work took too long")
        self._say(work, over=False)

    def _ended(self, work: Work) -> None:
        self._works.discard(work)
        if work.told or work.kind == EVALUATION:
            self._say(work, over=True)

    def _say(self, work: Work, *, over: bool) -> None:
        view, where = self._membership.view, in_words(work.where())
        said = Stalled(view.generation, self._round() + 1, work.kind, where, work.took_s, work.usual.s, over)
        witness(said)
        if self._membership.failed is None:
            for peer in view.ids:
                if peer != self._channel.endpoint.id:
                    self._channel.post(peer, said)
        if work.told:
            self._tell(
                self._channel.endpoint.id, told_end(said) if over else told_words(said), over=over, work=said.work
            )

    # Waiting for others

    def evaluation_awaited(self, round: int, waited_for: PeerId | None, wait_s: float) -> tuple[PeerId | None, float]:
        """The peer that this one waited for in `round`, and how many of the `wait_s` seconds of its wait that peer
        spent on an evaluation; 0.0: none is known. `waited_for`: the peer known to be late, which is returned as it is.
        If it is None (in a ring a peer sees only the next one), the first result is the peer whose evaluation took more
        than half of `wait_s`, if this peer waited when an evaluation ended, else None."""
        if waited_for is None and self._unseen == round:
            waited_for = next((peer for peer in self._evaluations if 2 * self._evaluated_s(peer, round) > wait_s), None)
        return waited_for, min(wait_s, self._evaluated_s(waited_for, round))

    def _evaluated_s(self, peer: PeerId | None, round: int) -> float:
        """Seconds that `peer` has told it evaluated before its contribution to `round`; 0: it has told of none."""
        said = None if peer is None else self._evaluations.get(peer)
        return 0.0 if said is None or said.round != round else max(0.0, said.taken_s)

    @contextmanager
    def waiting(
        self,
        awaited: Callable[[], Collection[PeerId]] | None = None,
        filling: Filling | None = None,
        came_s: Mapping[PeerId, float] = MappingProxyType({}),
    ) -> Iterator[None]:
        """While in this context, this peer waits for others, and reports them: a peer that has told that it is Stalled
        at once, a silent one after 60 s, or 10 times the usual wait if that is longer. `awaited` returns the peers that
        are waited for; None: those that the meter tells. `filling`: this peer's own contribution while it is
        incomplete; until it is complete, no other peer is reported; None: it is complete. `came_s`: of peers that have
        sent some of what is waited for, when they did so last, on the loop's clock; the caller keeps it up to date. A
        peer is silent since then. The context is not reentrant."""
        over = False

        def begin() -> None:
            if not over:
                self._begin_to_wait(_Wait(awaited or self._late, self._now(), came_s))

        if filling is None:
            begin()
        else:
            filling.when_whole(begin)
        before = self._round()
        try:
            yield
        finally:
            over = True
            if self._wait is not None and self._round() > before:
                self._waits.took(self._now() - self._wait.since_s)
                self._all_came()
            self._wait = None

    def _begin_to_wait(self, wait: _Wait) -> None:
        self._wait = wait
        if self._timer is None:  # a timer of an earlier round will do: setting one costs as much as a small round
            self._look_at(wait.since_s + FIRST_S)
        for peer, (said, _) in list(self._heard.items()):
            self._hear(peer, said)

    def _look_at(self, when: float) -> None:
        self._timer = asyncio.get_running_loop().call_at(when, self._look)

    def _look(self) -> None:
        """Report the peers that are waited for and have told no reason."""
        self._timer = None
        if self._wait is None:
            return
        now, wait = self._now(), self._wait
        limit_s = max(FIRST_S, self._waits.limit_s)
        if now < wait.since_s + limit_s:
            self._look_at(wait.since_s + limit_s)
            return
        self._look_at(now + AGAIN_S)
        for peer in wait.awaited():
            since_s = max(wait.since_s, wait.came_s.get(peer, wait.since_s))
            if now >= since_s + limit_s and peer not in self._heard and peer != self._channel.endpoint.id:
                silent = f"nothing of its contribution for {now - since_s:.0f} s"
                self._tell(peer, f"it is there, but {silent}, without a reason")

    def _all_came(self) -> None:
        """A round is committed, so all contributions to it have arrived: report that the stalls before it are over."""
        for peer, (said, _) in list(self._heard.items()):
            if said.round <= self._round():
                self._is_over(peer, "its contribution has come")
        for peer in [peer for peer in self._told_at if peer not in self._heard and peer != self._channel.endpoint.id]:
            self._is_over(peer, "its contribution has come")

    def _on_stalled(self, envelope: Envelope) -> None:
        said: Stalled = envelope.message
        peer, ids = envelope.sender, self._membership.view.ids
        if not self._membership.current(envelope, said.generation) and peer not in ids:
            return
        self._heard = {other: heard for other, heard in self._heard.items() if other in ids}
        self._told_at = {other: at for other, at in self._told_at.items() if other in ids}
        self._evaluations = {other: last for other, last in self._evaluations.items() if other in ids}
        if said.over and said.work == EVALUATION:
            self._evaluations[peer] = said
            if self.meter.waits and not self.meter.late:
                self._unseen = said.round
        if said.over:
            self._is_over(peer, told_end(said))
        else:
            self._heard[peer] = said, self._now()
            self._hear(peer, said)

    def _hear(self, peer: PeerId, said: Stalled) -> None:
        """Report `peer` if this peer waits for its contribution. In a round the meter does not always know for whom it
        waits (in a ring it sees the next peer only), so any peer that is stalled is reported then."""
        wait, waits = self._wait, False
        if wait is not None and self._is_due(said):
            waits = wait.awaited == self._late or peer in wait.awaited()
        if waits:
            self._tell(peer, told_words(said), work=said.work)
        if waits or self.by_clocks:
            self._judge()

    def _is_due(self, said: Stalled) -> bool:
        return self.by_clocks or said.round <= self._round() + 1

    def _late(self) -> Collection[PeerId]:
        return self.meter.late

    def _is_over(self, peer: PeerId, why: str) -> None:
        self._heard.pop(peer, None)
        if peer in self._told_at:
            self._tell(peer, why, over=True)

    def _tell(self, peer: PeerId, why: str, *, over: bool = False, work: str = "") -> None:
        now, last = self._now(), self._told_at.pop(peer, None)
        if not over:
            again = last is None or now >= last + _NOT_SOONER_S
            self._told_at[peer] = now if last is None or again else last
            if not again:
                return
        stall = Stall(peer, why, over, work)
        witness(stall)
        for told in self.on_stall:
            told(stall)

    # Going on without a peer

    def _judge(self) -> None:
        """If this peer is the one that decides, give up the peers that have taken local steps for too long."""
        membership, patience_s = self._membership, self.patience_s
        if patience_s is None:
            return
        now, over = self._now(), dict[PeerId, tuple[Stalled, float]]()
        for peer in membership.view.ids:
            said, heard_at = self._heard.get(peer, (None, 0.0))
            if said is not None and said.work == LOCAL_STEPS and self._is_due(said):
                taken_s = said.taken_s + now - heard_at
                if taken_s >= 0.99 * patience_s:  # timers are not that exact
                    over[peer] = said, taken_s
        judge = next((peer for peer in membership.view.by_seniority if peer not in over), None)
        for peer, (said, taken_s) in over.items():
            if judge == self._channel.endpoint.id and membership.can_spare(peer, reserve=False):
                sometimes("a peer that computed for too long was given up")
                del self._heard[peer]
                why = f"{taken_s:.0f} s of {said.work} for round {said.round}, with --compute-patience-s {patience_s:g}"
                self._probation.add(peer, taken_s if self._wait is None else now - self._wait.since_s, why)
                membership.suspect(peer, why)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
