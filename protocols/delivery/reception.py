"""Reception: whom an arriving message is handed to. To who asked, if it is an answer; to the handler of its kind; or
it waits, bounded, until somebody takes its kind, as a peer may be called before it has set up all its conversations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..transport import PeerId
from ..wire import Buffer, PeerMisbehaved
from .link import Link, PeerLost

_UNCLAIMED_MAX = 256
_UNCLAIMED_PER_PEER_MAX = 64


@dataclass(slots=True, eq=False)
class Envelope:
    """A message that arrived. Whoever takes a DATA message calls `done()` once its payload is used up."""

    sender: PeerId
    message: Any
    payload: Buffer
    _link: Link | None
    _cost: int

    def done(self) -> None:
        """Give the credit for this message back to its sender. Calling twice is harmless."""
        link, self._link = self._link, None
        if link is not None:
            link.consumed(self._cost)


Handler = Callable[[Envelope], None]


class Reception:
    """One endpoint's handlers, open questions, and messages that nobody takes yet."""

    def __init__(self, first_ask: int) -> None:
        """`first_ask`: a random number, so that what answers a past self of this peer, or another, answers nothing."""
        self._first_ask = self._last_ask = first_ask
        self._asks: dict[int, tuple[PeerId, asyncio.Future[Envelope]]] = {}
        self._handlers: dict[type, Handler] = {}
        self._unclaimed: dict[type, list[Envelope]] = {}

    @property
    def asked(self) -> set[PeerId]:
        """Peers that owe an answer."""
        return {peer for peer, _ in self._asks.values()}

    def on(self, kind: type, handler: Handler) -> None:
        self._handlers[kind] = handler
        if kind in self._unclaimed:
            asyncio.get_running_loop().call_soon(self._claim, kind)

    def _claim(self, kind: type) -> None:
        for envelope in self._unclaimed.pop(kind, ()):
            self._handle(self._handlers[kind], envelope)

    def open_ask(self, to: PeerId) -> tuple[int, asyncio.Future[Envelope]]:
        """A number for a question, and the future of its answer."""
        self._last_ask += 1
        answer: asyncio.Future[Envelope] = asyncio.get_running_loop().create_future()
        self._asks[self._last_ask] = (to, answer)
        return self._last_ask, answer

    def close_ask(self, ask: int, *, taken: bool) -> None:
        """Nobody waits for this answer any more; `taken`: because it came."""
        _, answer = self._asks.pop(ask)
        if not answer.done():
            answer.cancel()
        elif answer.exception() is None and not taken:
            answer.result().done()

    def fail_asks(self, peer: PeerId | None, why: str) -> None:
        """Tell those who wait for an answer of `peer`, None for all, that it does not come."""
        for to, answer in list(self._asks.values()):
            if peer in (to, None) and not answer.done():
                answer.set_exception(PeerLost(to, why))

    def hand_over(self, envelope: Envelope) -> None:
        """Raises PeerMisbehaved when its sender floods us with what nobody here takes."""
        kind, ask = type(envelope.message), getattr(envelope.message, "ask", 0)
        handler = self._handlers.get(kind)
        if handler is not None and kind not in self._unclaimed:
            self._handle(handler, envelope)
        elif handler is None and self._first_ask < ask <= self._last_ask:
            to, answer = self._asks.get(ask, ("", None))
            if answer is not None and not answer.done() and to == envelope.sender:
                answer.set_result(envelope)
            else:
                envelope.done()  # too late: nobody waits for it any more
        else:
            self._keep(kind, envelope)

    def _keep(self, kind: type, envelope: Envelope) -> None:
        kept = [other.sender for envelopes in self._unclaimed.values() for other in envelopes]
        if len(kept) >= _UNCLAIMED_MAX or kept.count(envelope.sender) >= _UNCLAIMED_PER_PEER_MAX:
            envelope.done()
            raise PeerMisbehaved(f"sent {kind.__name__}, which nobody here takes, again and again")
        self._unclaimed.setdefault(kind, []).append(envelope)

    def _handle(self, handler: Handler, envelope: Envelope) -> None:
        """A handler's fault is told like that of any callback; it must not stop the others' messages."""
        try:
            handler(envelope)
        except Exception as error:
            envelope.done()
            what = f"the handler of {type(envelope.message).__name__} from peer {envelope.sender:.12} failed"
            asyncio.get_running_loop().call_exception_handler({"message": what, "exception": error})
