"""The exchange of vectors with neighbours: each peer publishes one vector a round, and a neighbour asks for it.

A peer may ask before the vector is there, and is answered as soon as it is. A vector is kept until the peers for which
it was published have taken it, so all mix the same vectors of a round however fast each is. A peer that nobody reckoned
with, or that comes too late, gets the newest vector. So no two peers need the same idea of who is whose neighbour: a
vector is sent only to a peer that has asked for it.
Cost: n bytes to each neighbour, two small messages.
On failure: PeerLost, for the one neighbour concerned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from ..channel import Channel, Envelope
from ..link.link import PeerLost
from ..offload import off_loop
from ..transfer.chunks import Inbox, StageId
from ..transfer.vectors import Vectors
from ..transport import PeerId
from .differences import DifferenceCodec, decoded, encoded
from .kept import Kept
from .messages import NEWEST, Given, Published, Took, Want
from .periods import Told
from .shares import Shares

_EPOCH = 1


class NeighbourExchange:
    """One peer's side of this. `first`: published at once; all vectors of all peers are of its size and dtype. `codec`:
    encodes the differences of one round's vector from that of the round before; None: vectors are sent as they are.
    `shares`: if there are some, each vector after the first is a share that each of its takers may take once."""

    def __init__(
        self,
        channel: Channel,
        first: Published,
        codec: DifferenceCodec | None = None,
        shares: Shares | None = None,
    ) -> None:
        self._channel, self._codec, self._shares, self._kept = channel, codec, shares, Kept(first, shares)
        self._wanted: dict[PeerId, Envelope] = {}
        """The question of each peer that waits for a round to be published: a newer one replaces it."""
        self._giving: dict[PeerId, asyncio.Task[None]] = {}
        self._taken: dict[PeerId, Published] = {}
        """With a codec, the last vector of each neighbour, from which its next difference leads on."""
        self._took: dict[PeerId, int] = {}
        """The last question by which this peer has taken a share, by the neighbour that gave it."""
        self.on_meet: Callable[[PeerId, int, Published], bool] = lambda peer, round, given: False
        """Called with a peer that averages its vector of a round with the one that it is to get. Returns False when
        that cannot be now, and it gets none."""
        self._inbox = Inbox(channel)
        self._vectors = Vectors(channel, self._inbox)
        self._open: set[int] = set()
        """Numbers of the questions whose vectors have not arrived yet."""
        channel.on(Want, self._on_want)
        channel.on(Took, self._on_took)
        channel.endpoint.on_lost.append(lambda peer, why: self._forget(peer))
        channel.endpoint.on_ended.append(self._forget)

    async def publish(self, one: Published, takers: Iterable[PeerId] = ()) -> Tensor:
        """From now on `one` is given to peers that ask. `takers`: for whom it is kept when a newer one is published.
        Returns the vector [n] that they get: with a codec an estimate. Raises ValueError for a vector that the codec
        does not take, as one that is not finite."""
        before, me = self.newest, self._channel.endpoint.id
        if self._codec is not None and one.round == before.round + 1:
            coded = partial(encoded, self._codec, before.vector, one.vector, one.round, me)
            vector, difference = await off_loop(2 * one.vector.nbytes, coded)
            one = replace(one, vector=vector, difference=difference)
        self._kept.publish(one, takers)
        for wanted in list(self._wanted.values()):
            self._answer(wanted)
        return one.vector

    @property
    def newest(self) -> Published:
        """The vector that was published last."""
        return self._kept.newest

    def show(self, one: Published) -> None:
        """Until the next one is published, give `one` to peers that ask for the newest."""
        self._kept.show(one)

    async def take(
        self, peer: PeerId, round: int, given: Callable[[], None] = lambda: None, *, meets: int = 0
    ) -> Published:
        """The neighbour's vector of `round`, or a newer one; `NEWEST`: whichever it has. Waits until it is published,
        and then calls `given`. `meets`: see `Want`. Raises PeerLost."""
        number, before = 0, self._taken.get(peer)

        def question(ask: int) -> Want:
            nonlocal number
            number = ask
            self._open.add(ask)
            return Want(ask, round, 0 if before is None else before.round + 1, self._took.get(peer, 0), meets)

        try:
            answer = await self._channel.ask(peer, question, answers=(Given,))
            found: Given = answer.message
            answer.done()
            told = Told(found.loss, found.learning_rate, found.motion)
            if not told.makes_sense:
                raise PeerLost(peer, "it told numbers of its local steps that make no sense")
            if found.step < 0 or (found.round < round and not found.last):
                raise PeerLost(peer, f"it gave round {found.round} when round {round} was wanted")
            given()
            vector, difference = await self._received(peer, _stage(number), found, before)
        finally:
            self._open.discard(number)
            self._inbox.advance((_EPOCH, min(self._open, default=number + 1)))
        one = Published(found.round, found.step, vector, told, found.last, difference)
        if self._codec is not None:
            self._taken[peer] = one
        if self._shares is not None and round != NEWEST:
            self._took[peer] = number
            self._channel.post(peer, Took(number))
        return one

    def only(self, peers: Collection[PeerId]) -> None:
        """Keep what differences need for these peers alone."""
        for peer in self._taken.keys() - peers:
            del self._taken[peer]

    async def _received(
        self, peer: PeerId, stage: StageId, found: Given, before: Published | None
    ) -> tuple[Tensor, Tensor | None]:
        """The vector [n] that follows `found`, and the encoded difference as which it came. Raises PeerLost."""
        codec = self._codec
        if not found.difference or codec is None:
            vector = torch.empty_like(self.newest.vector)
            await self._vectors.receive(peer, vector, stage)
            return vector, None
        if before is None or found.round != before.round + 1:
            raise PeerLost(peer, f"it gave the difference of round {found.round} from a vector that it has not given")
        difference, known = (
            torch.empty(codec.encoded_bytes(self.newest.vector.numel()), dtype=torch.uint8),
            before.vector,
        )
        await self._vectors.receive(peer, difference, stage)
        try:
            return await off_loop(2 * known.nbytes, lambda: decoded(codec, known, difference)), difference
        except ValueError as error:
            raise PeerLost(peer, f"it gave what {codec.name} does not decode: {error}") from None

    def close(self) -> None:
        for task in self._giving.values():
            task.cancel()

    def gone(self, peer: PeerId) -> None:
        """`peer` has ended: what it has not taken it never will, and what it has taken is lost with it."""
        self._forget(peer)
        self._took.pop(peer, None)
        if self._shares is not None:
            self._shares.told(peer, 0)

    def withdraw(self) -> None:
        """Give none of the vectors that are published as the one of a round any more."""
        self._kept.withdraw()

    def _on_want(self, envelope: Envelope) -> None:
        if (former := self._wanted.pop(envelope.sender, None)) is not None:
            self._channel.refuse(former, "it has asked again")
        if self._shares is not None:
            self._shares.told(envelope.sender, envelope.message.took)
        self._wanted[envelope.sender] = envelope
        self._answer(envelope)

    def _on_took(self, envelope: Envelope) -> None:
        if self._shares is not None:
            self._shares.took(envelope.sender, envelope.message.took)

    def _answer(self, wanted: Envelope) -> None:
        """Give the vector that is asked for, if it is published already."""
        want: Want = wanted.message
        if not self._kept.covers(want.round):
            return
        del self._wanted[wanted.sender]
        one = self._kept.for_round(want.round, wanted.sender)
        if one is None:
            self._channel.refuse(wanted, "it has no share of that round for this peer")
        elif want.meets and not self.on_meet(wanted.sender, want.meets, one):
            self._channel.refuse(wanted, "it averages with others already")
        else:
            self._give(wanted, one)

    def _give(self, wanted: Envelope, one: Published) -> None:
        """Answer with a vector. A peer that asks again does not wait for its last answer any more."""
        peer = wanted.sender
        if (former := self._giving.pop(peer, None)) is not None:
            former.cancel()
        task = asyncio.create_task(self._send(peer, wanted.message, one), name="gossip")
        self._giving[peer] = task
        task.add_done_callback(lambda done: self._giving.pop(peer) if self._giving.get(peer) is done else None)
        if wanted.message.round != NEWEST:
            self._kept.taken(one, peer)
            if self._shares is not None:
                self._shares.given(peer, wanted.message.ask, one.round, one.vector)

    async def _send(self, peer: PeerId, want: Want, one: Published) -> None:
        difference = one.difference if want.follows == one.round else None
        given = Given(want.ask, one.round, one.step, one.last, difference is not None, *one.told)
        try:
            await self._channel.send(peer, given)
            await self._vectors.send(peer, one.vector if difference is None else difference, _stage(want.ask))
        except PeerLost:
            pass  # the asking peer is gone

    def _forget(self, peer: PeerId) -> None:
        self._wanted.pop(peer, None)
        self._taken.pop(peer, None)
        self._kept.forget(peer)
        if (task := self._giving.pop(peer, None)) is not None:
            task.cancel()


def _stage(ask: int) -> StageId:
    return _EPOCH, ask, 0
