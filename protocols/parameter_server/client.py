"""A worker's side of push and pull. An exchange that breaks off with a change of the view is taken up in the next view.

The vector is cut into ranges; a worker's clock is the number of its pushes. A worker asks each server for as many
ranges at a time as suit the link, and has few questions open with each, so a server holds little for it. A worker keeps
a push and repeats it until all copies have it.

On failure: `LostRange` where all copies of a range are gone; a lost range never begins again from other values without
notice.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from ...aggregation.vector import Part
from ..channel import Channel, Envelope
from ..link.link import PeerLost
from ..members.errors import MembershipError
from ..members.presence import Presence
from ..members.view import View
from ..transport import PeerId
from ..wire.frames import PAYLOAD_BYTES_MAX
from ..wire.schema import ITEMS_MAX
from .messages import Early, Enlist, Enlisted, Holdings, NotTaken, Pull, Pulled, Push, Pushed, Survey
from .placement import Placement, merged
from .store import NOTHING, of_bytes, raw, settled_at
from .tenure import placement_of

T = TypeVar("T")


class LostRange(MembershipError):
    """All copies of a range of the model's vector are gone, so this worker cannot go on."""


SERVERLESS_PATIENCES = 8
"""When no server is left, a worker waits this many patiences for one to come back, and then raises LostRange."""


@dataclass(frozen=True, slots=True)
class Values:
    """The result of a pull: the `vector` [n], and by range its number of `updates` and the pulling worker's `clocks`,
    of which `clock` is the highest. `late`: the worker for whose push the servers waited last; "": for none."""

    vector: Tensor
    updates: tuple[int, ...]
    clocks: tuple[int, ...]
    late: PeerId

    @property
    def clock(self) -> int:
        return max(self.clocks)


_Exchange = Callable[[PeerId, int, tuple[int, ...]], Awaitable[None]]
"""Exchanges one question and answer about these ranges with a server: (server, generation of the view, ranges)."""


class Client:
    """One worker's pushes and pulls of a vector of `dtype`, cut into `ranges`, each held in `copies` copies."""

    def __init__(
        self, channel: Channel, presence: Presence, ranges: Sequence[Part], dtype: torch.dtype, copies: int
    ) -> None:
        self._channel, self._presence, self._copies = channel, presence, copies
        self._ranges, self._dtype = tuple(ranges), dtype
        self._acknowledged = [0] * len(ranges)
        """By range, the number of the last push that all copies have."""
        self._pushing: dict[tuple[int, int], asyncio.Task[None]] = {}
        """The pushes under way, by partition and number."""
        self._known = [NOTHING] * len(ranges)
        """By range, the standing of the copy with whose chain this worker has had its last exchange."""
        self._surveys: list[Envelope] = []
        self._placed: tuple[int, Placement] | None = None
        """The generation of a view and the chains in it; None: none were asked for."""
        channel.on(Survey, self._on_survey)
        presence.on_view.append(self._on_view)
        self._news = asyncio.Event()
        """Set when a push or a pull is over."""

    async def enlist(self, clock: int) -> int:
        """Tell the servers that this worker takes part from `clock` on. Where the other workers are further, they give
        it a later clock, so that none has to wait for it. Returns the clock from which it takes part."""
        first = await self._enlisted(clock)
        return first if first == clock else await self._enlisted(first)

    async def pull(self, clock: int) -> Values:
        """Wait for the values that a read at `clock` may see under the run's consistency, and return them. Raises the
        errors of `at_most`, because a read may wait for a push of this worker."""
        pulling = self._begun(self._pull(clock), "pull")
        try:
            await self._until(pulling.done)
            return pulling.result()
        finally:
            pulling.cancel()

    async def _pull(self, clock: int) -> Values:
        vector = torch.empty(self._ranges[-1].stop, dtype=self._dtype)
        many = len(self._ranges)
        updates, clocks, late = [0] * many, [0] * many, [""]

        async def exchange(server: PeerId, epoch: int, ranges: tuple[int, ...]) -> None:
            before = self._told(ranges)
            answer = await self._channel.ask(
                server, lambda ask: Pull(ask, epoch, clock, ranges), answers=(Pulled, NotTaken)
            )
            pulled: Pulled = _taken(answer.message)
            elements, nbytes, at = sum(map(self._size, ranges)), len(answer.payload), 0
            if nbytes != elements * self._dtype.itemsize or {len(pulled.updates), len(pulled.clocks)} != {len(ranges)}:
                answer.done()
                raise PeerLost(server, f"it gave {nbytes} bytes of {elements} elements in {len(ranges)} ranges")
            values = of_bytes(answer.payload, self._dtype)
            answer.done()
            _check(ranges, before, pulled.clocks)
            for number, update, own in zip(ranges, pulled.updates, pulled.clocks, strict=True):
                updates[number], clocks[number] = update, own
            for part in merged(self._ranges[number] for number in ranges):
                size = part.stop - part.start
                vector[part.start : part.stop], at = values[at : at + size], at + size
            late.append(pulled.late)

        await self._with_all(exchange, tail=True)
        return Values(vector, tuple(updates), tuple(clocks), late[-1])

    def push(self, seq: int, vector: Tensor, read: Sequence[int], *, last: bool = False, of: int = 0) -> None:
        """Begin to push `vector` [n] under the number `seq`; `at_most` waits for its end. `read`: the number of updates
        of each range in the values that the change was computed from. `last`: this worker takes no more steps.
        `of`: see `Push`. The vector must not change any more."""
        pushing = self._push(seq, vector, tuple(read), last, of)
        self._pushing[of, seq] = self._begun(pushing, "push")

    async def at_most(self, pushes: int) -> None:
        """Wait until at most `pushes` pushes are under way. Raises LostRange, ValueError when a server refuses a push
        for good, and the errors of the membership."""
        await self._until(lambda: len(self._pushing) <= pushes)

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
        for push, task in list(self._pushing.items()):
            if task.done():
                del self._pushing[push]
                task.result()

    def close(self) -> None:
        for task in self._pushing.values():
            task.cancel()

    async def _push(self, seq: int, vector: Tensor, read: tuple[int, ...], last: bool, of: int) -> None:
        async def exchange(server: PeerId, epoch: int, ranges: tuple[int, ...]) -> None:
            payload = raw(
                [vector[part.start : part.stop] for part in merged(self._ranges[number] for number in ranges)]
            )
            known, before = tuple(read[number] for number in ranges), self._told(ranges)
            answer = await self._channel.ask(
                server,
                lambda ask: Push(ask, epoch, seq, ranges, known, last, of),
                payload,
                answers=(Pushed, Early, NotTaken),
            )
            answer.done()
            pushed = _taken(answer.message)
            _check(ranges, before, pushed.clocks)
            if isinstance(pushed, Early):
                raise PeerLost(server, "an earlier push has not come")
            for number in ranges:
                self._acknowledged[number] = max(seq, self._acknowledged[number])

        await self._with_all(exchange, tail=False)

    async def _enlisted(self, clock: int) -> int:
        clocks = [clock]

        async def exchange(server: PeerId, epoch: int, ranges: tuple[int, ...]) -> None:
            before = self._told(ranges)
            answer = await self._channel.ask(
                server, lambda ask: Enlist(ask, epoch, clock, ranges), answers=(Enlisted, NotTaken)
            )
            enlisted = _taken(answer.message)
            _check(ranges, before, enlisted.before)
            clocks.extend(enlisted.clocks)

        await self._with_all(exchange, tail=False)
        return max(clocks)

    def _told(self, ranges: Sequence[int]) -> tuple[int, ...]:
        """By range, the number of the last push that is acknowledged: a server that is asked from now on has it."""
        return tuple(self._acknowledged[number] for number in ranges)

    async def _with_all(self, exchange: _Exchange, *, tail: bool) -> None:
        """Have `exchange` done once for each range, with the tail of the range's chain or else its head, over as many
        views as it takes."""
        left, now = {*range(len(self._ranges))}, asyncio.get_running_loop().time
        served_s = now()
        while left:
            view = await self._presence.view()
            if self._placement(view).servers:
                served_s = now()
            elif now() - served_s > SERVERLESS_PATIENCES * self._channel.endpoint.patience_s:
                raise LostRange("no server is left, and none has come back: go on from the checkpoints with --resume")
            await self._presence.during(view, partial(self._in_view, view, exchange, left, tail=tail))
            if left and not self._presence.has_left(view):
                await self._presence.pause()

    def _placement(self, view: View) -> Placement:
        """The chains in `view`; those of the last view are kept."""
        if self._placed is None or self._placed[0] != view.generation:
            self._placed = view.generation, placement_of(view, self._copies)
        return self._placed[1]

    async def _in_view(self, view: View, exchange: _Exchange, left: set[int], *, tail: bool) -> None:
        of: defaultdict[PeerId, list[int]] = defaultdict(list)
        placement = self._placement(view)
        for number in sorted(left):
            if chain := placement.chain(number):
                of[chain[-1 if tail else 0]].append(number)

        async def with_one(server: PeerId) -> None:
            try:
                for ranges in self._batches(server, of[server]):
                    await exchange(server, view.generation, ranges)
                    left.difference_update(ranges)
                    for number in ranges:
                        self._known[number] = settled_at(view.generation)
            except PeerLost:
                self._channel.endpoint.retry(server)  # in this view, or without that server in the next

        tasks = [asyncio.create_task(with_one(server), name="ranges") for server in of]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def _on_survey(self, envelope: Envelope) -> None:
        """Tell the head of a range in a new view which standings this worker knows. It answers only once it has that
        view itself, and no exchange of an earlier view any more."""
        if envelope.message.epoch > self._presence.generation:
            self._surveys.append(envelope)
        else:
            nothing = (NOTHING,) * len(self._ranges)
            self._channel.post(envelope.sender, Holdings(envelope.message.ask, nothing, nothing, tuple(self._known)))

    def _on_view(self, view: View) -> None:
        surveys, self._surveys = self._surveys, []
        for envelope in surveys:
            self._on_survey(envelope)

    def _batches(self, server: PeerId, numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """These ranges in groups, each of as many as suit the link to `server` now."""
        at = 0
        while at < len(numbers):
            most = min(PAYLOAD_BYTES_MAX, self._channel.endpoint.chunk_bytes(server)) // self._dtype.itemsize
            until, size = at + 1, self._size(numbers[at])
            while until < min(len(numbers), at + ITEMS_MAX) and size + self._size(numbers[until]) <= most:
                size += self._size(numbers[until])
                until += 1
            yield tuple(numbers[at:until])
            at = until

    def _size(self, number: int) -> int:
        return self._ranges[number].stop - self._ranges[number].start


def _check(ranges: Sequence[int], before: Sequence[int], clocks: Sequence[int]) -> None:
    """Raises LostRange where the clock of a range is below the number of a push that was acknowledged before the
    question."""
    for number, acknowledged, clock in zip(ranges, before, clocks, strict=False):
        if clock < acknowledged:
            told = f"range {number} of the model has gone back from push {acknowledged} to {clock}"
            raise LostRange(f"{told}: its servers were lost with all copies; go on from the checkpoints")


def _taken(message: T | NotTaken) -> T:
    """Returns `message` if it is the answer. If it is NotTaken, raises LostRange when copies are lost, and ValueError
    for a wrong question."""
    if isinstance(message, NotTaken):
        raise LostRange(message.why) if message.lost else ValueError(message.why)
    return message
