"""Portions: a coordinator gives small pieces of the data to workers that ask, and at the end of a step the ones that
are not done to idle workers as well (backup tasks), so that a slow worker holds nobody up.

Source: Dean et al., NIPS 2012, section 4.2. The first push of a portion counts, so a backup task needs no agreement.

On failure: a worker may hang, or have pushed a portion to some ranges only. One that has waited for the end of the step
for long asks again, and gets any portion that it has not mapped itself.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

from ..channel import Channel, Envelope
from ..link.link import PeerLost
from ..members.view import View
from ..transport import PeerId
from .coordination import Portion, Take
from .intake import Intake
from .lost_range import taken
from .messages import COORDINATOR, NotTaken
from .store import Copy, Store
from .tenure import Tenure, placement_of

_AT_ONCE = 2
"""The most workers that have one portion at the same time, unless some have waited for long."""
_AGAIN_PATIENCES = 4


class Portions:
    """Gives out the portions of the present step to workers that ask, at the head of the first range. In another view
    it forgets which worker has which portion."""

    def __init__(self, channel: Channel, store: Store, tenure: Tenure, intake: Intake) -> None:
        self._channel, self._store, self._tenure, self._intake = channel, store, tenure, intake
        self._step = 0
        self._holders: defaultdict[int, set[PeerId]] = defaultdict(set)
        """By portion, the workers that have it."""
        tenure.handler(Take, self._on_take, tenure.from_worker_to_coordinator)

    def begin(self) -> None:
        """Forget which workers have portions, because a new view begins: portions of a worker that may be gone are
        given out again."""
        self._holders.clear()

    def close(self) -> None:
        """Do nothing: no work is under way."""

    def _on_take(self, envelope: Envelope) -> None:
        take: Take = envelope.message
        self._channel.post(envelope.sender, Portion(take.ask, 1 + self._given(envelope.sender, take)))

    def _given(self, worker: PeerId, take: Take) -> int:
        """The portion for `worker`; -1: none."""
        copy, step = self._store.copies[0], take.step
        if step != copy.clocks[COORDINATOR]:
            return -1
        if step != self._step:
            self._step = step
            self._holders.clear()
        free = self._left(worker) if take.again else self._free(worker, copy, step)
        if not free:
            return -1
        workers = self._tenure.workers
        place, many = workers.index(worker) if worker in workers else 0, max(1, len(workers))
        chosen = min(free, key=lambda one: (len(self._holders[one]), one % many != place, one))
        self._holders[chosen].add(worker)
        return chosen

    def _free(self, worker: PeerId, copy: Copy, step: int) -> list[int]:
        """The portions that are not done yet and that `worker` may have now. `copy`: of the first range."""
        # The pusher of a portion may be gone that this range has and another has not: if all of them are here, each
        # portion is given out once in a new view.
        most = _AT_ONCE if copy.updates < step else 1
        left = [
            one for one, name in enumerate(self._store.partitions) if most == 1 or not self._intake.has(0, name, step)
        ]
        return [one for one in left if len(self._holders[one]) < most and worker not in self._holders[one]]

    def _left(self, worker: PeerId) -> list[int]:
        """The portions that `worker` has not had in this step and view. If it has had each, it is given them anew when
        it asks the next time, because it may not have heard of one."""
        every = range(len(self._store.partitions))
        left = [one for one in every if worker not in self._holders[one]]
        if not left:
            for one in every:
                self._holders[one].discard(worker)
        return left


class Taker:
    """A worker's side: asks for portions. `copies`: the number of copies of each range, from which the chain of the
    first range follows."""

    def __init__(self, channel: Channel, copies: int) -> None:
        self._channel, self._copies = channel, copies

    @property
    def patience_s(self) -> float:
        """Seconds that a worker without a portion waits for the end of a step before it asks for one again."""
        return _AGAIN_PATIENCES * self._channel.endpoint.patience_s

    async def take(self, view: View, step: int, *, again: bool = False) -> int:
        """The portion to map in `step`; -1: none is left for this worker now, `step` is not the present one, or there
        is no server. `again`: see `Take`. Asks until the server answers: the caller cancels it when `view` is over.
        Raises LostRange."""
        chain = placement_of(view, self._copies).chain(0)
        while chain:
            try:
                answer = await self._channel.ask(
                    chain[0], lambda ask: Take(ask, view.generation, step, again), answers=(Portion, NotTaken)
                )
                portion: Portion = taken(answer.message)
                return portion.of - 1
            except PeerLost as lost:
                self._channel.endpoint.retry(lost.peer)
            await asyncio.sleep(self._channel.endpoint.interval_s)
        return -1
