"""Chunks: pieces of a vector in transit, and the inbox in which they wait until a sum or a receiver takes them.

An epoch is the number of a group of peers among those of its conversation. Chunks of the present epoch are accepted
from the members of its group. A peer that is ahead of this one sends chunks of an epoch that this one has not heard of,
and may be unknown here: its chunks wait too, but the bytes of all such peers together are limited. Waiting chunks are
dropped with the link through which they came: a peer that was started again does not continue its former sums.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..channel import Channel, Envelope
from ..group import NO_GROUP, Group
from ..meter import Meter
from ..transport import PeerId
from ..wire.frames import PAYLOAD_BYTES_MAX, Lane, PeerMisbehaved, message

CELL = 1 << 14
"""The most elements that a hop codec encodes as a unit: a multiple of all codecs' blocks, and few enough for a slow
link."""
EARLY_BYTES_MAX, EARLY_BYTES_PER_PEER_MAX = 32 << 20, 8 << 20
"""The most bytes of chunks of later epochs that wait here from peers that are not expected in the next group: of all
such peers together, and of each."""

_ROUNDS_AHEAD_MAX = 16
"""The most rounds that a chunk may be ahead in one epoch. An honest peer is at most one ahead, because each sum waits
for every member."""


@message("vectors", lane=Lane.DATA, payload_max=PAYLOAD_BYTES_MAX)
@dataclass(frozen=True, slots=True)
class Chunk:
    """Payload: `count` elements of the sender's vector, from index `at` on, with the values that they have in step
    `step` of the schedule. `stage`: index of the sum among the round's sums."""

    epoch: int
    round: int
    stage: int
    step: int
    at: int
    count: int


AttemptId = tuple[int, int]
"""(epoch, round): one attempt at a round of sums."""
StageId = tuple[int, int, int]
"""(epoch, round, stage): one attempt at one sum, or at one vector from one peer to another. The stage tells apart the
sums or vectors of a round."""


class Inbox:
    """The chunks that have arrived and are not taken yet, by stage id and sender. `stale`: the number of chunks that
    were dropped as they arrived, because they are of an old attempt, or of a group that the sender is not in, or
    because there was no room. `group` returns the present group; `NO_GROUP` accepts chunks from any peer."""

    def __init__(
        self, channel: Channel, group: Callable[[], Group] = lambda: NO_GROUP, meter: Meter | None = None
    ) -> None:
        """`meter`: counts the time of the sums; None: a new one."""
        self.stale = 0
        self.meter = Meter() if meter is None else meter
        self._group = group
        self._floor: AttemptId = (0, 0)
        self._waiting: dict[StageId, dict[PeerId, deque[Envelope]]] = {}
        self._waiting_bytes = Counter[PeerId]()
        self._listeners: dict[StageId, list[Callable[[PeerId], None]]] = {}
        channel.on(Chunk, self._put)
        channel.endpoint.on_ended.append(self._drop)

    def advance(self, floor: AttemptId) -> None:
        """Drop chunks of attempts before `floor`, now and when they arrive. A lower `floor` than before is allowed."""
        self._floor = floor
        for stage_id in [stage_id for stage_id in self._waiting if stage_id[:2] < floor]:
            for sender in [*self._waiting[stage_id]]:
                self._drop_of(stage_id, sender)

    @contextmanager
    def listening(self, stage_id: StageId, told: Callable[[PeerId], None]) -> Iterator[None]:
        """While in this context, `told` is called with the sender of each chunk of this stage that arrives, and can be
        taken then. It is not called for chunks that are waiting already."""
        listeners = self._listeners.setdefault(stage_id, [])
        listeners.append(told)
        try:
            yield
        finally:
            listeners.remove(told)
            if not listeners and self._listeners.get(stage_id) is listeners:
                del self._listeners[stage_id]

    def take(self, stage_id: StageId, sender: PeerId) -> Envelope | None:
        """Remove and return the next chunk of this stage from `sender`; None: none is waiting. The caller calls its
        `done` once it has consumed the payload."""
        envelopes = self._waiting.get(stage_id, {}).get(sender)
        if not envelopes:
            return None
        self._waiting_bytes[sender] -= envelopes[0].cost
        return envelopes.popleft()

    def _put(self, envelope: Envelope) -> None:
        chunk: Chunk = envelope.message
        if (chunk.epoch, chunk.round) < self._floor or not self._wants(envelope, chunk):
            self.stale += 1
            envelope.done()
            return
        stage_id = (chunk.epoch, chunk.round, chunk.stage)
        self._waiting.setdefault(stage_id, {}).setdefault(envelope.sender, deque()).append(envelope)
        self._waiting_bytes[envelope.sender] += envelope.cost
        for told in [*self._listeners.get(stage_id, ())]:
            told(envelope.sender)

    def _wants(self, envelope: Envelope, chunk: Chunk) -> bool:
        group, sender = self._group(), envelope.sender
        if chunk.epoch <= group.epoch:
            epoch, round = self._floor
            if chunk.epoch == epoch and chunk.round > round + _ROUNDS_AHEAD_MAX:
                raise PeerMisbehaved(f"sent a chunk of round {chunk.round}, the present one is {round}")
            return chunk.epoch == group.epoch and sender in group.ids
        group.check_sense(chunk.epoch)
        if group.may_be_of_next(sender):
            return True
        early = sum(waiting for peer, waiting in self._waiting_bytes.items() if not group.may_be_of_next(peer))
        if self._waiting_bytes[sender] + envelope.cost > EARLY_BYTES_PER_PEER_MAX:
            raise PeerMisbehaved("sent more than it may of an epoch that nobody here has heard of")
        return early + envelope.cost <= EARLY_BYTES_MAX

    def _drop(self, peer: PeerId) -> None:
        for stage_id in [stage_id for stage_id, senders in self._waiting.items() if peer in senders]:
            self._drop_of(stage_id, peer)
        del self._waiting_bytes[peer]

    def _drop_of(self, stage_id: StageId, sender: PeerId) -> None:
        for envelope in self._waiting[stage_id].pop(sender):
            self._waiting_bytes[sender] -= envelope.cost
            envelope.done()
        if not self._waiting[stage_id]:
            del self._waiting[stage_id]
