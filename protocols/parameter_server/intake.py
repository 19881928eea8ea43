"""Intake: the head of a range takes the pushes of workers, each once, and gathers them into updates.

A worker's pushes are numbered; its clock is the number of the last one. A push whose number is not above the worker's
clock at the range is not applied again. It is acknowledged when all copies have the update that it was part of, or the
update that was made without it. So a worker may repeat a push whenever it does not know whether it has arrived.

A push that reads is acknowledged by its answer with values. The head answers once the consistency allows it, with the
values that it has then, and only after all copies have these values: so what is read is never lost either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial

import torch

from ...aggregation.rows import INDEX
from ...aggregation.vector import all_finite
from ..channel import Channel, Envelope
from ..testpoints import sometimes, witness
from ..transport import PeerId
from ..wire.frames import PeerMisbehaved, in_words
from .algorithms.algorithm import Rule
from .chain import Chains
from .events import Acknowledged
from .gathering import Gathering
from .held import TOO_MANY, crowded
from .keys import Piece
from .messages import FOREVER, Early, Enlist, Enlisted, NotTaken, Push, Pushed
from .pieces import unpacked
from .reads import Answer, Reads
from .sparse import dense
from .store import Copy, Entry, Store
from .tenure import Tenure

NO_ROWS = torch.empty(0, dtype=INDEX)


class Intake:
    """The pushes to the ranges of which one server is the head. `algorithm` decides when they make an update."""

    def __init__(
        self, channel: Channel, store: Store, tenure: Tenure, chains: Chains, reads: Reads, algorithm: Rule
    ) -> None:
        self._channel, self._store, self._tenure = channel, store, tenure
        self._chains, self._reads, self._algorithm = chains, reads, algorithm
        self._gathered: defaultdict[int, Gathering] = defaultdict(Gathering)
        self._asked: list[Envelope] = []
        """Questions that are not answered yet; of a worker as many as may wait (`held`)."""
        self.on_update: Callable[[], None] = lambda: None
        """Called after each update that gathered pushes have made."""
        tenure.handler(Enlist, self._on_enlist, tenure.from_worker_to_head)
        tenure.handler(Push, self._on_push, tenure.from_worker_to_head)

    def begin(self) -> None:
        """A new view begins: refuse the questions that are not answered yet, and forget the gathered pushes. Workers
        send both again."""
        self._gathered.clear()
        asked, self._asked = self._asked, []
        for envelope in asked:
            self._tenure.refuse(envelope)

    # Taking part

    def _on_enlist(self, envelope: Envelope) -> None:
        enlist: Enlist = envelope.message
        worker, entries = envelope.sender, list[Entry]()
        if self._store.partitions:
            raise PeerMisbehaved("would take part where partitions do, and not workers")
        if crowded(self._asked, worker):
            self._channel.refuse(envelope, TOO_MANY)
            return
        before = tuple(self._clock(number, envelope.sender) for number in enlist.ranges)
        for number in enlist.ranges:
            copy = self._store.copies[number]
            clock = self._first_clock(copy, worker, enlist.clock)
            entries.append(Entry(number, None, {worker: clock}, joins=True))
        self._asked.append(envelope)
        self._chains.enter(entries)

        def answer() -> None:
            clocks = tuple(self._clock(number, worker) for number in enlist.ranges)
            self._channel.post(worker, Enlisted(enlist.ask, clocks, before))

        told = _after(len(entries), partial(self._close, envelope, answer))
        for entry in entries:
            self._chains.after(entry.range, told)
        self._update(enlist.ranges)

    def _first_clock(self, copy: Copy, worker: PeerId, asked: int) -> int:
        """The clock from which `worker` takes part. It is not below that of the slowest other worker, because that one
        would have to wait for it, and not below that of the worker's last push. Where no other takes part now, it is
        not below any worker's, because those that come back would be ahead of it by more than the bound. A worker that
        asks again, for the clock that another range has given it, gets that clock."""
        known = copy.clocks.get(worker, 0)
        others = [clock for one, clock in copy.counted().items() if one != worker]
        last = max((clock for clock in copy.clocks.values() if clock < FOREVER), default=0)
        least = min(others, default=last) if copy.updates and worker not in copy.enlisted else 0
        return max(asked, known if known < FOREVER else 0, least)

    def _clock(self, number: int, worker: PeerId) -> int:
        return self._store.copies[number].clocks.get(worker, 0)

    # Pushes

    def _on_push(self, envelope: Envelope) -> None:
        push, worker = envelope.message, envelope.sender
        pusher = self._store.partitions[push.of - 1] if 0 < push.of <= len(self._store.partitions) else worker
        if crowded(self._asked, worker):
            envelope.done()
            self._channel.refuse(envelope, TOO_MANY)
            return
        try:
            pieces = self._pieces(envelope)
        except ValueError as wrong:
            said = NotTaken(push.ask, in_words(f"the push was not taken: {wrong}"), lost=False)
            self._channel.post(worker, said)
            return
        finally:
            envelope.done()
            envelope.payload = b""  # it waits for its answer, and its values are in the sum
        self._asked.append(envelope)

        if any(map(partial(self._skips, pusher, push.seq), push.ranges)):
            sometimes("a push came before an earlier one")
            self._asked.remove(envelope)
            self._channel.post(worker, Early(push.ask, tuple(self._clock(number, pusher) for number in push.ranges)))
            return
        told = _after(len(push.ranges), partial(self._acknowledge, envelope, pusher))
        for number, piece, read in zip(push.ranges, pieces, push.read, strict=True):
            copy, gathering = self._store.copies[number], self._gathered[number]
            if push.seq <= copy.clocks.get(pusher, 0):
                sometimes("a push came again")
                self._chains.after(number, told)
            elif push.seq <= gathering.seqs.get(pusher, 0):
                gathering.told.append(told)
            else:
                staleness, workers = max(0, copy.updates - read), max(1, len(copy.counted()))
                weight = self._weight(number, staleness, workers)
                gathering.add(pusher, push.seq, piece, weight, last=push.last)
                gathering.told.append(told)
                self._store.traffic.staleness[staleness] += 1
        self._update(push.ranges)

    def _acknowledge(self, envelope: Envelope, pusher: str) -> None:
        """All copies have the push: answer it."""
        push: Push = envelope.message

        def answer(read: Answer | None = None, late: PeerId = "") -> None:
            if read is None:
                clocks = tuple(min(self._clock(number, pusher), FOREVER) for number in push.ranges)
                self._channel.post(envelope.sender, Pushed(push.ask, clocks))
            elif not self._reads.give(envelope, read, late):
                return
            for number in push.ranges:
                witness(Acknowledged(number, pusher, push.seq))

        def seen(late: PeerId) -> None:
            none = dict.fromkeys(self._store.keys.blocks.keys() & {*push.ranges}, NO_ROWS)
            read = self._reads.read(envelope.sender, push.ranges, push.seq, none)
            told = _after(len(push.ranges), partial(self._close, envelope, partial(answer, read, late)))
            for number in push.ranges:
                self._chains.after(number, told)

        if not push.reads:
            self._close(envelope, answer)
        elif envelope in self._asked:
            self._reads.when_seen(envelope, push.seq, seen)

    def _close(self, envelope: Envelope, answer: Callable[[], None]) -> None:
        """Answer the question, unless a new view has refused it."""
        if envelope in self._asked:
            self._asked.remove(envelope)
            answer()

    def _skips(self, worker: PeerId, seq: int, number: int) -> bool:
        """Whether an earlier push of `worker` to this range is still on its way. A repeated push can arrive after a
        later one, and a push that is not above the worker's clock would not be applied. All partitions push to one
        step, so a later step's push of one would stand in the way of the others'. A step has one push of a worker, so
        that each counts once in its mean."""
        if self._store.partitions:
            return seq > self._store.copies[number].updates + 1
        gathered = self._gathered[number].seqs.get(worker, 0)
        if self._algorithm.by_steps:
            return 0 < gathered < seq
        return seq > max(gathered, self._clock(number, worker)) + 1

    def _weight(self, number: int, staleness: int, workers: int) -> float:
        """The weight of a push. In a range of averaged buffers, if updates are not made by steps of all workers, it is
        1 / `workers`: each change is then one share of a mean."""
        if not self._algorithm.by_steps and self._store.keys.is_buffer(number):
            return 1.0 / workers
        return self._algorithm.weight(staleness, workers)

    def _pieces(self, envelope: Envelope) -> list[Piece]:
        """The pieces of a push. Raises ValueError where they cannot be taken."""
        push: Push = envelope.message
        partitions = len(self._store.partitions)
        if not min(1, partitions) <= push.of <= partitions:
            raise ValueError(f"it counts for partition {push.of - 1}, of {partitions}")
        if partitions and (push.last or push.reads):
            raise ValueError("it is the last one or reads, and a partition has one in each step, which does not")
        if len(push.read) != len(push.ranges):
            raise ValueError(f"it tells what it had read of {len(push.read)} ranges, of {len(push.ranges)}")
        rows, payload = dense(self._store.keys, push.ranges, push.rows, envelope.payload)
        pieces, values = unpacked(self._store.keys, push.ranges, rows, payload)
        if not all_finite(values):
            raise ValueError("it has numbers that are not finite")
        self._store.traffic.push(envelope.sender, push, len(envelope.payload))
        return pieces

    def has(self, number: int, pusher: str, seq: int) -> bool:
        """Whether the push with number `seq` has come to a range."""
        return seq <= max(self._clock(number, pusher), self._gathered[number].seqs.get(pusher, 0))

    def _update(self, ranges: tuple[int, ...]) -> None:
        """Make the updates of these ranges for which enough pushes are gathered."""
        entries, told = [], dict[int, list[Callable[[], None]]]()
        for number in ranges:
            copy, gathering = self._store.copies[number], self._gathered[number]
            if gathering.due(self._algorithm, copy):
                entries.append(gathering.entry(number, self._algorithm, copy))
                told[number] = gathering.told
                del self._gathered[number]
        if entries:
            self._chains.enter(entries)
            self.on_update()
            for number, waiting in told.items():
                for one in waiting:
                    self._chains.after(number, one)


def _after(times: int, then: Callable[[], None]) -> Callable[[], None]:
    """A function that calls `then` when it has been called so many times."""
    left = times

    def told() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            then()

    return told
