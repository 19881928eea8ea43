"""Chunks: a vector on its way, piece by piece, and where they wait for whoever reduces them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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


class Inbox:
    """Chunks of this and coming rounds, by (generation, round) and sender; what is too old is dropped and counted."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.stale = 0
        self.waited_s = 0.0
        """For others to begin with what is due next. Whoever wants to know for how long sets it to 0 before."""
        self._floor: Key = (0, 0)
        self._waiting: dict[Key, dict[PeerId, deque[Envelope]]] = {}
        self._told: tuple[Key, Callable[[PeerId], None]] | None = None
        endpoint.on(Chunk, self._put)

    def advance(self, floor: Key) -> None:
        """Chunks of attempts before `floor` are not wanted any more."""
        self._floor = floor
        for key in [key for key in self._waiting if key < floor]:
            for envelopes in self._waiting.pop(key).values():
                for envelope in envelopes:
                    envelope.done()

    @contextmanager
    def listening(self, key: Key, told: Callable[[PeerId], None]) -> Iterator[None]:
        """Call `told` with the sender of each chunk of `key` that comes."""
        self._told = mine = (key, told)
        try:
            yield
        finally:
            if self._told is mine:
                self._told = None

    def take(self, key: Key, sender: PeerId) -> Envelope | None:
        """The next chunk of `sender`, if there is one."""
        envelopes = self._waiting.get(key, {}).get(sender)
        return envelopes.popleft() if envelopes else None

    def _put(self, envelope: Envelope) -> None:
        key = (envelope.message.generation, envelope.message.round)
        if key < self._floor:
            self.stale += 1
            envelope.done()
            return
        self._waiting.setdefault(key, {}).setdefault(envelope.sender, deque()).append(envelope)
        if self._told is not None and self._told[0] == key:
            self._told[1](envelope.sender)
