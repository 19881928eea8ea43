"""Intake: the head of a range takes the pushes of workers, each once, and gathers them into updates.

A worker's pushes are numbered; its clock is the number of the last one. A push whose number is not above the worker's
clock at the range is not applied again. It is acknowledged when all copies have the update that it was part of, or the
update that was made without it. So a worker may repeat a push whenever it does not know whether it has arrived.

A push that reads is acknowledged by its answer with values. The head answers once the consistency allows it, with the
values that it has then, and only after all copies have these values: so what is read is never lost either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from ...aggregation.consistency import Consistency
from ...aggregation.rows import INDEX
from ..channel import Channel, Envelope
from ..testpoints import sometimes, witness, witnessed
from ..transport import PeerId
from ..wire.frames import PeerMisbehaved, in_words
from .algorithms.algorithm import Rule, weight_among
from .chain import Chains
from .enlisting import first_clock
from .events import Acknowledged
from .gathering import Gathering, after
from .held import TOO_MANY, crowded
from .messages import FOREVER, Early, Enlist, Enlisted, NotTaken, Push, Pushed
from .pieces import Pieces
from .reads import Answer, Reads
from .sparse import dense
from .store import Copy, Entry, Store
from .tenure import Tenure

NO_ROWS = torch.empty(0, dtype=INDEX)


class Intake:
    """Takes the pushes to the ranges of which one server is the head, and enters an update into the range's copies when
    `algorithm` says that it is due. Answers each push when all copies have it."""

    def __init__(
        self,
        channel: Channel,
        store: Store,
        tenure: Tenure,
        chains: Chains,
        reads: Reads,
        algorithm: Rule,
        consistency: Consistency,
    ) -> None:
        self._channel, self._store, self._tenure, self._consistency = channel, store, tenure, consistency
        self._chains, self._reads, self._algorithm = chains, reads, algorithm
        self._gathered: dict[int, Gathering] = {}
        """By range, what is gathered; several may have the same."""
        self._asked: list[Envelope] = []
        """Questions that are not answered yet; of a worker as many as may wait (`held`)."""
        tenure.handler(Enlist, self._on_enlist, tenure.from_worker_to_head)
        tenure.handler(Push, self._on_push, tenure.from_worker_to_head)

    def begin(self) -> None:
        """Refuse the questions that are not answered yet, and forget the gathered pushes, because a new view begins.
        Workers send both again."""
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
            resumed = self._consistency if enlist.resumed else None
            clock = first_clock(copy, worker, enlist.clock, self._store.reached, resumed)
            entries.append(Entry((number,), None, {worker: clock}, joins=True))
        self._asked.append(envelope)
        self._chains.enter(entries)

        def answer() -> None:
            clocks = tuple(self._clock(number, worker) for number in enlist.ranges)
            self._channel.post(worker, Enlisted(enlist.ask, clocks, before))

        self._chains.after(enlist.ranges, partial(self._close, envelope, answer))
        self._update([*self._alike_ones(enlist.ranges)])

    def _clock(self, number: int, worker: PeerId) -> int:
        return self._store.copies[number].clocks.get(worker, 0)

    # Pushes

    def _on_push(self, envelope: Envelope) -> None:
        push, worker = envelope.message, envelope.sender
        pusher = self._store.partitions[push.of - 1] if 0 < push.of <= len(self._store.partitions) else worker
        many = crowded(self._asked, worker)  # of what is refused, nothing is copied
        if many or not self._tenure.parcels.unpack(envelope, push.parcel):
            envelope.done()
            self._channel.refuse(envelope, TOO_MANY if many else "it has written over its push")
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

        ranges, groups = push.ranges, self._alike(push.ranges, push.read)
        if True in [self._skips(pusher, push.seq, ranges[places[0]]) for places in groups]:
            sometimes("a push came before an earlier one")
            self._asked.remove(envelope)
            self._channel.post(worker, Early(push.ask, tuple(self._clock(number, pusher) for number in ranges)))
            return
        acknowledge, touched = partial(self._acknowledge, envelope, pusher), list[Gathering]()
        told = acknowledge if len(groups) == 1 else after(len(groups), acknowledge)
        each = [ranges] if len(groups) == 1 else [tuple([ranges[place] for place in places]) for places in groups]
        self._part(each)
        for of, places in zip(each, groups, strict=True):
            copy = self._store.copies[of[0]]
            if push.seq <= copy.clocks.get(pusher, 0):
                sometimes("a push came again")
                self._chains.after(of, partial(told, ""))
            elif push.seq <= (gathering := self._gathering(of)).seqs.get(pusher, 0):
                gathering.told.append(told)
            else:
                staleness = max(0, copy.updates - push.read[places[0]])
                weight = self._weight(of[0], staleness, copy, rest=push.rest)
                gathering.add(pusher, push.seq, pieces.of(places), weight, last=push.last)
                gathering.told.append(told)
                touched.append(gathering)
                self._store.traffic.staleness[staleness] += len(of)
        self._update(touched)

    def _alike(self, ranges: Sequence[int], read: Sequence[int]) -> list[list[int]]:
        """The places of the ranges in groups, of which each takes a push as one: the copies of its ranges are alike,
        and so are their chains, what is gathered for them, and what the worker had `read` of them. The blocks of a
        group ascend."""
        if len(ranges) == 1:
            return [[0]]
        groups, last = list[list[int]](), dict[object, list[int]]()
        copies, gathered, chain = self._store.copies, self._gathered.get, self._tenure.placement.chain
        kind = self._store.keys.kind
        for place, number in enumerate(ranges):
            group = last.get(behind := chain(number))
            if group is not None:
                before = group[-1]
                other = ranges[before]
                if (
                    other < number
                    and kind(number) == kind(other)
                    and read[place] == read[before]
                    and gathered(number) is gathered(other)
                    and copies[number].is_like(copies[other])
                ):
                    group.append(place)
                    continue
            groups.append([place])
            last[behind] = groups[-1]
        return groups

    def _gathering(self, ranges: tuple[int, ...]) -> Gathering:
        """The gathering for these ranges, and for no others (`_part`)."""
        if (gathering := self._gathered.get(ranges[0])) is None:
            gathering = Gathering(ranges)
            self._gathered |= dict.fromkeys(ranges, gathering)
        return gathering

    def _part(self, groups: Sequence[tuple[int, ...]]) -> None:
        """Have pushes gathered apart, from now on, for each of these groups of ranges, whose copies are alike. Each
        gathering is parted once: group after group would take time by the square of their number."""
        of = dict[Gathering, list[tuple[int, ...]]]()
        for group in groups:
            if (gathering := self._gathered.get(group[0])) is not None and gathering.ranges != group:
                of.setdefault(gathering, []).append(group)
        for gathering, own in of.items():
            named = {number for group in own for number in group}
            rest = tuple([number for number in gathering.ranges if number not in named])
            for part in gathering.parted([*own, rest] if rest else own, self._store.keys):
                self._gathered |= dict.fromkeys(part.ranges, part)

    def _acknowledge(self, envelope: Envelope, pusher: str, latest: str) -> None:
        """All copies have the push: answer it. `latest`: whose push came last to its sum; "": not known."""
        push, awaited = envelope.message, "" if latest == pusher else latest
        if not push.reads:
            self._close(envelope, partial(self._answer, envelope, pusher))
        elif envelope in self._asked:
            self._reads.when_seen(envelope, push.seq, partial(self._read, envelope, pusher, awaited))

    def _read(self, envelope: Envelope, pusher: str, awaited: PeerId, late: PeerId) -> None:
        """The copies have what the push wants to read: answer it once all copies have that. `awaited`: the worker for
        whose push the sum has waited; `late`: as for `Reads.when_seen`, after that."""
        push: Push = envelope.message
        blocks = self._store.keys.blocks
        none = dict.fromkeys(blocks.keys() & {*push.ranges}, NO_ROWS) if blocks else {}
        held = () if self._store.keys.pulls is None else tuple([1 + updates for updates in push.read])
        read = self._reads.read(envelope.sender, push, push.seq, none, held)
        answer = partial(self._answer, envelope, pusher, read, late or awaited)
        self._chains.after(push.ranges, partial(self._close, envelope, answer))

    def _answer(self, envelope: Envelope, pusher: str, read: Answer | None = None, late: PeerId = "") -> None:
        push: Push = envelope.message
        if read is None:
            clocks = tuple(min(self._clock(number, pusher), FOREVER) for number in push.ranges)
            self._channel.post(envelope.sender, Pushed(push.ask, clocks))
        elif not self._reads.give(envelope, read, late):
            return
        for number in push.ranges if witnessed() else ():
            witness(Acknowledged(number, pusher, push.seq, None if read is None else late))

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
        gathered = self._last_gathered(worker, number)
        if self._algorithm.by_steps:
            return 0 < gathered < seq
        return seq > max(gathered, self._clock(number, worker)) + 1

    def _weight(self, number: int, staleness: int, copy: Copy, *, rest: bool) -> float:
        """The weight of a push (`rest`: as in `Push`). In a range of averaged buffers, if updates are not made by steps
        of all workers, each push is one share of a mean."""
        left = max(1, len(copy.counted()))
        if not self._algorithm.by_steps and self._store.keys.is_buffer(number):
            return 1.0 / left
        return weight_among(self._algorithm, staleness, left, max(left, len(copy.enlisted)) if rest else left)

    def _pieces(self, envelope: Envelope) -> Pieces:
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
        pieces = Pieces(self._store.keys, push.ranges, rows, payload)
        self._store.check(push.ranges, pieces.values, pieces.each)
        self._store.traffic.push(envelope.sender, push, len(envelope.payload))
        return pieces

    def has(self, number: int, pusher: str, seq: int) -> bool:
        """Whether the push of `pusher` (a worker or a partition) with number `seq` has come to the range `number`."""
        return seq <= max(self._clock(number, pusher), self._last_gathered(pusher, number))

    def _last_gathered(self, pusher: str, number: int) -> int:
        """The number of the last push that is gathered for a range; 0: there is none."""
        gathering = self._gathered.get(number)
        return 0 if gathering is None else gathering.seqs.get(pusher, 0)

    def _update(self, gatherings: Sequence[Gathering]) -> None:
        """Make the updates for which enough pushes are gathered."""
        entries, due = [], list[Gathering]()
        for gathering in gatherings:
            counted = self._store.copies[gathering.ranges[0]].counted()
            if gathering.due(self._algorithm, counted):
                entries.append(gathering.entry(self._algorithm, counted, self._store.statistics(gathering.ranges)))
                due.append(gathering)
                for number in gathering.ranges:
                    del self._gathered[number]
        if entries:
            self._chains.enter(entries)
            for gathering in due:
                for told in gathering.told:
                    self._chains.after(gathering.ranges, partial(told, gathering.latest))

    def _alike_ones(self, ranges: Sequence[int]) -> Iterator[Gathering]:
        """The gatherings for these ranges, parted where the copies are alike no longer."""
        gatherings = {id(one): one for number in ranges if (one := self._gathered.get(number)) is not None}
        for gathering in gatherings.values():
            own = gathering.ranges
            groups = [tuple(own[place] for place in places) for places in self._alike(own, (0,) * len(own))]
            self._part(groups)
            yield from (self._gathering(group) for group in groups)
