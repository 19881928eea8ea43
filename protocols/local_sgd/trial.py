"""A trial: one attempt at a round, from this peer's contribution to a result that all members may commit.

First the members make the sum. When more than half have the same result, that is the verdict (`commit`). If the verdict
is that the sum was bad, an inquest finds the guilty peer (`inquest`); if none is guilty, sum and verdict are repeated.
In shared memory all peers read the same result, and only wait until all hold it.
"""

from __future__ import annotations

from collections.abc import Callable

from ...aggregation.mean import BadSum, Mean, contribute
from ..collectives.reducer import Reducer
from ..members.membership import Membership
from ..members.view import Version
from ..offload import off_loop
from ..testpoints import sometimes, witness
from ..transfer.chunks import AttemptId
from .averagers import Averager
from .commit import BAD, Verdicts
from .inquest import Inquest
from .results import Results
from .rounds import Computed, Contribution, Result
from .state import State


class Trial:
    """Makes one peer's attempts at a round: computes the mean, has the members vote on it, and, if they find the sum
    bad, looks for the guilty member and sums again. `hopeful` returns whether an attempt can still succeed. `keep` is
    called with a result before other peers hear of it, and with None when there is no result. `version` returns the
    version of a state."""

    def __init__(
        self,
        membership: Membership,
        averager: Averager,
        reducer: Reducer,
        verdicts: Verdicts,
        results: Results,
        *,
        inquest: Inquest,
        hopeful: Callable[[AttemptId], bool],
        keep: Callable[[Result | None], None],
        version: Callable[[State], Version],
    ) -> None:
        self.bad: AttemptId | None = None
        """The last attempt whose sum was bad on this peer."""
        self._membership, self._averager, self._reducer, self._verdicts = membership, averager, reducer, verdicts
        self._results, self._inquest, self._hopeful, self._keep = results, inquest, hopeful, keep
        self._version = version

    async def make(self, attempt: AttemptId, contribution: Contribution, before: State, steps: int) -> Result | None:
        """Run one attempt at the round after `before`, with this peer's `contribution`. Returns a result that the
        caller commits at once; None: the caller asks `Verdicts.on` whether there is a verdict, and which result to
        commit. `steps`: local steps since `before`. Raises PeerLost, and ValueError when the contribution is not
        finite, or when there is no mean and no peer is to blame."""
        if len(self._membership.view.ids) == 1 and contribution.weight > 0:
            return await self._alone(attempt, contribution, before, steps)
        try:
            result = await self._computed(attempt, contribution, before, steps)
        except BadSum:
            result, self.bad = None, attempt
        if not self._hopeful(attempt):
            return None  # this peer has promised to commit nothing more in this generation, and told what it holds
        await self._hold(result)
        if result is not None and self._reducer.in_place:
            await self._reducer.all_have(attempt)
            return result
        await self._verdicts.reach(attempt, BAD if result is None else result.fingerprint)
        if self._verdicts.on(attempt) == BAD:
            await self._hold(None)
            async with self._inquest.on_round(contribution, before.vector, attempt):
                result = await self._computed(attempt, contribution, before, steps)
            await self._hold(result)
            await self._verdicts.reach(attempt, result.fingerprint, again=1)
        return None

    async def _alone(self, attempt: AttemptId, contribution: Contribution, before: State, steps: int) -> Result:
        """The result where this peer is the only member: the mean is its own vector, to the bit."""
        vector, weight, signals = contribution.vector, contribution.weight, contribution.signals
        if contribution.filling is not None:
            vector = await contribution.filling.whole()
        tail = contribute(vector[:0], weight, signals)
        await off_loop(vector.nbytes, lambda: contribution.check(vector, tail))
        return self._results.of(before, steps, attempt, Mean(vector, signals, weight, 0.0), 0)

    async def _computed(self, attempt: AttemptId, contribution: Contribution, before: State, steps: int) -> Result:
        """The result of the members' sum. Raises PeerLost, BadSum, ValueError."""
        mean, mark = await self._averager.mean(contribution, before.vector, attempt)
        if mean is None:
            sometimes("nobody contributed to a round")
            return self._results.idle(before, attempt, contribution, mark)
        agreed = mean
        return await off_loop(before.vector.nbytes, lambda: self._results.of(before, steps, attempt, agreed, mark))

    async def _hold(self, result: Result | None) -> None:
        """Keep `result` for a later commit, and record this peer's vote for it."""
        self._keep(result)
        if result is not None:
            await self._membership.vote(lambda: self._version(result.state))
            witness(Computed(result.attempt, result.fingerprint))
