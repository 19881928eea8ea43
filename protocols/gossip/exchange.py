"""The exchange of vectors with neighbours: each peer publishes one vector a round, and a neighbour asks for it.

A peer may ask before the vector is published, and is answered as soon as it is. A vector is kept until the peers for
which it was published have taken it (for 4 rounds at most), so a slower peer gets that of its own round. A peer that
asks for a round that is not kept gets the newest vector. Peers need not agree on the neighbours of each, because
vectors are sent on request only. A peer may also ask ahead, in the middle of its local steps, so that a vector is sent
as soon as it is published. Peers on one machine read each other's vectors in shared memory (`showing`). Cost: n bytes
to each neighbour, two messages and as many more as the vector has chunks beyond the first. On failure: PeerLost, for
the one neighbour concerned; WrongNumbers if it has answered with impossible numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch
from torch import Tensor

from ..channel import Channel, Envelope
from ..collectives.bound import WrongNumbers
from ..link.link import PeerLost
from ..offload import off_loop
from ..testpoints import sometimes
from ..transfer.chunks import Inbox
from ..transfer.elements import of_bytes
from ..transfer.vectors import Vectors
from ..transport import PeerId
from .algorithms.differences import DifferenceCodec
from .estimates import Estimates
from .giving import Giving, stage_of
from .lent import Lent, Shown
from .messages import NEWEST, Form, Given, Published, Took, Want
from .mixing import Own
from .questions import Question, check_told, checked
from .shares import Shares
from .showing import Showing

_SMALL_BYTES = 1 << 20
"""The largest vector that is received in the middle of local steps, if it was asked for ahead."""


class NeighbourExchange:
    """One peer's side: publishes its vectors, and takes its neighbours'. `first`: its first vector, published at once;
    all vectors have its size and dtype. `codec` encodes the difference of a vector from an estimate; None: vectors are
    sent as they are. `shares`: if given, each vector after the first is a share that each taker may take once.
    `by_rounds`: peers ask for the vectors of given rounds, and may read them on each other's boards; with `shares` it
    counts as False. `steps`: the local steps of the whole run, beyond which no peer can be; None: unknown."""

    def __init__(
        self,
        channel: Channel,
        first: Published,
        codec: DifferenceCodec | None = None,
        shares: Shares | None = None,
        *,
        by_rounds: bool = True,
        steps: int | None = None,
    ) -> None:
        self._channel, self._shares, self._steps = channel, shares, steps
        self.by_rounds = by_rounds and shares is None
        self.estimates = None if codec is None else Estimates(codec, first)
        self._took: dict[PeerId, int] = {}
        """The last question by which this peer has taken a share, by the neighbour that gave it. It is kept when the
        neighbour is gone: that may be only this peer's belief, and the neighbour still has to hear of it."""
        self._inbox = Inbox(channel)
        self._vectors = Vectors(channel, self._inbox)
        self._open: dict[Question, PeerId] = {}
        """The questions whose vectors have not arrived yet, with the neighbours that were asked."""
        self._ahead: dict[PeerId, Question] = {}
        self.giving = Giving(channel, self._vectors, first, self.estimates, shares, by_rounds=self.by_rounds)
        channel.endpoint.on_lost.append(lambda peer, why: self._forget(peer))
        channel.endpoint.on_ended.append(self._forget)

    @property
    def showing(self) -> Showing:
        """The boards on which neighbours on one machine show each other vectors."""
        return self.giving.showing

    async def publish(
        self,
        one: Published,
        takers: Collection[PeerId] = (),
        is_taken_by: Callable[[PeerId], bool] = lambda taker: False,
    ) -> Own:
        """Publish `one`: from now on peers that ask get it. `takers`: the peers for which it is kept when a newer one
        is published. `is_taken_by` returns, for one taker, whether all other takers take that one's vector too. Returns
        the vector that peers get, with a codec an estimate of `one`, and its norm. Raises ValueError for a vector that
        is not finite, or that the codec does not take."""
        return await self.giving.publish(one, takers, is_taken_by)

    async def take(
        self,
        peer: PeerId,
        round: int,
        given: Callable[[], None] = lambda: None,
        *,
        form: Form = Form.DIFFERENCE,
        meets: int = 0,
        spares: bool = False,
    ) -> Published:
        """Ask the neighbour `peer` for its vector of `round`, and return that, a newer one, or the last one of a peer
        that takes no more steps; `NEWEST` (0): the newest. Waits until the neighbour has published it. Calls `given`
        when the answer is there. `form`: the form in which this peer wants the vector (`Want`). `meets`: the round of
        this peer's vector that it averages with the one that it gets; 0: none. `spares`: raise PeerLost rather than ask
        for the vector whole. A question that was asked ahead of `peer` is withdrawn. Raises PeerLost, also if `peer`
        refuses, and WrongNumbers for an answer that cannot be right."""
        looks = not self.by_rounds and self.showing.shows(peer)  # else it could be written over
        question = Question(round, form, meets, looks, spares)
        self._give_up_ahead(peer)
        question.given = given
        one = await self._answered(peer, question)
        assert isinstance(one, Published)
        return one

    def reach(self, peer: PeerId, round: int, given: Callable[[], None]) -> asyncio.Task[Published | Shown]:
        """A task that takes the vector of a round as `take` does, by the question that was asked ahead (`ask_ahead`) if
        there is one for that round. `given` is called when the answer is there, also within this call. The task's
        result may be the vector's place on the neighbour's board (`Shown`)."""
        question = self._asked_ahead(peer, round)
        if question is None:
            question = Question(round, looks=self.showing.shows(peer))
        elif question.is_answered:
            given()
        question.given = given
        return question.whole or asyncio.create_task(self._answered(peer, question), name="gossip")

    def find(self, peer: PeerId, round: int) -> Shown | None:
        """Look on the neighbour's board for its vector of `round`, or else a newer one, without a message. None: it is
        not there yet, or this peer cannot read that board. Raises WrongNumbers when the numbers beside it cannot be
        right."""
        if (shown := self.showing.find(peer, round)) is not None:
            check_told(peer, shown.told, shown.round, shown.step, self._steps)
        return shown

    def ask_ahead(self, peers: Iterable[PeerId], round: int) -> None:
        """Ask these neighbours now for their vectors of `round`, to take them later (`reach`). Not asked are those that
        were asked ahead already, and those whose boards this peer can read. Of a vector above 1 MiB only the first
        bytes are received before `reach`, as this peer has no memory to spare during its local steps."""
        small = self.giving.newest.vector.nbytes <= _SMALL_BYTES
        for peer in peers:
            if peer not in self._ahead and not self.showing.shows(peer):
                question = self._ahead[peer] = Question(round)
                self._open[question] = peer
                if small:
                    question.whole = asyncio.create_task(self._answered(peer, question), name="gossip")
                else:
                    question.answer = asyncio.create_task(self._ask(peer, question), name="gossip")
                question.task.add_done_callback(_retrieved)

    def only(self, peers: Collection[PeerId]) -> None:
        """Of all peers that are not among `peers`: withdraw the questions that `ask_ahead` has asked them, and forget
        the estimates of their vectors."""
        if self.estimates is not None:
            self.estimates.only(peers)
        for peer in self._ahead.keys() - peers:
            self._give_up_ahead(peer)

    def close(self) -> None:
        for peer in [*self._ahead]:
            self._give_up_ahead(peer)
        self.giving.close()

    def gone(self, peer: PeerId, *, anew: bool = False) -> None:
        """Note that `peer` has left the run or was lost: a share that it has not confirmed comes back to this peer, and
        its questions and estimates are dropped. `anew`: a new process with its key is here already, whose questions and
        estimates are kept."""
        if not anew:
            self._forget(peer)
        if self._shares is not None:
            self._shares.told(peer, 0)

    async def _answered(self, peer: PeerId, question: Question) -> Published | Shown:
        self._open[question] = peer
        try:
            if (one := await self._once(peer, question)) is None:
                sometimes("a difference led from an unknown estimate")
                if question.spares or (self.estimates is not None and self.estimates.spares(peer)):
                    raise PeerLost(peer, "its difference leads from a vector that this peer does not hold")
                question.form, question.answer = Form.WHOLE, None
                one = await self._once(peer, question)
                assert one is not None
        finally:
            self._close(question)
        if self.estimates is not None and isinstance(one, Published) and one.vector.numel() and not question.is_cut:
            self.estimates.took(peer, one)
        return one

    async def _once(self, peer: PeerId, question: Question) -> Published | Shown | None:
        """Ask the question, unless it was asked ahead, and take what is given. None: it came as the difference from
        what this peer does not hold."""
        answer = await (self._ask(peer, question) if question.answer is None else question.answer)
        found, told = checked(answer, question, self._steps, encodes=self.estimates is not None)
        question.is_answered = True
        question.given()
        lent = self.showing.borrowed(peer, found.number) if found.number and question.looks else None
        if lent is not None and self.by_rounds:
            return Shown(found.round, found.step, lent, told, found.last)
        if (received := await self._received(answer, question, found, lent)) is None:
            return None
        of_shares = self._shares is not None and question.round != NEWEST
        if of_shares:
            self._took[peer] = question.number
        if of_shares or lent is not None:
            self._channel.post(peer, Took(question.number))
        return Published(found.round, found.step, received[0], told, found.last, received[1])

    async def _ask(self, peer: PeerId, question: Question) -> Envelope:
        def want(ask: int) -> Want:
            question.number = ask
            holds = None if self.estimates is None else self.estimates.round_of(peer)
            took = self._took.get(peer, 0)
            return Want(ask, question.round, int(question.form), holds, took, question.meets, question.looks)

        return await self._channel.ask(peer, want, answers=(Given,))

    async def _received(
        self, answer: Envelope, question: Question, found: Given, lent: Lent | None
    ) -> tuple[Tensor, Tensor | None] | None:
        """The vector [n] that was given, and the encoded difference as which it came. None: the difference leads from
        what this peer does not hold. Raises PeerLost."""
        peer, like, estimates = answer.sender, self.giving.newest.vector, self.estimates
        if found.number:
            copied = None if lent is None else await off_loop(2 * like.nbytes, lent.copied)
            if copied is None:
                raise WrongNumbers(peer, "it lent a vector that is not there")
            self.showing.bytes_shared += copied.nbytes
            return copied, None
        if found.form == Form.WHOLE:
            return await self._arrived(answer, like, question), None
        if question.form == Form.NOTHING or estimates is None:
            answer.done()
            return like[:0], None
        is_same = found.form == Form.NOTHING
        known = await estimates.found(peer, found.round if is_same else found.before, b"" if is_same else found.base)
        if is_same or known is None:
            answer.done()
            return None if known is None else (known, None)
        encoded = torch.empty(1, dtype=torch.uint8).expand(estimates.codec.encoded_bytes(like.numel()))
        difference = await self._arrived(answer, encoded, question)
        try:
            return await estimates.leads_to(known, difference), difference
        except ValueError as error:
            raise WrongNumbers(peer, f"it gave what {estimates.codec.name} does not decode: {error}") from None

    async def _arrived(self, answer: Envelope, like: Tensor, question: Question) -> Tensor:
        """The vector, of the size and dtype of `like` [n], of which the first bytes came with the answer; the others
        follow as chunks. If all came, they stay where they are, so nobody may write to the vector."""
        first = len(answer.payload)
        if first > like.nbytes or first % like.itemsize:
            raise WrongNumbers(answer.sender, f"it gave {first} bytes of a vector of {like.nbytes}")
        came, rest = of_bytes(answer.payload, like.dtype), first // like.itemsize
        answer.done()
        if first == like.nbytes:
            return came
        into = torch.empty(like.shape, dtype=like.dtype)
        into[:rest] = came
        await self._vectors.receive(answer.sender, into[rest:], stage_of(question.number))
        return into

    def _asked_ahead(self, peer: PeerId, round: int) -> Question | None:
        """The question for that very vector that was asked ahead, unless it has failed; any other is given up."""
        question = self._ahead.get(peer)
        if question is None or question.round != round or _has_failed(question.task):
            self._give_up_ahead(peer)
            return None
        return self._ahead.pop(peer)

    def _give_up_ahead(self, peer: PeerId) -> None:
        """Take no vector any more that was asked for ahead."""
        if (question := self._ahead.pop(peer, None)) is not None:
            question.task.cancel()
            self._close(question)

    def _close(self, question: Question) -> None:
        self._open.pop(question, None)
        if question.answer is not None and not _has_failed(question.answer) and question.answer.done():
            question.answer.result().done()
        last = question.number
        self._inbox.advance((stage_of(0)[0], min((one.number for one in self._open if one.number), default=last + 1)))

    def _forget(self, peer: PeerId) -> None:
        for question in [question for question, asked in self._open.items() if asked == peer]:
            question.is_cut = True
        if self.estimates is not None:
            self.estimates.forget(peer)
        self._give_up_ahead(peer)
        self.giving.forget(peer)


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _retrieved(task: asyncio.Task[Any]) -> None:
    """Its exception is told, if at all, when the vector is taken."""
    if not task.cancelled():
        task.exception()
