"""Dispatch: an answer goes to the caller that asked, another message to the handler of its kind on its channel.

A message without a handler is kept, within bounds, until a handler is set: other peers may send before this peer has
set up all its conversations. A question that cannot be answered is answered with the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import NamedTuple

from ..transport import PeerId, is_guest
from ..wire.frames import Lane, PeerMisbehaved, Unopened, in_words, lane_of
from .asking import Asking, Told
from .envelope import Envelope
from .lane import MESSAGE_COST_BYTES
from .lost import PeerLost
from .refusals import NotOpen, Unanswered

_UNCLAIMED_MAX, _UNCLAIMED_BYTES_MAX = 256, 16 << 20
_UNCLAIMED_PER_PEER_MAX, _UNCLAIMED_BYTES_PER_PEER_MAX = 64, 4 << 20


Handler = Callable[[Envelope], None]
_OVER = "the conversation is over here"
_NOT_OPEN = "it takes no part in the conversation"
_Kind = tuple[str, type]
"""A channel, and the class of one kind of its messages."""


class _Question(NamedTuple):
    """An open question: the peer and the channel asked, the classes that its answer may have, and the future for the
    answer."""

    to: PeerId
    channel: str
    answers: tuple[type, ...]
    answer: asyncio.Future[Envelope] | Asking


class Reception:
    """The dispatcher of one endpoint: its handlers, its open questions, and messages that have no handler yet."""

    def __init__(
        self,
        first_ask: int,
        post: Callable[[str, PeerId, object], None],
        misbehaved: Callable[[PeerId, str], None],
    ) -> None:
        """`first_ask`: a random number from which questions are counted, so that an answer to another peer, or to a
        former process of this one, matches none of them. `post` sends a message without waiting; its arguments:
        channel, receiver, message. `misbehaved` counts a fault of a peer, found in a message that had been kept or put
        off; its arguments: the peer, and the reason."""
        self._first_ask = self._last_ask = first_ask
        self._post, self._misbehaved = post, misbehaved
        self._asks: dict[int, _Question] = {}
        self._handlers: dict[_Kind, Handler] = {}
        self._unclaimed: dict[_Kind, list[Envelope]] = {}
        self._closed = set[str]()
        """Channels that had handlers: a peer that still sends on one cannot know that it was closed."""
        self.bytes_received_by = Counter[str]()
        """Bytes of the messages that were dispatched, by channel."""
        self.on_ended: list[Callable[[PeerId], None]] = []
        self.awaited: list[Callable[[], Iterable[PeerId]]] = []
        """Functions that return the peers from which a conversation waits for data that no question asks for."""
        self.guests_say: _Kind | None = None
        """The only kind of message that is taken from guests, which are peers that share an invite's key; None: none
        is."""

    @property
    def asked(self) -> set[PeerId]:
        """The peers that have yet to answer a question of this endpoint, and those that the functions in `awaited`
        return, from which a conversation waits for data."""
        return {question.to for question in self._asks.values()}.union(*(peers() for peers in self.awaited))

    def on(self, channel: str, kind: type, handler: Handler) -> None:
        """Set the handler for messages of one class on a channel. Messages of that class that were kept are handed to
        it in the loop's next iteration. Raises ValueError when there is a handler already."""
        if (channel, kind) in self._handlers:
            raise ValueError(f"{kind.__name__} has a handler on the channel {channel!r}: one conversation, one channel")
        self._handlers[channel, kind] = handler
        self._closed.discard(channel)
        if (channel, kind) in self._unclaimed:
            asyncio.get_running_loop().call_soon(self._claim, (channel, kind))

    def off(self, channel: str) -> None:
        """Remove all handlers of a channel. Questions on it that were kept, and those that come before a handler is set
        again, are answered with `Unanswered`: the conversation is over here."""
        self._closed.add(channel)
        self._handlers = {kind: handler for kind, handler in self._handlers.items() if kind[0] != channel}
        self._forget(lambda waiting: waiting.channel == channel and _asks(waiting), _OVER)

    def _claim(self, kind: _Kind) -> None:
        for envelope in self._unclaimed.pop(kind, ()):
            if (handler := self._handlers.get(kind)) is None:
                with contextlib.suppress(PeerMisbehaved):
                    self._keep(kind, envelope)
            else:
                self._count(envelope)
                self.resume(envelope, handler)

    async def ask(
        self,
        to: PeerId,
        channel: str,
        send: Callable[[int], Awaitable[None]],
        answers: tuple[type, ...],
        within_s: float | None,
    ) -> Envelope:
        """Give a new question its number, and have `send` send it with that number to the peer `to`. Returns the
        answer, of one of the classes `answers` and on the same channel. Raises PeerLost when the peer is lost, says
        that it cannot answer, answers with another class, or does not answer within `within_s` seconds after `send` has
        returned (None: no limit); and what `send` raises."""
        self._last_ask += 1
        ask, envelope = self._last_ask, None
        answer: asyncio.Future[Envelope] = asyncio.get_running_loop().create_future()
        self._asks[ask] = _Question(to, channel, answers, answer)
        try:
            await send(ask)
            async with asyncio.timeout(within_s):
                envelope = await answer
        except TimeoutError:
            raise PeerLost(to, f"it is there but has not answered for {within_s:g} s") from None
        finally:  # the caller does not wait for it any more
            del self._asks[ask]
            if not answer.done():
                answer.cancel()
            elif not answer.cancelled() and answer.exception() is None and envelope is None:
                answer.result().done()
        return envelope

    def asking(
        self,
        to: PeerId,
        channel: str,
        offer: Callable[[int], asyncio.Future[None] | None],
        answers: tuple[type, ...],
        told: Told,
    ) -> Asking:
        """As `ask`, for a caller that does not wait here: `told` is called with the answer as soon as it arrives, or
        with PeerLost. `offer` sends the question as `Channel.offer` does; what it raises is raised here, and `told` is
        not called then."""
        ask, asking = self._last_ask + 1, Asking(told)
        self._last_ask = ask
        self._asks[ask] = _Question(to, channel, answers, asking)
        asking.forget = partial(self._asks.pop, ask, None)
        try:
            asking.sending = offer(ask)
        except BaseException:
            asking.cancel()
            raise
        if asking.sending is not None:
            asking.sending.add_done_callback(asking.sent)
        return asking

    def refuse(self, question: Envelope, why: str, error: Exception | None = None) -> None:
        """Answer a peer's `question` with `Unanswered` and the reason `why`; a message that asks nothing gets no
        answer. An `error` also goes to the loop's exception handler."""
        kind = type(question.message).__name__
        if error is not None:
            what = f"the {kind} of peer {question.sender:.12} could not be dealt with"
            asyncio.get_running_loop().call_exception_handler({"message": what, "exception": error})
        if (ask := getattr(question.message, "ask", 0)) > 0:
            self._post("", question.sender, Unanswered(ask, in_words(why)))

    def fail_asks(self, peer: PeerId | None, why: str, channel: str | None = None) -> None:
        """End this endpoint's open questions to `peer` (None: to all peers) on `channel` (None: on all channels): their
        callers get PeerLost with the reason `why`."""
        for question in list(self._asks.values()):
            concerned = peer in (question.to, None) and channel in (question.channel, None)
            if concerned and not question.answer.done():
                question.answer.set_exception(PeerLost(question.to, why))

    def hand_over(self, envelope: Envelope) -> None:
        """Dispatch a message that arrived: to the caller that asked, to its handler, or to the messages kept for later.
        Dropped are a late answer, a loose message without a handler, and an `Unopened` one, of which its sender is told
        if it is not loose; a question on a closed channel is refused. Raises PeerMisbehaved when its sender floods this
        peer with messages without a handler, when a guest sends a kind that only peers may send, when an answer is of a
        wrong class, or when the handler refuses the message; other errors of a handler are reported (`_call`)."""
        kind = (envelope.channel, type(envelope.message))
        if is_guest(envelope.sender) and kind != self.guests_say:
            envelope.done()
            raise PeerMisbehaved(f"sent {kind[1].__name__}, which is not taken of a guest")
        if isinstance(envelope.message, Unopened):
            envelope.done()
            if envelope.message.lane is not Lane.LOOSE:
                self._post("", envelope.sender, NotOpen(envelope.channel))
            return
        handler = self._handlers.get(kind)
        if handler is not None and kind not in self._unclaimed:
            self._count(envelope)
            self._call(handler, envelope)
            return
        ask = getattr(envelope.message, "ask", 0)
        if handler is None and isinstance(envelope.message, NotOpen):
            self.fail_asks(envelope.sender, f"it cannot answer: {_NOT_OPEN}", envelope.message.channel)
        elif handler is None and (self._first_ask < ask <= self._last_ask or kind[1] is Unanswered):
            self._take_answer(self._asks.get(ask), envelope)
        elif handler is None and lane_of(envelope.message) is Lane.LOOSE:
            return  # it might as well have been lost
        elif handler is None and envelope.channel in self._closed and _asks(envelope):
            envelope.done()
            self.refuse(envelope, _OVER)
        else:
            self._keep(kind, envelope)

    def resume(self, envelope: Envelope, handler: Handler) -> None:
        """Call `handler` with a message that was kept or put off. If it refuses the message, that is a fault of the
        sender, as it would have been on arrival."""
        try:
            self._call(handler, envelope)
        except PeerMisbehaved as error:
            self._misbehaved(envelope.sender, str(error))

    def _take_answer(self, question: _Question | None, envelope: Envelope) -> None:
        refused = isinstance(envelope.message, Unanswered)
        asked = None if question is None else (question.to, "" if refused else question.channel)
        if question is None or asked != (envelope.sender, envelope.channel) or question.answer.done():
            envelope.done()  # too late: the caller does not wait for it any more
        elif refused:
            question.answer.set_exception(PeerLost(question.to, f"it cannot answer: {envelope.message.why}"))
        elif not isinstance(envelope.message, question.answers):
            envelope.done()
            why = f"answered a question with {type(envelope.message).__name__}"
            question.answer.set_exception(PeerLost(question.to, f"it {why}"))
            raise PeerMisbehaved(why)
        else:
            self._count(envelope)
            question.answer.set_result(envelope)

    def _keep(self, kind: _Kind, envelope: Envelope) -> None:
        kept = [other for envelopes in self._unclaimed.values() for other in envelopes]
        own = [other for other in kept if other.sender == envelope.sender]
        full = len(kept) >= _UNCLAIMED_MAX or sum(other.cost for other in kept) > _UNCLAIMED_BYTES_MAX
        many = len(own) >= _UNCLAIMED_PER_PEER_MAX or sum(other.cost for other in own) > _UNCLAIMED_BYTES_PER_PEER_MAX
        late = [other for other in kept if other.channel in self._closed]
        if (full or many) and late:
            self._forget(lambda other: other.channel in self._closed)
            self._keep(kind, envelope)
        elif full and not many and (most := _that_holds_most(kept)) != envelope.sender:
            last = [other for other in kept if other.sender == most][-1]
            self._forget(lambda other: other is last, "too many messages wait here for their conversations")
            self._keep(kind, envelope)
        elif full or many:
            envelope.done()
            if envelope.channel not in self._closed:
                raise PeerMisbehaved(f"sent {kind[1].__name__}, which nobody here takes, again and again")
        else:
            self._unclaimed.setdefault(kind, []).append(envelope)

    def _forget(self, which: Callable[[Envelope], bool], why: str = "") -> None:
        """Drop the kept messages for which `which` is true. `why`: sent to those of their senders that asked a
        question."""
        for kind, envelopes in list(self._unclaimed.items()):
            for envelope in [envelope for envelope in envelopes if which(envelope)]:
                envelopes.remove(envelope)
                envelope.done()
                if why:
                    self.refuse(envelope, why)
            if not envelopes and kind not in self._handlers:
                del self._unclaimed[kind]  # because any peer may make up channels

    def ended(self, peer: PeerId, why: str) -> None:
        """The link to `peer` has ended for the reason `why`: end the open questions to it (`fail_asks`), drop its
        messages that wait for a handler, and call the listeners of `on_ended`."""
        self.fail_asks(peer, why)
        self._forget(lambda envelope: envelope.sender == peer)
        for told in self.on_ended:
            told(peer)

    def _count(self, envelope: Envelope) -> None:
        self.bytes_received_by[envelope.channel] += envelope.cost - MESSAGE_COST_BYTES

    def _call(self, handler: Handler, envelope: Envelope) -> None:
        """Call a handler. Its exceptions must not stop other messages. Raises PeerMisbehaved if the handler does."""
        try:
            handler(envelope)
        except PeerMisbehaved as error:
            envelope.done()
            self.refuse(envelope, str(error))
            raise
        except Exception as error:
            envelope.done()
            self.refuse(envelope, f"{type(error).__name__}: {error}", error)


def _asks(envelope: Envelope) -> bool:
    return getattr(envelope.message, "ask", 0) > 0


def _that_holds_most(kept: list[Envelope]) -> PeerId:
    """The sender of the largest share of these messages, in number or in bytes."""
    shares = Counter[PeerId]()
    for one in kept:
        shares[one.sender] += _UNCLAIMED_BYTES_MAX // _UNCLAIMED_MAX + one.cost
    return shares.most_common(1)[0][0]
