"""Vectors from one peer to another, for gossip and other conversations in which peers exchange vectors in pairs.

A vector is sent in chunks that suit the link, each as soon as the receiver has room for it, and is received directly
into the receiver's tensor. A hop codec encodes each chunk by itself. A gather codec encodes the whole vector, and the
receiver decodes it when all of it has arrived. A stage id (epoch, round, stage) names a vector between two peers: both
give the same one, and each is used once in each direction. Chunks that arrive before the receiver asks for them wait,
under credit.

Cost: n bytes, or the codec's; no answer.
On failure: PeerLost, and some of the receiver's tensor may have been written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ...aggregation.codecs.codec import GatherCodec, HopCodec, seed_of
from ..channel import Channel, Envelope
from ..link.link import PeerLost
from ..transport import PeerId
from ..wire.frames import PAYLOAD_BYTES_MAX, Buffer
from .chunks import CELL, Chunk, Inbox, StageId
from .elements import raw

VectorCodec = HopCodec | GatherCodec


class Vectors:
    """Sends vectors to single peers and receives theirs, on one channel, in chunks; without a codec (None) as they are.
    The `inbox` drops the chunks of stages that are over (`Inbox.advance`)."""

    def __init__(self, channel: Channel, inbox: Inbox) -> None:
        self._channel, self._inbox = channel, inbox
        self._receiving: dict[PeerId, list[asyncio.Future[None]]] = {}
        channel.endpoint.reception.awaited.append(self._receiving.keys)  # the channel need not watch a sender
        channel.endpoint.on_lost.append(self._lost)
        channel.endpoint.on_ended.append(lambda peer: self._lost(peer, "it began anew"))

    async def send(
        self,
        to: PeerId,
        vector: Tensor,
        stage_id: StageId,
        codec: VectorCodec | None = None,
        *,
        lasts: bool = False,
    ) -> None:
        """Send `vector` ([n], CPU, contiguous; float32 or float64 with a codec) to the peer `to`. Returns when all of
        it is sent, under credit; the caller may then write to it. `lasts`: nobody ever writes to it again, so chunks
        need no memory of their own. Raises PeerLost; ValueError for a tensor of another form."""
        _check(vector)
        if codec is not None and codec.family == "gather":
            vector, codec, lasts = codec.encode(vector, seed_of(stage_id, self._channel.endpoint.id)), None, True
        values = vector.detach()
        at = 0
        while at < values.numel():
            until = at + min(values.numel() - at, CELL if codec is not None else self.fitting(to, values[at:]))
            payload = self._payload(values[at:until], (*stage_id, at), codec, lasts)
            await self._channel.send(to, Chunk(*stage_id, 0, at, until - at), payload)
            at = until

    async def receive(self, sender: PeerId, into: Tensor, stage_id: StageId, codec: VectorCodec | None = None) -> None:
        """Wait for the vector that `sender` sends with the same stage id and codec, and write it into `into` ([n], CPU,
        contiguous). Raises PeerLost, also when a chunk arrives that is not the one due, or cannot be decoded;
        ValueError for a tensor of another form. If this is cancelled, some of `into` may have been written."""
        _check(into)
        if codec is None or codec.family == "hop":
            await self._fill(sender, into.detach(), stage_id, codec)
            return
        payload = torch.empty(codec.encoded_bytes(into.numel()), dtype=torch.uint8)
        await self._fill(sender, payload, stage_id, None)
        into.detach().copy_(_decoded(sender, payload, into, codec))

    async def exchange(
        self, peer: PeerId, vector: Tensor, into: Tensor, stage_id: StageId, codec: VectorCodec | None = None
    ) -> None:
        """Send `vector` to `peer` and fill `into` with the peer's vector, concurrently. If one of the two fails, the
        other is cancelled. Raises as `send` and `receive`."""
        both = self.send(peer, vector, stage_id, codec), self.receive(peer, into, stage_id, codec)
        tasks = [asyncio.create_task(each) for each in both]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def fitting(self, to: PeerId, values: Tensor) -> int:
        """The number of elements, at least 1 and at most all of `values` [n], that one chunk to the peer `to` should
        have now, by the speed of the link. It takes up to a sixteenth more if nothing remains then: a message costs
        more than so few bytes."""
        most = max(1, self._channel.endpoint.chunk_bytes(to) // values.itemsize)
        if values.numel() <= most + most // 16 and values.nbytes <= PAYLOAD_BYTES_MAX:
            return values.numel()
        return min(values.numel(), most)

    def _payload(self, values: Tensor, where: tuple[int, ...], codec: HopCodec | None, lasts: bool) -> Buffer:
        if codec is not None:
            return raw([codec.encode(values, seed_of(where, self._channel.endpoint.id))])
        return raw([(values if lasts else values.clone()).view(torch.uint8)])

    async def _fill(self, sender: PeerId, into: Tensor, stage_id: StageId, codec: HopCodec | None) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        filling = self._filling(sender, into, stage_id, codec)

        def arrived(peer: PeerId) -> None:
            if peer == sender and not over.done():
                try:
                    if next(filling, True):
                        over.set_result(None)
                except PeerLost as lost:
                    over.set_exception(lost)

        if (why := self._channel.endpoint.is_lost(sender)) is not None:
            raise PeerLost(sender, why)
        self._receiving.setdefault(sender, []).append(over)
        try:
            with self._inbox.listening(stage_id, arrived):
                arrived(sender)
                await over
        finally:
            self._receiving[sender].remove(over)
            if not self._receiving[sender]:
                del self._receiving[sender]

    def _filling(self, sender: PeerId, into: Tensor, stage_id: StageId, codec: HopCodec | None) -> Iterator[bool]:
        """A generator that takes the chunks that have arrived each time it is resumed. It yields False while some are
        missing, and ends when `into` is full."""
        size, at = into.numel(), 0
        while at < size:
            envelope = self._inbox.take(stage_id, sender)
            if envelope is None:
                yield False
                continue
            count = _checked(envelope, at, size, into, codec)
            here, payload = into[at : at + count], np.frombuffer(envelope.payload, np.uint8)
            if codec is None:
                here.view(torch.uint8).numpy()[:] = payload
            else:
                here.copy_(_decoded(sender, torch.from_numpy(payload.copy()), here, codec))
            envelope.done()
            at += count

    def _lost(self, peer: PeerId, why: str) -> None:
        for over in self._receiving.get(peer, ()):
            if not over.done():
                over.set_exception(PeerLost(peer, why))


def _check(vector: Tensor) -> None:
    if vector.dim() != 1 or vector.device.type != "cpu" or not vector.is_contiguous():
        raise ValueError(f"a flat, contiguous CPU tensor was due, not {tuple(vector.shape)} on {vector.device}")


def _checked(envelope: Envelope, at: int, size: int, into: Tensor, codec: HopCodec | None) -> int:
    """The number of elements in a chunk. Raises PeerLost when it is not the chunk that is due."""
    chunk: Chunk = envelope.message
    fits = chunk.at == at and 0 < chunk.count <= size - at
    if fits and codec is not None:
        fits = chunk.count == min(CELL, size - at)
    due = 0 if not fits else chunk.count * into.itemsize if codec is None else codec.encoded_bytes(chunk.count)
    if not fits or len(envelope.payload) != due:
        what = f"{chunk.count} elements in {len(envelope.payload)} bytes at {chunk.at}"
        raise PeerLost(envelope.sender, f"it sent {what} when elements {at} to {size} were due")
    return chunk.count


def _decoded(sender: PeerId, payload: Tensor, into: Tensor, codec: VectorCodec) -> Tensor:
    """The elements for `into` that `payload` encodes. Raises PeerLost when the codec does not decode it."""
    try:
        return codec.decode(payload, into.numel(), into.dtype)
    except ValueError as error:
        raise PeerLost(sender, f"it sent what {codec.name} does not decode: {error}") from None
