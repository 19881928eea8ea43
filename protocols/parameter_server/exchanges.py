"""Exchanges: a worker's questions about all ranges to the servers that hold them. (A range is a slice of the model's
vector or a block of rows of a table; its chain is the servers that hold its copies, from head to tail.) An exchange
that breaks off with a change of the view is taken up in the next view.

A worker asks each server for as many ranges at a time as suit the link, and has few questions open with each, so a
server holds little for it. Nothing here is a task while all goes well: tasks would be most of a small exchange's cost.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from ..channel import Channel, Envelope
from ..link.asking import Asking, Told
from ..link.link import PeerLost
from ..members.attributes import SERVER
from ..members.presence import Presence
from ..members.view import View
from ..transport import PeerId
from ..wire.frames import PAYLOAD_BYTES_MAX, Buffer
from ..wire.schema import ITEMS_MAX
from .keys import Keys
from .known import Known
from .lost_range import LostRange
from .parcels import Parcels
from .placement import Placement
from .shares import Shares
from .tenure import placement_of, workers_of

SERVERLESS_PATIENCES = 8
"""When no server is left and the last one was lost, a worker waits this many patiences for one to come back, and then
raises LostRange. Where the last one has left of its own will, it raises that at once."""

_OPEN_BYTES_MAX = 12 << 20
"""The most bytes of all workers' open questions to a server, or of its answers: it may hold all of them at a time."""
_AT_A_TIME = 2
"""The most questions of an exchange that are open with a server: the link is not empty while it deals with one."""

Take = Callable[[Envelope], None]
"""Called with an answer. Raises PeerLost for one that cannot be used: then the server is asked again."""


class Question(NamedTuple):
    """A question to a server, asked once: `message` makes it from its number. Its answer, of one of the classes
    `answers`, goes to `take`; for any other the asker gets PeerLost. To ask again, `Ask` makes a new question."""

    message: Callable[[int], object]
    payload: Buffer
    answers: tuple[type, ...]
    take: Take


Ask = Callable[[int, PeerId, tuple[int, ...]], Question]
"""Makes the question about some ranges to one server. Arguments: generation of the view, server, ranges' numbers."""


class Exchanges:
    """One worker's exchanges with the servers of the ranges `keys`, each held in `copies` copies."""

    def __init__(self, channel: Channel, presence: Presence, keys: Keys, copies: int) -> None:
        self._channel, self._keys, self._copies = channel, keys, copies
        self.presence, self.known = presence, Known(channel, presence, len(keys))
        self.parcels = Parcels(channel)
        self.open: dict[Exchange, None] = {}
        """The exchanges under way."""
        self._placed: tuple[int, Placement] | None = None
        """The generation of a view and the chains in it; None: none were asked for."""
        presence.on_change.append(self._look)

    def begin(self, ask: Ask, shares: Shares, over: Callable[[], None], *, tail: bool) -> Exchange:
        """Begin an exchange with one server of each range, the tail of its chain if `tail`, else its head, and in later
        views about the ranges still unanswered. `ask` makes the questions. `over` is called at the end or failure.
        `shares`: the rows asked about."""
        self.open[exchange := Exchange(self, ask, shares, over, tail=tail)] = None
        exchange.begin()
        return exchange

    def _look(self) -> None:
        for exchange in list(self.open):
            exchange.look()

    def placement(self, view: View) -> Placement:
        """The chains of servers in `view`, cached for the last view."""
        if self._placed is None or self._placed[0] != view.generation:
            self._placed = view.generation, placement_of(view, self._copies)
        return self._placed[1]

    def all(self) -> set[int]:
        """The numbers of all ranges."""
        return {*range(len(self._keys))}

    def by_server(self, view: View, left: set[int], *, tail: bool) -> dict[PeerId, list[int]]:
        """The ranges in `left` by the server to ask: in `view` the range's tail if `tail`, else its head. Empty without
        servers."""
        of: defaultdict[PeerId, list[int]] = defaultdict(list)
        placement = self.placement(view)
        for number in sorted(left):
            if chain := placement.chain(number):
                of[chain[-1 if tail else 0]].append(number)
        return of

    def batches(self, server: PeerId, numbers: Sequence[int], shares: Shares) -> Iterator[tuple[int, ...]]:
        """The ranges `numbers` in groups, one for each message to `server`: as many as fit this worker's share of its
        memory and, unless the two share memory, the link."""
        at, share = 0, _OPEN_BYTES_MAX // (_AT_A_TIME * max(1, len(workers_of(self.presence.present))))
        while at < len(numbers):
            link = share if self.parcels.reaches(server) else self._channel.endpoint.chunk_bytes(server) * 17 // 16
            # Links differ a little, and a server updates at once what all workers push in the same groups.
            most = 1 << min(PAYLOAD_BYTES_MAX, share, link).bit_length() - 1
            until, nbytes = at + 1, shares.nbytes(numbers[at])
            while until < min(len(numbers), at + ITEMS_MAX):
                if (nbytes := nbytes + shares.nbytes(numbers[until])) > most:
                    break
                until += 1
            yield tuple(numbers[at:until])
            at = until

    def asking(self, server: PeerId, question: Question, told: Told) -> Asking:
        """Ask `server` the question; `told` is called with its answer, or with PeerLost. Raises PeerLost."""
        return self._channel.asking(server, question.message, question.payload, answers=question.answers, told=told)

    def retry(self, server: PeerId) -> None:
        """If the link to `server` is lost, try to reach it again."""
        self._channel.endpoint.retry(server)

    @property
    def patience_s(self) -> float:
        return self._channel.endpoint.patience_s


class Exchange:
    """One exchange about all ranges, by the arguments of `Exchanges.begin`: asks each server for its ranges, batch by
    batch, and again in a new view. It looks like a task: `done`, `result`, `cancel`."""

    def __init__(self, exchanges: Exchanges, ask: Ask, shares: Shares, over: Callable[[], None], *, tail: bool) -> None:
        self._exchanges, self._ask, self._shares, self._over, self._tail = exchanges, ask, shares, over, tail
        self._left = exchanges.all()
        self._view: View | None = None
        """The view in which it goes on; None: it waits for one."""
        self._asked: dict[int, Asking] = {}
        self._asked_so_far = 0
        self._waiting: asyncio.Task[View] | None = None
        self._serverless_s: float | None = None
        """Since when there is no server; None: there is one."""
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Whether the exchange is over: done, failed or cancelled."""
        return self not in self._exchanges.open

    def result(self) -> None:
        """Raises the error with which the exchange has ended, if any: LostRange, ValueError, an error of the
        membership."""
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """End the exchange, if it is not over: `over` is not called, `done` is true, `result` raises nothing. Answers
        that are still to come are dropped; servers keep the pushes that they have taken."""
        self._exchanges.open.pop(self, None)
        self._break_off()
        if self._waiting is not None:
            self._waiting.cancel()

    def begin(self) -> None:
        """Ask about all ranges, now or as soon as this peer is in a view."""
        if (view := self._exchanges.presence.now) is None:
            self._await_view()
        else:
            self._go_on(view)

    def look(self) -> None:
        """If the view is over for this peer, go on in the next one, about the ranges without an answer."""
        if self._view is not None and self._exchanges.presence.has_left(self._view):
            self._break_off()
            self._await_view()

    def _break_off(self) -> None:
        asked, self._asked, self._view = self._asked, {}, None
        for asking in asked.values():
            asking.cancel()

    def _await_view(self, *, pause: bool = False) -> None:
        self._waiting = asyncio.create_task(self._next_view(pause=pause), name="view")
        self._waiting.add_done_callback(self._has_view)

    async def _next_view(self, *, pause: bool) -> View:
        presence = self._exchanges.presence
        if pause:
            await presence.pause()
        return await presence.view()

    def _has_view(self, waiting: asyncio.Task[View]) -> None:
        if waiting.cancelled() or self.done():
            return
        self._waiting = None
        if (error := waiting.exception()) is not None:
            self._end(error)
        elif self._exchanges.presence.has_left(view := waiting.result()):
            self._await_view()  # `look` did not know that this exchange goes on in that one
        else:
            self._go_on(view)

    def _go_on(self, view: View) -> None:
        """Ask about the ranges that are left, in `view`."""
        exchanges = self._exchanges
        if not exchanges.placement(view).servers:
            now = asyncio.get_running_loop().time()
            since_s = self._serverless_s = now if self._serverless_s is None else self._serverless_s
            last = exchanges.presence.went(SERVER)
            stopped = last is not None and last.left  # one that was lost may come back
            if stopped or now - since_s > SERVERLESS_PATIENCES * exchanges.patience_s:
                why = f"the last {last.why}" if last is not None and stopped else "none has come back"
                advice = "resume the run where its servers were, by --resume, and join it anew"
                self._end(LostRange(f"no server is left, and {why}: {advice}"))
                return
        else:
            self._serverless_s = None
        self._view = view
        exchanges.parcels.begin(view)
        for server, numbers in exchanges.by_server(view, self._left, tail=self._tail).items():
            batches = exchanges.batches(server, numbers, self._shares)
            for _ in range(_AT_A_TIME):
                self._ask_next(view, server, batches)
        self._look_whether_over()

    def _ask_next(self, view: View, server: PeerId, batches: Iterator[tuple[int, ...]]) -> None:
        if self._view is not view or (ranges := next(batches, None)) is None:
            return
        place = self._asked_so_far = self._asked_so_far + 1
        try:
            question = self._ask(view.generation, server, ranges)
            told = partial(self._told, view, server, batches, ranges, question.take, place)
            self._asked[place] = self._exchanges.asking(server, question, told)
        except PeerLost:
            self._exchanges.retry(server)
        except Exception as error:
            self._end(error)

    def _told(
        self,
        view: View,
        server: PeerId,
        batches: Iterator[tuple[int, ...]],
        ranges: tuple[int, ...],
        take: Take,
        place: int,
        answer: Envelope | PeerLost,
    ) -> None:
        exchanges = self._exchanges
        if place not in self._asked or exchanges.presence.has_left(view):
            if isinstance(answer, Envelope):
                answer.done()  # it has come too late
            return
        del self._asked[place]
        try:
            if isinstance(answer, PeerLost):
                raise answer
            take(answer)
        except PeerLost:
            exchanges.retry(server)
        except Exception as error:
            self._end(error)
            return
        else:
            self._left.difference_update(ranges)
            exchanges.known.settled(ranges, view)
            if self._left:
                self._ask_next(view, server, batches)
        self._look_whether_over()

    def _look_whether_over(self) -> None:
        if not self._left:
            self._end(None)
        elif not self._asked and self._view is not None:
            self._view = None
            self._await_view(pause=True)

    def _end(self, error: BaseException | None) -> None:
        self._error = error
        self.cancel()
        self._over()
