"""A worker's side of push and pull.

The vector is cut into ranges, and so are the rows of each table; of a table a worker pulls and pushes only the rows
that it names. A worker's clock is the number of its pushes, and each push goes to all ranges, to a range of a table
perhaps without a row. A worker keeps a push and repeats it until all copies have it.

A push may read as well (push and pull in one exchange): its answers bring the values that the next pull is for. Then
some ranges at a time cost one message each way.

On failure: `LostRange` where all copies of a range are gone; a lost range never begins again from other values without
notice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from torch import Tensor

from ..channel import Channel, Envelope
from ..link.link import PeerLost
from ..members.presence import Presence
from ..testpoints import witness, witnessed
from ..transport import PeerId
from .events import Holds
from .exchanges import Exchange, Exchanges, Question
from .keys import Keys
from .lost_range import check, taken
from .messages import Early, Enlist, Enlisted, NotTaken, Pull, Pulled, Push, Pushed
from .pieces import packed
from .reading import Held, Reading, Values
from .shares import Pushes, Shares
from .sparse import Sparse

NO_ROWS: Mapping[str, Tensor] = {}
Before = tuple[tuple[int, ...], tuple[int, ...]]
"""By range, the acknowledged pushes and the updates that a worker knew of when it asked."""


class Enlistment(NamedTuple):
    """The `clock` from which a worker takes part, and in `before` the highest clock that it had in any range before it
    was enlisted."""

    clock: int
    before: int


class Client:
    """One worker's pushes and pulls of the ranges `keys`, each held in `copies` copies."""

    def __init__(self, channel: Channel, presence: Presence, keys: Keys, copies: int) -> None:
        self._channel, self._keys = channel, keys
        self._exchanges, self._no_rows = Exchanges(channel, presence, keys, copies), Shares(keys, NO_ROWS)
        self._held = Held()
        self._acknowledged = [0] * len(keys)
        """By range, the number of the last push that all copies have."""
        self._seen = [0] * len(keys)
        """By range, the most updates in values that were pulled."""
        self._pushing: dict[tuple[int, int], Exchange] = {}
        """The pushes under way, by partition and number."""
        self._reading: tuple[int, Reading] | None = None
        """The number of the last push that reads, and its reading; None: there is none, or it was pulled."""
        self._received = Counter[PeerId]()
        self._news = asyncio.Event()
        """Set when an exchange is over."""

    async def enlist(self, clock: int, *, resumed: bool = False) -> Enlistment:
        """Tell the servers that this worker takes part from `clock` on; FOREVER: that it takes no more steps. Where the
        other workers are further, the servers give it a later clock, so that no other has to wait for it; if the run is
        `resumed`, only where the consistency bounds how far the others may be ahead. Raises as `at_most`."""
        self._reading = None
        first = await self._enlisted(clock, resumed)
        if first.clock == clock:
            return first
        again = await self._enlisted(first.clock, resumed)
        return first._replace(clock=again.clock)

    def received(self) -> Mapping[PeerId, int]:
        """By server, the bytes of values that were pulled from it since the last call."""
        found = dict(self._received)
        self._received.clear()
        return found

    async def pull(self, clock: int, wanted: Mapping[str, Tensor] = NO_ROWS, *, exact: bool = False) -> Values:
        """Wait for the values that a read at `clock` may see under the run's consistency, and return them. A read at
        FOREVER, which a worker makes when it has ended, sees the last pushes of all workers. `wanted`: by table, the
        numbers [k] of the rows to pull, ascending and none twice. Raises ValueError where these are no rows of the
        tables, and the errors of `at_most`, because a read may wait for a push of this worker. If the push with the
        number `clock` reads, and no rows are wanted, these are its values, and nothing is sent, unless `exact` asks for
        others. `exact`: the run's filters of pulls do not act on these values."""
        if self._reading is not None and self._reading[0] == clock and not wanted and not (exact and self._keys.pulls):
            reading = self._reading[1]
            await self._until(lambda: (0, clock) not in self._pushing)
            self._reading = None
            return self._read(reading)
        keys, shares = self._keys, Shares(self._keys, wanted)
        held = None if exact or keys.pulls is None else self._held
        reading = Reading(keys, shares, self._received, self._exchanges.parcels, held)

        def ask(epoch: int, server: PeerId, ranges: tuple[int, ...]) -> Question:
            payload = packed([shares.ids[number] for number in ranges if number in keys.blocks], [])
            rows, before = shares.counts(ranges), self._before(ranges)
            take = partial(self._take_values, reading, epoch, ranges, before)
            told = ((), 0) if held is None else (held.told(ranges), held.term)
            return Question(lambda ask: Pull(ask, epoch, clock, ranges, rows, *told), payload, (Pulled, NotTaken), take)

        await self._made(self._exchanges.begin(ask, shares, self._news.set, tail=True))
        return self._read(reading, filtered=held is not None)

    def _read(self, reading: Reading, *, filtered: bool = True) -> Values:
        """The result of `reading`. The next filtered pull begins from it, if it is `filtered` too."""
        values = reading.values()
        if filtered and self._keys.pulls is not None:
            self._held = Held(values.vector, values.updates, values.term)
            for number, part in enumerate(self._keys.parts) if witnessed() else ():
                me = self._channel.endpoint.id
                witness(Holds(number, me, values.updates[number], values.vector[part.start : part.stop]))
        return values

    async def _made(self, exchange: Exchange) -> None:
        """Wait until `exchange` is done. Raises its errors, and those of pushes."""
        try:
            await self._until(exchange.done)
            exchange.result()
        finally:
            exchange.cancel()

    def _take_values(
        self, reading: Reading, epoch: int, ranges: Sequence[int], before: Before, answer: Envelope
    ) -> None:
        """Take the values in an answer, asked for in the view `epoch` when the worker knew of those `before`."""
        taken(answer.message)
        told, seen = before
        pulled = reading.take(answer, ranges, epoch)
        check(ranges, told, pulled.clocks)
        check(ranges, seen, pulled.updates, "update")
        for number, update in zip(ranges, pulled.updates, strict=True):
            self._seen[number] = max(update, self._seen[number])

    def _before(self, ranges: Sequence[int]) -> Before:
        """By range, the acknowledged pushes and the updates that this worker knows: values that it asks for from now on
        have them."""
        return self._told(ranges), tuple([self._seen[number] for number in ranges])

    def push(
        self,
        seq: int,
        pushed: Pushes,
        read: Sequence[int],
        *,
        last: bool = False,
        of: int = 0,
        reads: bool = False,
        rest: bool = False,
        sparse: bool = False,
    ) -> None:
        """Begin to push `pushed` under the number `seq`; `at_most` waits for its end. `read`: the number of updates of
        each range in the values that the change was computed from. `last`: this worker takes no more steps. `of`,
        `reads`, `rest`: see `messages.Push`; a push may read only where the consistency shows a worker all its own
        pushes. `sparse`: elements of the vector that are 0 need not be sent. The tensors must not change any more.
        Raises ValueError where they are not of the shapes and the dtype of the model and its tables. A push that is
        under way is not begun again."""
        if (of, seq) in self._pushing:
            return
        shares, reading, term = (Sparse if sparse else Shares).of(self._keys, pushed), None, 0
        if reads:
            held = None if self._keys.pulls is None else self._held
            assert held is None or held.updates == tuple(read), "the answer is filtered by what this push has read"
            reading = Reading(self._keys, self._no_rows, self._received, self._exchanges.parcels, held)
            self._reading, term = (seq, reading), 0 if held is None else held.term

        answers, parcels = (Pulled if reads else Pushed, Early, NotTaken), self._exchanges.parcels

        def ask(epoch: int, server: PeerId, ranges: tuple[int, ...]) -> Question:
            rows, known = shares.counts(ranges), tuple([read[number] for number in ranges])
            take = partial(self._take_push, seq, reading, epoch, ranges, self._before(ranges))
            payload = shares.payload(ranges, pushed)
            parcel = parcels.put(server, [payload])
            return Question(
                lambda ask: Push(ask, epoch, seq, ranges, rows, known, last, of, reads, parcel, term, rest),
                b"" if parcel else payload, answers, take,
            )  # fmt: skip

        self._pushing[of, seq] = self._exchanges.begin(ask, shares, self._news.set, tail=False)

    def _take_push(
        self, seq: int, reading: Reading | None, epoch: int, ranges: Sequence[int], before: Before, answer: Envelope
    ) -> None:
        """Take the answer to the push with the number `seq`, which was sent in the view `epoch`."""
        pushed = taken(answer.message)
        if reading is not None and isinstance(pushed, Pulled):
            self._take_values(reading, epoch, ranges, before, answer)
        else:
            answer.done()
            check(ranges, before[0], pushed.clocks)
        if isinstance(pushed, Early):
            raise PeerLost(answer.sender, "an earlier push has not come")
        for number in ranges:
            self._acknowledged[number] = max(seq, self._acknowledged[number])

    async def at_most(self, pushes: int) -> None:
        """Wait until at most `pushes` pushes are under way. Raises LostRange, ValueError when a server refuses a push
        for good, and the errors of the membership."""
        await self._until(lambda: len(self._pushing) <= pushes)

    def give_up(self, seq: int) -> None:
        """Cancel this worker's own pushes under way with numbers up to `seq`: other workers have pushed the same
        changes, so these are not needed. Raises the error of a push that has failed already, as `at_most` does."""
        self._look()
        for push in [one for one in self._pushing if one[1] <= seq]:
            self._pushing.pop(push).cancel()

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
        for push in [push for push, exchange in self._pushing.items() if exchange.done()]:
            self._pushing.pop(push).result()

    @property
    def bytes_shared(self) -> int:
        """Bytes of pushes that this worker has written to memory that it shares with servers, and of values read
        there."""
        return self._exchanges.parcels.bytes_shared

    def close(self) -> None:
        """Cancel the pushes under way. Servers are told nothing."""
        for exchange in self._pushing.values():
            exchange.cancel()
        self._exchanges.parcels.close()

    async def _enlisted(self, clock: int, resumed: bool) -> Enlistment:
        clocks, before_it = [clock], [0]

        def ask(epoch: int, server: PeerId, ranges: tuple[int, ...]) -> Question:
            answers, taking = (Enlisted, NotTaken), partial(take, ranges, self._told(ranges))
            return Question(lambda ask: Enlist(ask, epoch, clock, ranges, resumed), b"", answers, taking)

        def take(ranges: Sequence[int], before: Sequence[int], answer: Envelope) -> None:
            enlisted = taken(answer.message)
            check(ranges, before, enlisted.before)
            clocks.extend(enlisted.clocks)
            before_it.extend(enlisted.before)

        await self._made(self._exchanges.begin(ask, self._no_rows, self._news.set, tail=False))
        return Enlistment(max(clocks), max(before_it))

    def _told(self, ranges: Sequence[int]) -> tuple[int, ...]:
        """By range, the number of the last push that is acknowledged: a server that is asked from now on has it."""
        return tuple([self._acknowledged[number] for number in ranges])
