"""An allreduce whose chunks are encoded: each hop decodes, adds and encodes; final chunks are forwarded unchanged.

The first rank with a part's sum replaces it by what its own encoding decodes to, so all ranks end with the same bits.
Chunks are cut by a fixed grid that all ranks know, not by the link's pace, because a forwarded chunk must be the one
that arrived. The last `tail` elements (weights, signals) are not encoded, nor are the last `exact` ones of the model
before them.
Cost: the schedule's, with the codec's bytes.
On failure: as for any allreduce.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import torch
from torch import Tensor

from ...aggregation.codecs.codec import HopCodec, seed_of
from ...aggregation.schedules.schedule import Op, Schedule
from ...aggregation.vector import parts
from ..channel import Channel, Envelope
from ..group import Group
from ..link.link import PeerLost
from ..transfer.chunks import CELL, Inbox, StageId
from ..transport import PeerId
from ..wire.frames import Buffer
from .allreduce import Allreduce, Array
from .bound import Guard
from .plan import Run

_NOT_FINITE = 0xFF
"""Every byte of an encoded chunk whose sum is not finite: no codec encodes anything as these bytes. A rank that
forwards such a chunk is not to blame, so the sum goes on to all, as it does without a codec."""


class CodedAllreduce(Allreduce):
    """An `Allreduce` in which `codec` encodes all elements but the last ones (`run`), which are sent as they are."""

    def __init__(
        self,
        channel: Channel,
        inbox: Inbox,
        group: Group,
        schedule: Schedule,
        stage_id: StageId,
        shares: tuple[float, ...] | None = None,
        *,
        codec: HopCodec,
        tail: int,
        guard: Guard | None = None,
    ) -> None:
        super().__init__(channel, inbox, group, schedule, stage_id, shares, guard=guard, tail=tail)
        self._codec = codec
        self._final: dict[int, bytes] = {}

    async def run(self, vector: Tensor, exact: int = 0) -> Tensor:
        """As `Allreduce.run`. The last `tail` elements of `vector`, and the `exact` ones before these, are not
        encoded."""
        self._coded_until = vector.numel() - self._tail - exact
        cut = parts(vector.numel(), self._schedule.parts(len(self._members)), self._shares)
        self._starts = [part.start for part in cut]
        return await super().run(vector)

    def _until(self, run: Run, at: int, to: PeerId) -> int:
        """The end of the cell of the grid that begins at `at`."""
        part = bisect_right(self._starts, at) - 1
        ends = [run.stop, at + CELL - (at - self._starts[part]) % CELL, *self._starts[part + 1 : part + 2]]
        return min(*ends, self._coded_until) if at < self._coded_until else min(ends)

    def _payload(self, run: Run, array: Array, at: int, until: int) -> Buffer:
        if at >= self._coded_until:
            return super()._payload(run, array, at, until)
        if run.op is Op.ADD:
            return self._encoded(array[at:until], run, at)
        if at not in self._final:
            self._final[at] = self._encoded(array[at:until], run, at)
            self._total[at:until] = self._decoded(self._final[at], until - at)
        return self._final[at]

    def _encoded(self, values: Array, run: Run, at: int) -> bytes:
        seed = seed_of(self._stage_id, self._rank, run.step, at)
        try:
            return bytes(self._codec.encode(torch.from_numpy(values), seed).numpy())
        except ValueError:
            if np.isfinite(values).all():
                raise
            return bytes([_NOT_FINITE]) * self._codec.encoded_bytes(len(values))

    def _decoded(self, payload: Buffer, count: int) -> Array:
        received = np.frombuffer(payload, np.uint8)
        if received[0] == _NOT_FINITE and (received == _NOT_FINITE).all():
            return np.full(count, np.nan, self._total.dtype)
        coded = torch.from_numpy(received.copy())
        decoded: Array = self._codec.decode(coded, count, torch.from_numpy(self._total[:0]).dtype).numpy()
        return decoded

    def _bytes_of(self, at: int, count: int) -> int:
        return super()._bytes_of(at, count) if at >= self._coded_until else self._codec.encoded_bytes(count)

    def _values(self, envelope: Envelope, run: Run, at: int) -> Array:
        """The decoded values of a chunk, which must be a whole cell of the grid. Raises PeerLost."""
        if at >= self._coded_until:
            return super()._values(envelope, run, at)
        self._check(envelope, run, at)
        count = envelope.message.count
        if at + count != self._until(run, at, envelope.sender):
            raise PeerLost(
                envelope.sender, f"it sent {count} elements at {at}, which are not what the codec's grid has"
            )
        try:
            values = self._decoded(envelope.payload, count)
        except ValueError as error:
            raise PeerLost(envelope.sender, f"it sent what {self._codec.name} does not decode: {error}") from None
        if run.op is Op.COPY:
            self._final[at] = bytes(envelope.payload)
        return values
