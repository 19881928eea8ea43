"""The exchange of vectors with neighbours: each peer publishes one vector a round, and a neighbour asks for it.

A peer may ask before the vector is published, and is answered as soon as it is. A vector is kept until the peers for
which it was published have taken it (for 4 rounds at most), so a slower peer gets that of its own round. Any other peer
that asks gets the newest vector. Peers need not agree on the neighbours of each, because vectors are sent on request
only. A peer may also ask ahead, in the middle of its local steps, so that a vector is sent as soon as it is published.
Peers on one machine read each other's vectors in shared memory (`showing`).
Cost: n bytes to each neighbour, two messages and as many more as the vector has chunks beyond the first.
On failure: PeerLost, for the one neighbour concerned; WrongNumbers if it has answered with impossible numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..channel import Channel, Envelope
from ..collectives.bound import WrongNumbers
from ..offload import off_loop
from ..transfer.chunks import Inbox
from ..transfer.vectors import Vectors
from ..transport import PeerId
from .differences import DifferenceCodec, decoded
from .giving import Giving, stage_of
from .lent import Lent, Shown
from .messages import NEWEST, Given, Published, Took, Want
from .mixing import Own
from .periods import Told
from .shares import Shares
from .showing import Showing

_IDLE_ROUNDS = 64
"""The most rounds without a local step of its own that a peer may claim."""
_SMALL_BYTES = 1 << 20
"""The largest vector that is received in the middle of local steps, if it was asked for ahead."""


@dataclass(slots=True, eq=False)
class _Question:
    """An open question: see `Want`. `number`: its own, 0 until it is asked; `before`: the neighbour's vector from which
    a difference may lead; `answer`, or `whole`: of one that was asked ahead, the answer or all of the vector;
    `given` is called when there is an answer."""

    round: int
    before: Published | None
    meets: int = 0
    looks: bool = False
    number: int = 0
    answer: asyncio.Task[Envelope] | None = None
    whole: asyncio.Task[Published | Shown] | None = None
    is_answered: bool = False
    given: Callable[[], None] = lambda: None

    @property
    def task(self) -> asyncio.Task[Envelope] | asyncio.Task[Published | Shown]:
        """The task of a question that was asked ahead."""
        task = self.whole or self.answer
        assert task is not None
        return task


class NeighbourExchange:
    """One peer's side of the exchange. `first`: its first vector, published at once; all vectors of all peers have its
    size and dtype. `codec` encodes the difference of a vector from the last one; None: vectors are sent as they are.
    `shares`: if given, each vector after the first is a share that each taker may take once. `by_rounds`: peers take
    vectors of given rounds, so those on one machine need not ask. `steps`: local steps of the run, if known."""

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
        self._channel, self._codec, self._shares, self._steps = channel, codec, shares, steps
        self.by_rounds = by_rounds and shares is None
        self._taken: dict[PeerId, Published] = {}
        """With a codec, the last vector of each neighbour, from which its next difference leads on."""
        self._took: dict[PeerId, int] = {}
        """The last question by which this peer has taken a share, by the neighbour that gave it. It is kept when the
        neighbour is gone: that may be only this peer's belief, and the neighbour still has to hear of it."""
        self._inbox = Inbox(channel)
        self._vectors = Vectors(channel, self._inbox)
        self._open: set[_Question] = set()
        """The questions whose vectors have not arrived yet."""
        self._ahead: dict[PeerId, _Question] = {}
        self.giving = Giving(channel, self._vectors, first, codec, shares, by_rounds=self.by_rounds)
        channel.endpoint.on_lost.append(lambda peer, why: self._forget(peer))
        channel.endpoint.on_ended.append(self._forget)

    @property
    def showing(self) -> Showing:
        """The boards on which neighbours on one machine show each other vectors."""
        return self.giving.showing

    async def publish(self, one: Published, takers: Iterable[PeerId] = ()) -> Own:
        """Publish `one`: from now on peers that ask get it. `takers`: the peers for which it is kept when a newer one
        is published. Returns the vector that they get, with a codec an estimate of it. Raises ValueError for a vector
        that is not finite, or that the codec does not take."""
        return await self.giving.publish(one, takers)

    async def take(
        self, peer: PeerId, round: int, given: Callable[[], None] = lambda: None, *, meets: int = 0
    ) -> Published:
        """Ask the neighbour `peer` for its vector of `round`, and return that or a newer one; `NEWEST`: the newest.
        Waits until the neighbour has published it. Calls `given` when the answer is there. `meets`: as in `Want`.
        Raises PeerLost, and WrongNumbers for an answer that cannot be right."""
        looks = not self.by_rounds and self.showing.shows(peer)  # else it could be written over
        question = _Question(round, self._taken.get(peer), meets, looks)
        self._give_up_ahead(peer)
        question.given = given
        one = await self._answered(peer, question)
        assert isinstance(one, Published)
        return one

    def reach(self, peer: PeerId, round: int, given: Callable[[], None]) -> asyncio.Task[Published | Shown]:
        """A task that takes the vector of a round as `take` does, by the question that was asked ahead, if any. Its
        result may be the vector's place on the neighbour's board (`Shown`)."""
        question = self._asked_ahead(peer, round)
        if question is None:
            question = _Question(round, self._taken.get(peer), 0, self.showing.shows(peer))
        elif question.is_answered:
            given()
        question.given = given
        return question.whole or asyncio.create_task(self._answered(peer, question), name="gossip")

    def find(self, peer: PeerId, round: int) -> Shown | None:
        """Look on the neighbour's board for its vector of `round`, or a newer one, without a message. None: it is not
        there yet. Raises WrongNumbers."""
        if (shown := self.showing.find(peer, round)) is not None:
            self._check_told(peer, shown.told, shown.round, shown.step)
        return shown

    def ask_ahead(self, peers: Iterable[PeerId], round: int) -> None:
        """Ask these neighbours now for their vectors of `round`, which this peer will take later. Of a vector above 1
        MiB only the first bytes are received before that, because this peer has no memory to spare during its local
        steps."""
        small = self.giving.newest.vector.nbytes <= _SMALL_BYTES
        for peer in peers:
            if peer not in self._ahead and not self.showing.shows(peer):
                question = self._ahead[peer] = _Question(round, self._taken.get(peer))
                self._open.add(question)
                if small:
                    question.whole = asyncio.create_task(self._answered(peer, question), name="gossip")
                else:
                    question.answer = asyncio.create_task(self._ask(peer, question), name="gossip")
                question.task.add_done_callback(_retrieved)

    def only(self, peers: Collection[PeerId]) -> None:
        """Forget earlier vectors of all but these neighbours, and withdraw questions asked ahead of others."""
        for peer in self._taken.keys() - peers:
            del self._taken[peer]
        for peer in self._ahead.keys() - peers:
            self._give_up_ahead(peer)

    def close(self) -> None:
        for peer in [*self._ahead]:
            self._give_up_ahead(peer)
        self.giving.close()

    def gone(self, peer: PeerId, *, anew: bool = False) -> None:
        """`peer` has left the run: a share that it has not confirmed comes back to this peer. `anew`: a new process
        with its key is here already, whose questions and link are kept."""
        if not anew:
            self._forget(peer)
        if self._shares is not None:
            self._shares.told(peer, 0)

    async def _answered(self, peer: PeerId, question: _Question) -> Published | Shown:
        self._open.add(question)
        try:
            answer = await (self._ask(peer, question) if question.answer is None else question.answer)
            found, told = self._checked(answer, question.round)
            question.is_answered = True
            question.given()
            lent = self.showing.borrowed(peer, found.number) if found.number and question.looks else None
            if lent is not None and self.by_rounds:
                return Shown(found.round, found.step, lent, told, found.last)
            vector, difference = await self._received(answer, question, found, lent)
        finally:
            self._close(question)
        one = Published(found.round, found.step, vector, told, found.last, difference)
        if self._codec is not None:
            self._taken[peer] = one
        of_shares = self._shares is not None and question.round != NEWEST
        if of_shares:
            self._took[peer] = question.number
        if of_shares or lent is not None:
            self._channel.post(peer, Took(question.number))
        return one

    async def _ask(self, peer: PeerId, question: _Question) -> Envelope:
        def want(ask: int) -> Want:
            question.number = ask
            follows = 0 if question.before is None else question.before.round + 1
            took = self._took.get(peer, 0)
            return Want(ask, question.round, follows, took, question.meets, question.looks)

        return await self._channel.ask(peer, want, answers=(Given,))

    async def _received(
        self, answer: Envelope, question: _Question, found: Given, lent: Lent | None
    ) -> tuple[Tensor, Tensor | None]:
        """The vector [n] that was given, and the encoded difference as which it came. Raises PeerLost."""
        peer, codec, before = answer.sender, self._codec, question.before
        if found.number:
            copied = None if lent is None else await off_loop(2 * self.giving.newest.vector.nbytes, lent.copied)
            if copied is None:
                raise WrongNumbers(peer, "it lent a vector that is not there")
            self.showing.bytes_shared += copied.nbytes
            return copied, None
        like = self.giving.newest.vector
        if not found.difference or codec is None:
            return await self._arrived(answer, torch.empty_like(like), question), None
        if before is None or found.round != before.round + 1:
            raise WrongNumbers(peer, f"it gave the difference of round {found.round} from what it has not given")
        empty, known = torch.empty(codec.encoded_bytes(like.numel()), dtype=torch.uint8), before.vector
        difference = await self._arrived(answer, empty, question)
        try:
            return await off_loop(2 * known.nbytes, partial(decoded, codec, known, difference)), difference
        except ValueError as error:
            raise WrongNumbers(peer, f"it gave what {codec.name} does not decode: {error}") from None

    async def _arrived(self, answer: Envelope, into: Tensor, question: _Question) -> Tensor:
        """Fill `into` [n] with the first bytes, which came with the answer, and the chunks that follow."""
        first = len(answer.payload)
        if first > into.nbytes or first % into.itemsize:
            raise WrongNumbers(answer.sender, f"it gave {first} bytes of a vector of {into.nbytes}")
        into.view(torch.uint8).numpy()[:first] = np.frombuffer(answer.payload, np.uint8)
        answer.done()
        if first < into.nbytes:
            await self._vectors.receive(answer.sender, into[first // into.itemsize :], stage_of(question.number))
        return into

    def _asked_ahead(self, peer: PeerId, round: int) -> _Question | None:
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

    def _close(self, question: _Question) -> None:
        self._open.discard(question)
        if question.answer is not None and not _has_failed(question.answer) and question.answer.done():
            question.answer.result().done()
        last = question.number
        self._inbox.advance((stage_of(0)[0], min((one.number for one in self._open if one.number), default=last + 1)))

    def _forget(self, peer: PeerId) -> None:
        self._taken.pop(peer, None)
        self._give_up_ahead(peer)
        self.giving.forget(peer)

    def _checked(self, answer: Envelope, round: int) -> tuple[Given, Told]:
        """What an answer to a question for `round` tells. Raises WrongNumbers for numbers that cannot be."""
        found: Given = answer.message
        told = Told(found.loss, found.learning_rate, found.motion)
        try:
            self._check_told(answer.sender, told, found.round, found.step)
            if found.round < round and not found.last:
                raise WrongNumbers(answer.sender, f"it gave round {found.round} when round {round} was wanted")
        except WrongNumbers:
            answer.done()
            raise
        return found, told

    def _check_told(self, peer: PeerId, told: Told, round: int, step: int) -> None:
        if not told.makes_sense:
            raise WrongNumbers(peer, "it told numbers of its local steps that make no sense")
        if step < 0 or round < 0 or round > step + _IDLE_ROUNDS:
            raise WrongNumbers(peer, f"it told of round {round} after {step} local steps")
        if self._steps is not None and step > self._steps:
            raise WrongNumbers(peer, f"it told of {step} local steps in a run of {self._steps}")


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _retrieved(task: asyncio.Task[Any]) -> None:
    """Its exception is told, if at all, when the vector is taken."""
    if not task.cancelled():
        task.exception()
