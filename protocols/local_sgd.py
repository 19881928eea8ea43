"""Local-update SGD over allreduce: every peer takes some local steps, then all take the weighted mean of their models.

PASGD (Wang & Joshi, SysML 2019, 1810.08313, eq. 3): x_i <- x_i - eta g_i for `period` steps, then x_i <- mean_j x_j,
here weighted by samples. The period is a function of what the round itself has averaged (loss, elapsed time, learning
rate ride along in the vector), so all peers agree on the next one without a message more.

| paper | here |
|---|---|
| x_i | `Contribution.vector` |
| tau | `State.period.period` |
| m | the members of the view who contributed a weight above 0 |

Cost: the schedule's, for n + 4 elements, and one round trip to the coordinator: each tells it Have (with the
fingerprint of its result), and when more than half have the same result it answers Commit to all.
On loss, lateness, death: the view changes, and the round is run again with the same contributions among those who are
left, unless one of them holds the result: then all take that. A peer that comes too late for a round catches up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from ..aggregation.mean import combine, contribute
from ..aggregation.outer import OuterStep
from ..aggregation.period import PeriodPolicy
from ..aggregation.schedule import Schedule
from ..aggregation.vector import Layout
from .allreduce import Inbox, Key, allreduce
from .catch_up import CatchUpFailed, Donor, fetch_state
from .endpoint import Endpoint, Envelope
from .link import PeerLost
from .membership import Expelled, Membership, Standing
from .state import State, fingerprint
from .transport import PeerId
from .view import View
from .wire import message

_SIGNALS = 3


@message()
@dataclass(frozen=True, slots=True)
class Have:
    """Told to the coordinator: I have the result of this round, and this is its fingerprint."""

    generation: int
    round: int
    fingerprint: int


@message()
@dataclass(frozen=True, slots=True)
class Commit:
    """Told by the coordinator: more than half have this result; apply it."""

    generation: int
    round: int
    fingerprint: int


@dataclass(frozen=True, slots=True)
class Contribution:
    """What a peer brings to a round: its model after the local steps [n], the samples it saw as weight (0: nothing,
    I only follow), its mean loss, its learning rate, and the seconds it has trained since the run began."""

    vector: Tensor
    weight: float
    loss: float
    learning_rate: float
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """A round that is over, with the agreed mean loss and training time. `caught_up`: this peer did not average but
    took the result from another; then loss and time are its own."""

    state: State
    loss: float
    elapsed_s: float
    generation: int
    members: int
    caught_up: bool
    wait_s: float
    transfer_s: float


@dataclass(frozen=True, slots=True)
class _Result:
    key: Key
    state: State
    loss: float
    elapsed_s: float
    fingerprint: int


class LocalSGD:
    """One peer's part in the averaging, and the keeper of its committed `state`."""

    def __init__(
        self,
        endpoint: Endpoint,
        membership: Callable[[Callable[[], Standing], Callable[[View, int, tuple[PeerId, ...]], None]], Membership],
        *,
        layout: Layout,
        schedule: Callable[[int], Schedule],
        period: PeriodPolicy,
        outer: OuterStep,
        state: State,
        steps: int | None = None,
    ) -> None:
        """`membership` builds it from the two things it must know of us; `schedule` chooses one for a world size;
        `steps`: local steps of the whole run, None without end."""
        self.endpoint, self.state, self.steps = endpoint, state, steps
        self.membership = membership(self._standing, self._installed)
        self._layout, self._schedule, self._period, self._outer = layout, schedule, period, outer
        self._inbox = Inbox(endpoint)
        self._result: _Result | None = None
        self._behind: tuple[int, tuple[PeerId, ...]] | None = None
        self._votes: dict[Key, dict[int, set[PeerId]]] = {}
        self._commits: dict[Key, int] = {}
        self._fingerprint: tuple[int, int] = (-1, 0)
        Donor(endpoint, lambda: self.state)
        endpoint.on(Have, self._on_have)
        endpoint.on(Commit, self._on_commit)

    @property
    def period(self) -> int:
        """Local steps until the next average; fewer at the end of the run, 0 when it is over."""
        period = self.state.period.period
        return period if self.steps is None else max(0, min(period, self.steps - self.state.step))

    async def enter(self, contact: PeerId) -> None:
        """Join through `contact`: fetch the state, be let in. Raises JoinRefused, PeerLost, CatchUpFailed."""
        while True:
            welcome = await self.membership.knock(contact)
            ahead = (welcome.round, welcome.fingerprint) != (self.state.round, self._standing().fingerprint)
            if ahead and welcome.round >= self.state.round:
                donors = [contact, *(peer for peer in welcome.view.ids if peer != contact)]
                self._adopt(await fetch_state(self.endpoint, donors, self._layout, round=welcome.round))
            await self.membership.join(contact)
            try:
                async with asyncio.timeout(4 * self.endpoint.patience_s):
                    await self.membership.until(lambda: self.membership.view.generation > 0)
                    return
            except TimeoutError:
                pass  # the coordinator died with our introduction in its hands: introduce ourselves again

    async def average(self, contribution: Contribution) -> Outcome:
        """Average with all members; returns when the round is committed here, or has been caught up with.

        Raises MembershipError when this peer cannot go on, ValueError when the contribution is not finite.
        """
        loop = asyncio.get_running_loop()
        began, due = loop.time(), self.state.round + 1
        signals = (contribution.loss, contribution.elapsed_s, contribution.learning_rate)
        brought = contribute(contribution.vector, contribution.weight, signals)
        while True:
            try:
                await self.membership.until(lambda: self.membership.settled)
                if self._behind is not None:
                    await self._catch_up()
                if self.state.round >= due:
                    return self._outcome(began, contribution.loss, contribution.elapsed_s, caught_up=True)
                key = (self.membership.view.generation, due)
                if await self._in_generation(key, brought) and self._result is not None:
                    result = self._result
                    self._commit(result)
                    return self._outcome(began, result.loss, result.elapsed_s, caught_up=False, key=key)
            except Expelled as expelled:
                await self.enter(expelled.contact)

    async def _in_generation(self, key: Key, brought: Tensor) -> bool:
        """One attempt; False when the view changed under it."""
        attempt = asyncio.create_task(self._attempt(key, brought), name=f"round {key}")
        change = asyncio.create_task(self.membership.until(lambda: not self._in(key)))
        try:
            await asyncio.wait((attempt, change), return_when=asyncio.FIRST_COMPLETED)
            if attempt.done():
                try:
                    await attempt
                    return True
                except PeerLost as lost:
                    self.membership.suspect(lost.peer, lost.why)
            await change
            return False
        finally:
            attempt.cancel()
            change.cancel()
            await asyncio.gather(attempt, change, return_exceptions=True)

    def _in(self, key: Key) -> bool:
        return self.membership.settled and self.membership.view.generation == key[0] and self._behind is None

    async def _attempt(self, key: Key, brought: Tensor) -> None:
        view = self.membership.view
        self._inbox.advance(key)
        schedule = self._schedule(len(view.members))
        total = await allreduce(self.endpoint, self._inbox, view.ids, schedule, brought, key=key)
        self._result = self._result_of(key, total)
        have = Have(*key, self._result.fingerprint)
        if self.membership.coordinator == self.endpoint.id:
            self._vote(self.endpoint.id, have)
        elif self.membership.coordinator is not None:
            self.endpoint.post(self.membership.coordinator, have)
        if self._commits.get(key, self._result.fingerprint) != self._result.fingerprint:
            self._result, self._behind = None, (key[1], ())
        await self.membership.until(lambda: key in self._commits)

    def _result_of(self, key: Key, total: Tensor) -> _Result:
        mean = combine(total, _SIGNALS)
        loss, elapsed_s, learning_rate = mean.signals
        before = self.state
        vector, outer = self._outer.step(before.vector, mean.vector, before.outer)
        period = self._period.update(before.period, loss=loss, elapsed_s=elapsed_s, learning_rate=learning_rate)
        state = State(before.round + 1, before.step + self.period, vector, outer, period)
        return _Result(key, state, loss, elapsed_s, fingerprint(total))

    def _on_have(self, envelope: Envelope) -> None:
        if self.membership.current(envelope, envelope.message.generation):
            self._vote(envelope.sender, envelope.message)

    def _vote(self, voter: PeerId, have: Have) -> None:
        key = (have.generation, have.round)
        if self.membership.coordinator != self.endpoint.id or key in self._commits:
            return
        voters = self._votes.setdefault(key, {}).setdefault(have.fingerprint, set())
        voters.add(voter)
        if len(voters) >= self.membership.view.majority():
            commit = Commit(*key, have.fingerprint)
            for peer in self.membership.view.ids:
                if peer != self.endpoint.id:
                    self.endpoint.post(peer, commit)
            self._note_commit(commit)

    def _on_commit(self, envelope: Envelope) -> None:
        commit: Commit = envelope.message
        if self.membership.current(envelope, commit.generation):
            self._note_commit(commit)

    def _note_commit(self, commit: Commit) -> None:
        key = (commit.generation, commit.round)
        if self._result is not None and self._result.key == key and self._result.fingerprint != commit.fingerprint:
            self._result, self._behind = None, (commit.round, ())  # ours is not what the others have: take theirs
        self._commits = {known: bits for known, bits in self._commits.items() if known[1] >= key[1]}
        self._commits[key] = commit.fingerprint
        self._votes = {known: votes for known, votes in self._votes.items() if known > key}
        self.membership.notify()

    def _commit(self, result: _Result) -> None:
        self.state, self._result = result.state, None

    def _adopt(self, state: State) -> None:
        self.state, self._result, self._behind = state, None, None

    async def _catch_up(self) -> None:
        assert self._behind is not None
        round_, donors = self._behind
        members = [peer for peer in self.membership.view.ids if peer != self.endpoint.id and peer not in donors]
        others = [peer for peer in donors if peer != self.endpoint.id]
        try:
            state = await fetch_state(self.endpoint, [*others, *members], self._layout, round=round_)
        except CatchUpFailed:
            if self._behind == (round_, donors) and self.membership.settled:
                raise
            return  # the view changes: it names donors that live
        if state.round >= round_:
            self._adopt(state)

    def _standing(self) -> Standing:
        held = self.state.round if self._result is None else max(self.state.round, self._result.state.round)
        if self._fingerprint[0] != self.state.round:
            self._fingerprint = (self.state.round, fingerprint(self.state.vector))
        return Standing(held, self._fingerprint[1])

    def _installed(self, view: View, round_: int, donors: tuple[PeerId, ...]) -> None:
        """A new view goes on from `round_`: a result held for it is committed, a missing one is fetched."""
        if self._result is not None and self._result.state.round == round_:
            self._commit(self._result)
        self._result = None
        self._behind = (round_, donors) if round_ > self.state.round else None

    def _outcome(
        self, began: float, loss: float, elapsed_s: float, *, caught_up: bool, key: Key | None = None
    ) -> Outcome:
        now, view = asyncio.get_running_loop().time(), self.membership.view
        first = now if key is None else self._inbox.first_at.get(key, now)
        first = min(max(first, began), now)
        return Outcome(
            state=self.state,
            loss=loss,
            elapsed_s=elapsed_s,
            generation=view.generation,
            members=len(view.members),
            caught_up=caught_up,
            wait_s=first - began,
            transfer_s=now - first,
        )
