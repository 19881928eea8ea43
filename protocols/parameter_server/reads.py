"""Reads: a server answers a pull as soon as its copies contain all pushes that the run's consistency wants a read to
see. A push that reads is answered in the same way, once all copies have it (`intake`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from ...aggregation.consistency import Consistency, lacking
from ..channel import Channel, Envelope
from ..link.link import PeerLost
from ..stalls.stalls import Stalls
from ..testpoints import witness, witnessed
from ..transfer.elements import raw
from ..transport import PeerId
from ..wire.frames import PAYLOAD_BYTES_MAX, Buffer, in_words
from .events import Read, Showed
from .held import TOO_MANY, crowded
from .messages import COORDINATOR, FOREVER, NotTaken, Pull, Pulled, Push
from .patches import patch
from .pieces import ids_of
from .store import Copy, Store
from .tenure import Tenure
from .wholes import tensors_of

_SENDING_MAX = 8
"""The most answers that are kept for one worker until it takes them: an honest one waits for each before it asks on."""


@dataclass(slots=True, eq=False)
class _Parked:
    """A read at `clock` that waits for pushes to the ranges in `missing`. `seen` is called when there are none. `late`:
    the worker for whose push it has waited last."""

    envelope: Envelope
    clock: int
    missing: set[int]
    seen: Callable[[PeerId], None]
    late: PeerId = ""

    @property
    def is_pull(self) -> bool:
        return isinstance(self.envelope.message, Pull)


@dataclass(frozen=True, slots=True)
class Answer:
    """The values of an answer, first those of the ranges of the vector and then those of rows, and by range the numbers
    of `updates` and the reader's `clocks` there. Of a filtered read `values` is a patch's payload, and `forms` and
    `sizes` are the patch's (`patches`). The tensors do not change any more."""

    values: Sequence[Tensor]
    updates: tuple[int, ...]
    clocks: tuple[int, ...]
    forms: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()


class Reads:
    """Answers the pulls that one server gets. Workers ask the tail of a range."""

    def __init__(
        self, channel: Channel, store: Store, tenure: Tenure, consistency: Consistency, stalls: Stalls
    ) -> None:
        self._channel, self._store, self._tenure = channel, store, tenure
        self._consistency, self._stalls = consistency, stalls
        self._parked: list[_Parked] = []
        self._sending: dict[asyncio.Future[None], PeerId] = {}
        """The answers that are on their way, and to whom."""
        self._watch: asyncio.Task[None] | None = None
        self._came_s: dict[PeerId, float] = {}
        """When the last entry with a clock of each worker came while reads waited, on the loop's clock."""
        tenure.handler(Pull, self._on_pull, tenure.from_worker)

    def begin(self) -> None:
        """Forget all reads that wait, because a new view begins, and refuse those that are pulls; their workers ask
        again. Pushes that wait here for their read are dropped without an answer: `Intake.begin` refuses them."""
        parked, self._parked = self._parked, []
        for one in parked:
            if one.is_pull:
                self._tenure.refuse(one.envelope)
        self._look_no_more()

    def look(self, ranges: Sequence[int], workers: Collection[PeerId]) -> None:
        """Answer the waiting reads for which the new entries in the copies of these ranges are enough. `workers`: the
        workers, or partitions, whose clocks the entries set. A report of a stall counts a worker's silence from its
        last one of these."""
        if not self._parked:
            return
        self._came_s |= dict.fromkeys(map(self._tenure.mapper, workers), asyncio.get_running_loop().time())
        changed = {*ranges}
        for one in list(self._parked):
            again = one.missing & changed
            missing, late = self._missing(one.envelope.sender, one.clock, sorted(again))
            one.missing -= again.difference(missing)
            one.late = late or one.late
            if not one.missing:  # in a range that was enough before, a worker may have begun to take part since
                one.missing |= {*self._missing(one.envelope.sender, one.clock, one.envelope.message.ranges)[0]}
            if not one.missing:
                self._parked.remove(one)
                one.seen(one.late)
        if not self._parked:
            self._look_no_more()

    def awaited(self) -> set[PeerId]:
        """The workers for whose pushes reads wait now."""
        return {
            worker
            for one in self._parked
            for number in one.missing
            for late in self._lacks(one.envelope.sender, one.clock, self._store.copies[number])
            if (worker := self._tenure.mapper(late))
        }

    async def _look_out(self) -> None:
        """While reads wait, report workers that keep them waiting for too long, until this is cancelled."""
        with self._stalls.waiting(self.awaited, came_s=self._came_s):
            await asyncio.get_running_loop().create_future()

    def _look_on(self) -> None:
        if self._watch is None:
            self._watch = asyncio.create_task(self._look_out(), name="stalls")

    def _look_no_more(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
            self._came_s.clear()

    def close(self) -> None:
        """Watch no more reads, and cancel the answers that are on their way."""
        self._look_no_more()
        for answer in list(self._sending):
            answer.cancel()

    def _on_pull(self, envelope: Envelope) -> None:
        pull: Pull = envelope.message
        try:
            ids = self._ids(pull, envelope.payload)
            if pull.held and (len(pull.held) != len(pull.ranges) or self._store.keys.pulls is None):
                raise ValueError("it tells what it holds of other ranges, or pulls are not filtered in this run")
        except ValueError as wrong:
            said = NotTaken(pull.ask, in_words(f"the pull was not taken: {wrong}"), lost=False)
            self._channel.post(envelope.sender, said)
            return
        finally:
            envelope.done()
            envelope.payload = b""  # it may wait for long
        if crowded([other.envelope for other in self._parked if other.is_pull], envelope.sender):
            self._channel.refuse(envelope, TOO_MANY)
            return

        def seen(late: PeerId) -> None:
            self.give(envelope, self.read(envelope.sender, pull, pull.clock, ids, pull.held), late)

        self.when_seen(envelope, pull.clock, seen)

    def when_seen(self, envelope: Envelope, clock: int, seen: Callable[[PeerId], None]) -> None:
        """Call `seen` as soon as the copies contain all that a read at `clock` by the sender of the question `envelope`
        has to see, within this call if they do now. Its argument is the worker for whose push that has waited last; "":
        it did not wait. If a new view begins before, `seen` is never called."""
        missing, late = self._missing(envelope.sender, clock, envelope.message.ranges)
        if not missing:
            seen("")
            return
        self._parked.append(_Parked(envelope, clock, {*missing}, seen, late))
        self._look_on()

    def _missing(self, reader: PeerId, clock: int, ranges: Sequence[int]) -> tuple[list[int], PeerId]:
        """Those of `ranges` whose copies lack pushes for a read at `clock` by the worker `reader`, and a worker whose
        push they lack; "": it is not in the view, or nothing is missing."""
        copies, before, lacks = self._store.copies, None, list[PeerId]()
        missing, late = list[int](), ""
        for number in ranges:
            copy = copies[number]
            if before is None or not copy.is_like(before):
                before, lacks = copy, self._lacks(reader, clock, copy)
            if lacks:
                missing.append(number)
                late = self._tenure.mapper(lacks[-1]) or late
        return missing, late

    def _lacks(self, reader: PeerId, clock: int, copy: Copy) -> list[PeerId]:
        """The workers, or partitions, whose pushes this copy lacks for the read. Before its first update a range waits
        until all workers of the view have taken part in it. One that has left and come back may be the asking worker:
        it takes part anew only after this read, and no read waits for that."""
        due = () if copy.updates or self._store.partitions else self._tenure.workers
        if absent := [worker for worker in due if worker not in copy.clocks]:
            return absent
        if clock >= FOREVER:  # a worker's last read: no other takes more steps
            return [worker for worker in copy.counted() if worker != reader]
        workers = () if self._consistency.slack is None else copy.counted()
        required = self._consistency.required(reader, clock, workers)
        if self._store.partitions:
            required.pop(reader, None)  # it has pushed for partitions, and has no clock of its own
        if COORDINATOR in required:
            required[COORDINATOR] += 1  # the values are those of a step only after the order that ends it
        return lacking(copy.clocks, required)

    def _ids(self, pull: Pull, payload: Buffer) -> dict[int, Tensor]:
        """By block, the rows that a pull asks for. Raises ValueError where these are none, or where no message can
        carry the answer."""
        keys = self._store.keys
        ids = ids_of(keys, pull.ranges, pull.rows, payload)
        sizes = (ids[one].shape[0] * keys.shape(one)[1] if one in ids else keys.size(one) for one in pull.ranges)
        if (nbytes := sum(sizes) * keys.dtype.itemsize) > PAYLOAD_BYTES_MAX:
            raise ValueError(f"it asks for {nbytes} bytes, a message carries {PAYLOAD_BYTES_MAX}")
        return ids

    def read(
        self, reader: PeerId, asked: Pull | Push, clock: int, ids: Mapping[int, Tensor], held: Sequence[int] = ()
    ) -> Answer:
        """The answer, from this server's present copies of the ranges that are `asked` for, to a read at `clock` by the
        worker `reader`. `ids`: for each block among the ranges, the rows [k] to read; `held`: see `Pull`. Does not
        check whether the consistency allows it."""
        copies, clock_of, ranges = self._store.copies, self._store.clock, asked.ranges
        for number in ranges if witnessed() else ():
            witness(Read(number, reader, clock, copies[number].counted()))
        updates = tuple([copies[number].updates for number in ranges])
        clocks = tuple([clock_of(number, reader) for number in ranges])
        if held:
            for number in ranges if witnessed() else ():
                copy = copies[number]
                witness(Showed(number, reader, copy.updates, copy.shown, copy.values))
            forms, sizes, payload = patch(self._store.keys, copies, ranges, held, asked.term, ids)
            return Answer([payload], updates, clocks, forms, sizes)
        values = tensors_of(tuple([number for number in ranges if number not in ids]) if ids else (*ranges,), copies)
        values += [copies[number].values[ids[number]] for number in ranges if number in ids]
        return Answer(values, updates, clocks)

    def give(self, question: Envelope, answer: Answer, late: PeerId) -> bool:
        """Send `answer` to the worker that asked `question`, without waiting. `late`: the worker for whose push the
        answer has waited last, "": for none. Returns False, and refuses the question, where its sender has not taken 8
        earlier answers yet; True also where the sender is lost."""
        reader = question.sender
        if self._sending and sum(to == reader for to in self._sending.values()) >= _SENDING_MAX:
            self._channel.refuse(question, f"it has not taken {_SENDING_MAX} earlier answers yet")
            return False
        self._store.traffic.pull(question.message, answer.sizes)
        parcels = self._tenure.parcels
        near = parcels.is_near(reader)
        parcel = parcels.put(reader, [raw([one]) for one in answer.values], answer.values) if near else 0
        pulled = Pulled(question.message.ask, answer.updates, answer.clocks, answer.forms, late, parcel)
        try:
            waiting = self._channel.offer(reader, pulled, b"" if parcel else raw(answer.values))
        except PeerLost:
            return True
        if waiting is not None:
            self._sending[waiting] = reader
            waiting.add_done_callback(self._sent)
        return True

    def _sent(self, answer: asyncio.Future[None]) -> None:
        del self._sending[answer]
        if not answer.cancelled():
            answer.exception()  # the reader may be lost
