"""A worker's side of push and pull. An exchange that breaks off with a change of the view is taken up in the next view.

The vector is cut into ranges, and so are the rows of each table; of a table a worker pulls and pushes only the rows
that it names. A worker's clock is the number of its pushes, and each push goes to all ranges, to a range of a table
perhaps without a row. A worker asks each server for as many ranges at a time as suit the link, and
has few questions open with each, so a server holds little for it. A worker keeps a push and repeats it until all copies
have it.

On failure: `LostRange` where all copies of a range are gone; a lost range never begins again from other values without
notice.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from torch import Tensor

from ...aggregation.rows import Rows
from ..channel import Channel
from ..link.link import PeerLost
from ..members.errors import MembershipError
from ..members.presence import Presence
from ..members.view import View
from ..transport import PeerId
from ..wire.frames import PAYLOAD_BYTES_MAX
from ..wire.schema import ITEMS_MAX
from .keys import Keys
from .known import Known
from .messages import Early, Enlist, Enlisted, NotTaken, Pull, Pulled, Push, Pushed
from .pieces import of_bytes, packed
from .placement import Placement
from .shares import Pushes, Shares
from .tenure import placement_of

T = TypeVar("T")


class LostRange(MembershipError):
    """All copies of a range of the model's vector are gone, so this worker cannot go on."""


SERVERLESS_PATIENCES = 8
"""When no server is left, a worker waits this many patiences for one to come back, and then raises LostRange."""


@dataclass(frozen=True, slots=True)
class Values:
    """The result of a pull: the `vector` [n], by table the `rows` that were asked for, and by range its number of
    `updates` and the pulling worker's `clocks`, of which `clock` is the highest. `late`: the worker for whose push the
    servers waited last; "": for none."""

    vector: Tensor
    rows: Mapping[str, Rows]
    updates: tuple[int, ...]
    clocks: tuple[int, ...]
    late: PeerId

    @property
    def clock(self) -> int:
        return max(self.clocks)


NO_ROWS: Mapping[str, Tensor] = {}

_Exchange = Callable[[PeerId, int, tuple[int, ...]], Awaitable[None]]
"""Exchanges one question and answer about these ranges with a server: (server, generation of the view, ranges)."""


class Client:
    """One worker's pushes and pulls of the ranges `keys`, each held in `copies` copies."""

    def __init__(self, channel: Channel, presence: Presence, keys: Keys, copies: int) -> None:
        self._channel, self._presence, self._copies, self._keys = channel, presence, copies, keys
        self._acknowledged = [0] * len(keys)
        """By range, the number of the last push that all copies have."""
        self._seen = [0] * len(keys)
        """By range, the most updates in values that were pulled."""
        self._pushing: dict[tuple[int, int], asyncio.Task[None]] = {}
        """The pushes under way, by partition and number."""
        self._known = Known(channel, presence, len(keys))
        self._placed: tuple[int, Placement] | None = None
        """The generation of a view and the chains in it; None: none were asked for."""
        self._news = asyncio.Event()
        """Set when a push or a pull is over."""

    async def enlist(self, clock: int) -> int:
        """Tell the servers that this worker takes part from `clock` on. Where the other workers are further, they give
        it a later clock, so that none has to wait for it. Returns the clock from which it takes part."""
        first = await self._enlisted(clock)
        return first if first == clock else await self._enlisted(first)

    async def pull(self, clock: int, wanted: Mapping[str, Tensor] = NO_ROWS) -> Values:
        """Wait for the values that a read at `clock` may see under the run's consistency, and return them. `wanted`: by
        table, the numbers [k] of the rows to pull, ascending and none twice. Raises ValueError where these are no rows
        of the tables, and the errors of `at_most`, because a read may wait for a push of this worker."""
        shares = Shares(self._keys, wanted)
        pulling = self._begun(self._pull(clock, shares), "pull")
        try:
            await self._until(pulling.done)
            return pulling.result()
        finally:
            pulling.cancel()

    async def _pull(self, clock: int, shares: Shares) -> Values:
        keys, found, many, late = self._keys, shares.blank(), len(self._keys), [""]
        updates, clocks = [0] * many, [0] * many

        async def exchange(server: PeerId, epoch: int, ranges: tuple[int, ...]) -> None:
            before, seen = self._told(ranges), tuple(self._seen[number] for number in ranges)
            payload = packed([shares.ids[number] for number in ranges if number in keys.blocks], [])
            rows = shares.counts(ranges)
            answer = await self._channel.ask(
                server, lambda ask: Pull(ask, epoch, clock, ranges, rows), payload, answers=(Pulled, NotTaken)
            )
            pulled: Pulled = taken(answer.message)
            elements, nbytes = sum(map(shares.size, ranges)), len(answer.payload)
            if nbytes != elements * keys.dtype.itemsize or {len(pulled.updates), len(pulled.clocks)} != {len(ranges)}:
                answer.done()
                raise PeerLost(server, f"it gave {nbytes} bytes of {elements} elements in {len(ranges)} ranges")
            values = of_bytes(answer.payload, keys.dtype)
            answer.done()
            _check(ranges, before, pulled.clocks)
            _check(ranges, seen, pulled.updates, "update")
            shares.put(values, ranges, found)
            for number, update, own in zip(ranges, pulled.updates, pulled.clocks, strict=True):
                updates[number], clocks[number] = update, own
                self._seen[number] = max(update, self._seen[number])
            late.append(pulled.late)

        await self._with_all(exchange, shares, tail=True)
        return Values(found.vector, found.rows, tuple(updates), tuple(clocks), late[-1])

    def push(self, seq: int, pushed: Pushes, read: Sequence[int], *, last: bool = False, of: int = 0) -> None:
        """Begin to push `pushed` under the number `seq`; `at_most` waits for its end. `read`: the number of updates of
        each range in the values that the change was computed from. `last`: this worker takes no more steps. `of`: see
        `Push`. The tensors must not change any more. Raises ValueError where they are not of the shapes and the dtype
        of the model and its tables. A push that is under way is not begun again."""
        if (of, seq) in self._pushing:
            return
        pushing = self._push(seq, pushed, Shares.of(self._keys, pushed), tuple(read), last=last, of=of)
        self._pushing[of, seq] = self._begun(pushing, "push")

    async def at_most(self, pushes: int) -> None:
        """Wait until at most `pushes` pushes are under way. Raises LostRange, ValueError when a server refuses a push
        for good, and the errors of the membership."""
        await self._until(lambda: len(self._pushing) <= pushes)

    def give_up(self, seq: int) -> None:
        """End the pushes with the numbers up to `seq`: others have brought the same. Raises the errors of pushes."""
        self._look()
        for push in [one for one in self._pushing if one[1] <= seq]:
            self._pushing.pop(push).cancel()

    def _begun(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(lambda done: self._news.set())
        return task

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait for `condition`, which the end of a push or pull makes true. Raises the errors of pushes."""
        while True:
            self._news.clear()
            self._look()
            if condition():
                return
            await self._news.wait()

    def _look(self) -> None:
        """Forget the pushes that are over. Raises their errors."""
        for push in [push for push, task in self._pushing.items() if task.done()]:
            self._pushing.pop(push).result()

    def close(self) -> None:
        for task in self._pushing.values():
            task.cancel()

    async def _push(
        self, seq: int, pushes: Pushes, shares: Shares, read: tuple[int, ...], *, last: bool, of: int
    ) -> None:
        async def exchange(server: PeerId, epoch: int, ranges: tuple[int, ...]) -> None:
            payload = shares.payload(ranges, pushes)
            known, before = tuple(read[number] for number in ranges), self._told(ranges)
            answer = await self._channel.ask(
                server,
                lambda ask: Push(ask, epoch, seq, ranges, shares.counts(ranges), known, last, of),
                payload,
                answers=(Pushed, Early, NotTaken),
            )
            answer.done()
            pushed = taken(answer.message)
            _check(ranges, before, pushed.clocks)
            if isinstance(pushed, Early):
                raise PeerLost(server, "an earlier push has not come")
            for number in ranges:
                self._acknowledged[number] = max(seq, self._acknowledged[number])

        await self._with_all(exchange, shares, tail=False)

    async def _enlisted(self, clock: int) -> int:
        clocks = [clock]

        async def exchange(server: PeerId, epoch: int, ranges: tuple[int, ...]) -> None:
            before = self._told(ranges)
            answer = await self._channel.ask(
                server, lambda ask: Enlist(ask, epoch, clock, ranges), answers=(Enlisted, NotTaken)
            )
            enlisted = taken(answer.message)
            _check(ranges, before, enlisted.before)
            clocks.extend(enlisted.clocks)

        await self._with_all(exchange, Shares(self._keys, NO_ROWS), tail=False)
        return max(clocks)

    def _told(self, ranges: Sequence[int]) -> tuple[int, ...]:
        """By range, the number of the last push that is acknowledged: a server that is asked from now on has it."""
        return tuple(self._acknowledged[number] for number in ranges)

    async def _with_all(self, exchange: _Exchange, shares: Shares, *, tail: bool) -> None:
        """Have `exchange` done once for each range, with the tail of the range's chain or else its head, over as many
        views as it takes. `shares`: the rows that it is about."""
        left, now = {*range(len(self._keys))}, asyncio.get_running_loop().time
        served_s = now()
        while left:
            view = await self._presence.view()
            if self._placement(view).servers:
                served_s = now()
            elif now() - served_s > SERVERLESS_PATIENCES * self._channel.endpoint.patience_s:
                raise LostRange("no server is left, and none has come back: go on from the checkpoints with --resume")
            await self._presence.during(view, partial(self._in_view, view, exchange, shares, left, tail=tail))
            if left and not self._presence.has_left(view):
                await self._presence.pause()

    def _placement(self, view: View) -> Placement:
        """The chains in `view`; those of the last view are kept."""
        if self._placed is None or self._placed[0] != view.generation:
            self._placed = view.generation, placement_of(view, self._copies)
        return self._placed[1]

    async def _in_view(self, view: View, exchange: _Exchange, shares: Shares, left: set[int], *, tail: bool) -> None:
        of: defaultdict[PeerId, list[int]] = defaultdict(list)
        placement = self._placement(view)
        for number in sorted(left):
            if chain := placement.chain(number):
                of[chain[-1 if tail else 0]].append(number)

        async def with_one(server: PeerId) -> None:
            try:
                for ranges in self._batches(server, of[server], shares):
                    await exchange(server, view.generation, ranges)
                    left.difference_update(ranges)
                    self._known.settled(ranges, view)
            except PeerLost:
                self._channel.endpoint.retry(server)  # in this view, or without that server in the next

        tasks = [asyncio.create_task(with_one(server), name="ranges") for server in of]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def _batches(self, server: PeerId, numbers: Sequence[int], shares: Shares) -> Iterator[tuple[int, ...]]:
        """These ranges in groups, each of as many as suit the link to `server` now."""
        at = 0
        while at < len(numbers):
            most = min(PAYLOAD_BYTES_MAX, self._channel.endpoint.chunk_bytes(server))
            until, nbytes = at + 1, shares.nbytes(numbers[at])
            while until < min(len(numbers), at + ITEMS_MAX) and nbytes + shares.nbytes(numbers[until]) <= most:
                nbytes += shares.nbytes(numbers[until])
                until += 1
            yield tuple(numbers[at:until])
            at = until


def _check(ranges: Sequence[int], before: Sequence[int], now: Sequence[int], what: str = "push") -> None:
    """Raises LostRange where the number of a range's last push, or update (`what`), is below the one that this worker
    knew `before` it asked."""
    for number, known, told in zip(ranges, before, now, strict=False):
        if told < known:
            gone = f"range {number} of the model has gone back from {what} {known} to {told}"
            raise LostRange(f"{gone}: its servers were lost with all copies; go on from the checkpoints")


def taken(message: T | NotTaken) -> T:
    """Returns `message` if it is the answer. If it is NotTaken, raises LostRange when copies are lost, and ValueError
    for a wrong question."""
    if isinstance(message, NotTaken):
        raise LostRange(message.why) if message.lost else ValueError(message.why)
    return message
