"""A learner is a peer that was admitted after the start and is not a member yet. It fetches the state, and reports this
to the coordinator. In the next view it is a member (`members.learning`). A peer whose connection is too slow for the
others stays a learner: it fetches again from time to time, so that its state is recent, but uses at most a tenth of the
time of its connection and of its donor's.

On failure: when a donor is lost, the learner asks the next one. When no donor gives the state, it tries again, until
all members have ended or `Terms.give_up_after_s` is over: MembershipError. When no member is left that could lead:
MembershipError if all have left or ended, else Expelled, upon which this peer joins again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...aggregation.vector import Layout
from ..channel import Channel
from ..members.attached import Standing
from ..members.errors import Expelled, MembershipError
from ..members.membership import Membership
from ..members.view import Version
from ..testpoints import sometimes, witness
from ..transfer.snapshot_transfer import CatchUpFailed
from .catch_up import Wanted, fetch_state
from .rounds import Fetches
from .state import State

_REST = 9
"""A learner that is too slow pauses for this many times as long as its fetch took."""


class Learner:
    """Takes this peer from a view in which it is a learner to one in which it is a member, each time that it joins. The
    caller repeats `learn` for as long as the peer is a learner. `standing` returns the versions that this peer holds;
    `over` returns whether the run is over in its state: then it reports nothing more. `adopt` is called with each state
    that was fetched; nothing is fetched while this peer holds the members' version, unless it was too slow before, or a
    member has finished."""

    def __init__(
        self,
        channel: Channel,
        membership: Membership,
        layout: Layout,
        outer: int,
        *,
        standing: Callable[[], Standing],
        over: Callable[[], bool],
        adopt: Callable[[State], None],
    ) -> None:
        """`outer`: number of tensors of the outer step."""
        self._channel, self._membership, self._layout, self._outer = channel, membership, layout, outer
        self._standing, self._over, self._adopt = standing, over, adopt
        self._life = 0
        self._took_s: float | None = None
        self._again_s = 0.0
        """When a learner that was too slow fetches again, on the loop's clock."""
        self._failing_since_s: float | None = None
        self._kept: dict[bytes, bytes] = {}

    async def learn(self) -> None:
        """Fetch the state if this peer does not hold a recent one, report it to the coordinator, and wait until
        something changes, for the endpoint's patience at most. The caller repeats this while the peer is a learner.
        Raises Expelled and MembershipError."""
        membership, now = self._membership, asyncio.get_running_loop().time
        if self._life != membership.me.life:
            self._life, self._took_s, self._failing_since_s = membership.me.life, None, None
        if not membership.leaders:
            sometimes("a learner lost all members")
            if membership.deserted:
                raise MembershipError("all members of the run have left, this peer was not one yet")
            raise Expelled(membership.view.by_seniority[0])  # the members have lost this peer too, and tell it nothing
        if self._took_s == 0.0 and self._standing().state.number < membership.base.number:
            self._took_s = None  # this peer came with the others' version, and they have gone on since
        if self._took_s is None or now() >= self._again_s > 0 or membership.finished:
            await self._fetch()
        if self._took_s is None or not membership.learns or self._over():
            return
        generation, until_s = membership.view.generation, now() + self._channel.endpoint.patience_s
        membership.learning.tell(self._standing().state, self._took_s)
        if membership.finished:
            await asyncio.sleep(
                self._channel.endpoint.interval_s
            )  # its last round is committed there: soon it can be fetched
        while self._same(generation) and now() < until_s:
            if membership.learning.within_s is not None and not self._again_s:
                self._rest(membership.learning.within_s)
            await membership.change_within(until_s - now())

    def _same(self, generation: int) -> bool:
        membership = self._membership
        learns = membership.learns and membership.failed is None and membership.leaders != ()
        return learns and not membership.finished and membership.view.generation == generation

    def _rest(self, within_s: float) -> None:
        assert self._took_s is not None
        rest_s = max(_REST * self._took_s, self._channel.endpoint.patience_s)
        self._again_s = asyncio.get_running_loop().time() + rest_s
        took = f"to fetch the state took {self._took_s:.1f} s, and all would wait for it: {within_s:.1f} s would do"
        self._membership.tell_waiting(f"it stays a learner, as its connection is slow: {took}; again in {rest_s:.0f} s")

    async def _fetch(self) -> None:
        membership, now = self._membership, asyncio.get_running_loop().time
        began_s, base, own, again = now(), membership.base, self._standing().state, self._again_s > 0
        there = own == base or base.number < own.number <= base.number + 1
        if there and not again and not membership.finished:
            self._took_s, self._failing_since_s = 0.0, None  # it already has the others' version
            return
        newest = Wanted(Version(own.number + 1, 0), own.number)
        wanted = Wanted(base, base.number) if base.number > own.number else newest
        # Members that have finished hold the last round, so they come first.
        members = sorted(membership.view.by_seniority, key=lambda peer: peer not in membership.finished)
        try:
            async with membership.only_while(lambda: membership.learns):
                version = wanted.version
                witness(Fetches(version.number, version.fingerprint, wanted.least, lags=False))
                state = await fetch_state(
                    self._channel, members, self._layout, outer=self._outer, wanted=wanted, kept=self._kept
                )
                self._kept.clear()
                self._adopt(state)
                self._took_s, self._again_s, self._failing_since_s = now() - began_s, 0.0, None
        except CatchUpFailed as error:
            self._failed(members, error)
            await asyncio.sleep(self._channel.endpoint.interval_s)

    def _failed(self, members: list[str], error: CatchUpFailed) -> None:
        """No donor gives the state now. Raises MembershipError when no donor ever will."""
        now, limit_s = asyncio.get_running_loop().time(), self._membership.terms.give_up_after_s
        self._failing_since_s = self._failing_since_s or now
        waited_s = now - self._failing_since_s
        if all(map(self._channel.endpoint.has_ended, members)) or (limit_s is not None and waited_s > limit_s):
            raise MembershipError(f"no member of the run is left to learn from, this peer was not one yet: {error}")
        self._membership.tell_waiting(f"no member gives it the state; it waits for them: {error}")
