"""Chunks: a vector on its way, piece by piece, and where they wait for whoever reduces them."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from ..endpoint import Endpoint, Envelope
from ..rounds import Key
from ..transport import PeerId
from ..wire import Lane, message


@message(lane=Lane.DATA, payload_max=1 << 20)
@dataclass(frozen=True, slots=True)
class Chunk:
    """Payload: `count` of the sender's elements, from the one at index `at` on, as it has them in `step`."""

    generation: int
    round: int
    step: int
    at: int
    count: int


@dataclass(slots=True)
class _Queue:
    waiting: deque[Envelope] = field(default_factory=deque)
    taker: asyncio.Future[None] | None = None


class Inbox:
    """Chunks of this and coming rounds, by (generation, round) and sender; what is too old is dropped and counted."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.stale = 0
        self.waited_s = 0.0
        """For others to begin with what is due next. Whoever wants to know for how long sets it to 0 before."""
        self._floor: Key = (0, 0)
        self._queues: dict[Key, dict[PeerId, _Queue]] = {}
        endpoint.on(Chunk, self._put)

    def advance(self, floor: Key) -> None:
        """Chunks of attempts before `floor` are not wanted any more."""
        self._floor = floor
        for key in [key for key in self._queues if key < floor]:
            for queue in self._queues.pop(key).values():
                for envelope in queue.waiting:
                    envelope.done()

    def has(self, key: Key, sender: PeerId) -> bool:
        """Whether a chunk of `sender` waits."""
        queue = self._queues.get(key, {}).get(sender)
        return queue is not None and bool(queue.waiting)

    async def take(self, key: Key, sender: PeerId) -> Envelope:
        """The next chunk of `sender`, who may not be there yet."""
        queue = self._queues.setdefault(key, {}).setdefault(sender, _Queue())
        while not queue.waiting:
            queue.taker = asyncio.get_running_loop().create_future()
            await queue.taker
        return queue.waiting.popleft()

    def _put(self, envelope: Envelope) -> None:
        key = (envelope.message.generation, envelope.message.round)
        if key < self._floor:
            self.stale += 1
            envelope.done()
            return
        queue = self._queues.setdefault(key, {}).setdefault(envelope.sender, _Queue())
        queue.waiting.append(envelope)
        if queue.taker is not None and not queue.taker.done():
            queue.taker.set_result(None)
