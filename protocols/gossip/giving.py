"""The giving side of the exchange with neighbours: the vectors that this peer has published, and its answers to other
peers' questions (`messages.Want`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine
from functools import partial

import torch
from torch import Tensor

from ..channel import Channel, Envelope
from ..link.link import PeerLost
from ..transfer.chunks import StageId
from ..transfer.elements import raw
from ..transfer.vectors import Vectors
from ..transport import PeerId
from .estimates import Estimates
from .kept import Kept
from .messages import NEWEST, Form, Given, Published, Took, Want
from .mixing import Own, own
from .shares import Shares
from .showing import Showing

_EPOCH = 1


def stage_of(ask: int) -> StageId:
    """The id under which the chunks are sent that answer the question with the number `ask`."""
    return _EPOCH, ask, 0


class Giving:
    """One peer's giving side: keeps the vectors that it has published, and answers other peers' questions for them.
    `vectors` sends them. `first`: the first of them, published at once. `estimates`: those from which encoded
    differences lead; None: vectors are sent as they are. `shares`: if given, each vector after the first is a share
    that each taker may take once. `by_rounds`: peers ask for the vectors of given rounds, so each is put on this peer's
    board when it is published."""

    def __init__(
        self,
        channel: Channel,
        vectors: Vectors,
        first: Published,
        estimates: Estimates | None,
        shares: Shares | None,
        *,
        by_rounds: bool,
    ) -> None:
        self._channel, self._vectors, self._estimates, self._shares = channel, vectors, estimates, shares
        self._by_rounds = by_rounds
        self._kept = Kept(first, shares)
        self.showing = Showing(channel, first.vector, self._kept, self._is_sent)
        self._wanted: dict[PeerId, Envelope] = {}
        """The question of each peer that waits for a round to be published: a newer one replaces it."""
        self._sending: dict[PeerId, tuple[Published | None, asyncio.Task[None]]] = {}
        """What is being sent to each peer: the vector if it lies on this peer's board, else None, and the task. Of a
        vector that is sent as a difference nothing else need be held."""
        self.on_meet: Callable[[PeerId, int, Published], bool] = lambda peer, round, given: False
        """Called with a peer, a round, and the vector that the peer is to get, when that peer averages its vector of
        the round with it (`pairs`). Returns False when this peer cannot average now; the question is then refused."""
        channel.on(Want, self._on_want)
        channel.on(Took, self._on_took)

    @property
    def newest(self) -> Published:
        """The vector that was published last."""
        return self._kept.newest

    async def publish(self, one: Published, takers: Collection[PeerId], is_taken_by: Callable[[PeerId], bool]) -> Own:
        """Publish `one`, with a codec its estimate, keep it for its `takers`, and answer the questions that wait for
        it. Returns the vector that peers get, with its norm. `is_taken_by` returns, for one taker, whether all other
        takers take that one's vector too. Raises ValueError for a vector that is not finite, or that the codec does not
        take."""
        if self._estimates is not None:
            await own(one.vector)
            one = await self._estimates.published(one, self._channel.endpoint.id, takers, is_taken_by)
        self.showing.meet(takers)
        shown = await self.showing.show(one) if self._by_rounds else None
        placed, mine = (one, await own(one.vector)) if shown is None else shown
        self._kept.publish(placed, takers)
        if self._by_rounds:
            self._kept.lighten(lambda older: self.showing.number(older) > 0)
        for wanted in list(self._wanted.values()):
            self._answer(wanted)
        return mine

    def show(self, one: Published) -> None:
        """Give `one` to peers that ask for the newest vector, until the next one is published. It is not kept for a
        round."""
        self._kept.show(one)

    def withdraw(self) -> None:
        """From now on keep none of the vectors published so far for the peers that have not taken them. If they are
        shares, they do not come back. The newest is still given to peers that ask for the newest."""
        self._kept.withdraw()

    def close(self) -> None:
        for _, task in self._sending.values():
            task.cancel()
        self.showing.close()

    def forget(self, peer: PeerId) -> None:
        """Drop everything that concerns `peer`, whose link has ended: its question, what is being sent to it, and the
        vectors that are kept for it. Shares among these come back; a share that it may have taken stays open."""
        self._wanted.pop(peer, None)
        self._kept.forget(peer)
        self._stop_sending(peer)
        self.showing.forget(peer)

    def _on_want(self, envelope: Envelope) -> None:
        if (former := self._wanted.pop(envelope.sender, None)) is not None:
            self._channel.refuse(former, "it has asked again")
        self.showing.given_back(envelope.sender)
        if self._shares is not None:
            self._shares.told(envelope.sender, envelope.message.took)
        self._wanted[envelope.sender] = envelope
        self._answer(envelope)

    def _on_took(self, envelope: Envelope) -> None:
        self.showing.given_back(envelope.sender)
        if self._shares is not None:
            self._shares.took(envelope.sender, envelope.message.took)

    def _answer(self, wanted: Envelope) -> None:
        """Give the vector that is asked for, if it is published already."""
        want: Want = wanted.message
        if not self._kept.covers(want.round):
            return
        del self._wanted[wanted.sender]
        one = self._kept.for_round(want.round, wanted.sender)
        if one is not None and want.form == Form.WHOLE and not one.vector.numel():
            one = self._kept.newest
        if one is None:
            self._channel.refuse(wanted, "it has no share of that round for this peer")
        elif want.meets and not self.on_meet(wanted.sender, want.meets, one):
            self._channel.refuse(wanted, "it averages with others already")
        else:
            self._give(wanted, one)

    def _give(self, wanted: Envelope, one: Published) -> None:
        """Answer with a vector. A peer that asks again does not wait for its last answer any more."""
        peer, want = wanted.sender, wanted.message
        self._stop_sending(peer)
        if want.looks and not self._by_rounds:
            self._start(peer, one, self._lend(peer, want, one))
        else:
            self._send(peer, want, one, self.showing.number(one) if want.looks else 0)
        if self._estimates is not None and want.form != Form.NOTHING:
            self._estimates.gave(peer, self.showing.original(one), want)
        if want.round != NEWEST:
            self._kept.taken(one, peer)
            if self._shares is not None:
                self._shares.given(peer, want.ask, one.round, one.vector)

    async def _lend(self, peer: PeerId, want: Want, one: Published) -> None:
        self._send(peer, want, one, await self.showing.lend(peer, one))

    def _send(self, peer: PeerId, want: Want, one: Published, number: int) -> None:
        form, vector = self._form(want, one, number)
        given = Given(want.ask, one.round, one.step, one.last, int(form), one.before, one.base, *one.told, number)
        fits = self._vectors.fitting(peer, vector) if vector.numel() else 0
        try:
            waiting = self._channel.offer(peer, given, raw([vector[:fits].view(torch.uint8)]))
        except PeerLost:
            return  # the asking peer is gone
        rest = vector[fits:]
        if waiting is not None or rest.numel():
            self._start(peer, one, self._send_rest(peer, waiting, rest, stage_of(want.ask)))

    def _form(self, want: Want, one: Published, number: int) -> tuple[Form, Tensor]:
        """The form in which `one` answers a question, and the bytes or elements to send. Nobody writes to these any
        more, so not those on this peer's board, whose place is used again before all have arrived."""
        vector = self.showing.original(one).vector.detach()
        if number or want.form == Form.NOTHING or (want.form == Form.DIFFERENCE and want.holds == one.round):
            return Form.NOTHING, vector[:0]
        if want.form == Form.DIFFERENCE and one.difference is not None:
            return Form.DIFFERENCE, one.difference
        return Form.WHOLE, vector

    async def _send_rest(
        self, peer: PeerId, waiting: asyncio.Future[None] | None, rest: Tensor, stage_id: StageId
    ) -> None:
        with contextlib.suppress(PeerLost):
            if waiting is not None:
                await waiting
            await self._vectors.send(peer, rest, stage_id, lasts=True)

    def _start(self, peer: PeerId, one: Published, sending: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(sending, name="gossip")
        self._sending[peer] = one if self.showing.number(one) else None, task
        task.add_done_callback(partial(self._sent, peer))

    def _sent(self, peer: PeerId, task: asyncio.Task[None]) -> None:
        if peer in self._sending and self._sending[peer][1] is task:
            del self._sending[peer]

    def _stop_sending(self, peer: PeerId) -> None:
        if peer in self._sending:
            self._sending.pop(peer)[1].cancel()

    def _is_sent(self, one: Published) -> bool:
        return any(one is sent for sent, _ in self._sending.values())
