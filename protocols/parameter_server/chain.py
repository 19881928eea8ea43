"""Chain replication: an entry, which is one change of a range's values or of its workers' clocks, goes from the head of
the range's chain of servers to its tail, and is acknowledged on the way back.

Source: van Renesse & Schneider, "Chain replication for supporting high throughput and availability", OSDI 2004. Each
server applies an entry before it sends it on, so each entry of a server is also held by all servers before it in the
chain. A push is acknowledged when the tail has it. Reads are answered by the tail, so values that are read are on all
copies.

Cost: the pushed bytes once for each copy but the first.
On failure: entries that the servers behind a dead one have not answered are not acknowledged; `takeover` makes the
chain whole again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from ...aggregation.rows import Rows
from ..channel import Channel, Envelope
from ..link.link import PeerLost
from ..testpoints import witness, witnessed
from ..transport import PeerId
from ..wire.frames import PAYLOAD_BYTES_MAX, Buffer, PeerMisbehaved
from ..wire.schema import ITEMS_MAX
from .keys import Keys
from .messages import Applied, Apply
from .pieces import Pieces, joined, of_pieces, parted
from .store import Entry, Store
from .tenure import Tenure

Told = Callable[[], None]


@dataclass(slots=True)
class _Waiter:
    """`told` is called when all servers behind this one have these versions, by range."""

    versions: dict[int, int]
    told: Told


class Chains:
    """One server's part in the chains of its ranges: sends each entry of its own copies to the next server of the
    chain, applies those of the server before it, and calls the waiting functions when all copies have an entry."""

    def __init__(self, channel: Channel, store: Store, tenure: Tenure) -> None:
        self._channel, self._store, self._tenure = channel, store, tenure
        self.on_entries: list[Callable[[Sequence[int], Collection[PeerId]], None]] = []
        """Functions called with the ranges whose copies on this server have new entries, and the workers, or
        partitions, whose clocks these tell."""
        self._everywhere: dict[int, int] = {}
        """By range, the version that all servers behind this one have."""
        self._waiting: defaultdict[int, list[_Waiter]] = defaultdict(list)
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: list[Envelope] = []
        """Entries that the servers behind this one have not answered yet."""
        self.on_broken: Callable[[Sequence[int]], None] = lambda ranges: None
        """Called with the ranges, of which this server is the head, whose entries have not reached the whole chain."""
        tenure.handler(Apply, self._on_apply, tenure.from_predecessor)

    def begin(self) -> None:
        """Give up the entries that are on their way, because a new view begins. Functions that were given to `after`
        are dropped and never called."""
        for task in self._tasks:
            task.cancel()
        self._everywhere.clear()
        self._waiting.clear()
        self._asked.clear()

    def settled(self, range: int) -> None:
        """Note that all servers of the chain of `range` hold the same copy as this one, and call the functions that
        wait for that."""
        self._all_have({range: self._store.copies[range].version})

    def after(self, ranges: Sequence[int], told: Told) -> None:
        """Call `told` once all servers behind this one in the chains have all entries that this server's copies of
        `ranges` have now; within this call if they have them. If a new view begins before, it is never called."""
        copies, everywhere, versions = self._store.copies, self._everywhere.get, dict[int, int]()
        for number in ranges:
            if everywhere(number, -1) < (version := copies[number].version):
                versions[number] = version
        if not versions:
            told()
            return
        waiter = _Waiter(versions, told)
        for number in versions:
            self._waiting[number].append(waiter)

    def enter(self, entries: Sequence[Entry]) -> None:
        """Apply these entries to this server's copies, and send them to the next server of each chain. All ranges of
        one entry must have the same next server."""
        behind: dict[tuple[object, ...], list[Entry]] = {}
        observed, changed = witnessed(), list[int]()
        at_tail = dict[int, int]()
        for entry in entries:
            self._store.enter(entry)
            changed += entry.ranges
            if observed:
                for event in self._store.entered(entry):
                    witness(event)
            if (successor := self._tenure.successor(entry.ranges[0])) is None:
                at_tail |= {number: self._store.copies[number].version for number in entry.ranges}
                continue
            key = (successor, tuple(entry.clocks), entry.pushed is None, entry.joins, entry.order)
            behind.setdefault(key, []).append(entry)
        self._all_have(at_tail)
        for those in behind.values():
            for some in self._batches(those, max(1, ITEMS_MAX // max(1, len(those[0].clocks)))):
                self._send(some)
        for on_entries in self.on_entries:
            on_entries(changed, {worker for entry in entries for worker in entry.clocks})

    def _batches(self, entries: Sequence[Entry], most: int) -> Iterator[list[Entry]]:
        """These entries in groups about at most `most` ranges, each of which fits in a message."""
        group, nbytes, many = list[Entry](), 0, 0
        keys = self._store.keys
        for whole in entries:
            each = 1 if _bytes_of(whole, keys) > PAYLOAD_BYTES_MAX else most
            for entry in _divided(whole, each, keys) if len(whole.ranges) > each else (whole,):
                own = _bytes_of(entry, keys)
                if group and (many + len(entry.ranges) > most or nbytes + own > PAYLOAD_BYTES_MAX):
                    yield group
                    group, nbytes, many = [], 0, 0
                group.append(entry)
                nbytes, many = nbytes + own, many + len(entry.ranges)
        yield group

    def _send(self, entries: Sequence[Entry]) -> None:
        """Send entries to the next server of their chain."""
        reached = {number: self._store.copies[number].version for entry in entries for number in entry.ranges}
        pieces = [(entry.ranges, entry.pushed) for entry in entries if entry.pushed is not None]
        rows, payload = of_pieces(self._store.keys, pieces) if pieces else ((0,) * len(reached), b"")
        clocks = tuple(clock for entry in entries for _ in entry.ranges for clock in entry.clocks.values())
        first, workers, epoch = entries[0], tuple(entries[0].clocks), self._tenure.epoch

        def question(ask: int) -> Apply:
            versions = tuple(reached.values())
            head = (ask, epoch, tuple(reached), rows, versions, workers, clocks)
            return Apply(*head, first.joins, bool(pieces), first.order)

        successor = self._tenure.successor(first.ranges[0])
        assert successor is not None
        task = asyncio.create_task(self._ask(successor, question, payload, reached), name="chain")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(
        self, successor: PeerId, question: Callable[[int], Apply], payload: Buffer, reached: dict[int, int]
    ) -> None:
        try:
            await self._channel.ask(successor, question, payload, answers=(Applied,))
        except PeerLost:
            self._break(tuple(reached))
        else:
            self._all_have(reached)

    def _break(self, ranges: Sequence[int]) -> None:
        """The servers behind this one have not received the last entries of these ranges: refuse what waits for
        them."""
        for envelope in [one for one in self._asked if not {*one.message.ranges}.isdisjoint(ranges)]:
            self._asked.remove(envelope)
            self._channel.refuse(envelope, "a server behind it does not answer")
        if heads := [number for number in ranges if self._tenure.head(number) == self._tenure.me]:
            self.on_broken(heads)

    def _all_have(self, reached: dict[int, int]) -> None:
        due, everywhere, waits = list[_Waiter](), self._everywhere, self._waiting.get
        for range, version in reached.items():
            if version > everywhere.get(range, -1):
                everywhere[range] = version
            if not (waiting := waits(range)):
                continue
            self._waiting[range] = [one for one in waiting if one.versions[range] > version]
            for one in [one for one in waiting if one.versions[range] <= version]:
                del one.versions[range]
                if not one.versions:
                    due.append(one)
        for one in due:
            one.told()

    def _on_apply(self, envelope: Envelope) -> None:
        apply: Apply = envelope.message
        entries = self._entries(apply, envelope.payload)
        self._store.traffic.received[envelope.sender] += len(envelope.payload)
        envelope.done()
        before = [self._store.copies[number].version for number in apply.ranges]
        if any(version != own + 1 for version, own in zip(apply.versions, before, strict=True)):
            self._channel.refuse(envelope, "entries before these have not come")
            return
        self._asked.append(envelope)

        def told() -> None:
            if envelope in self._asked:
                self._asked.remove(envelope)
                self._channel.post(envelope.sender, Applied(apply.ask))

        self.enter(entries)
        self.after(apply.ranges, told)

    def _entries(self, apply: Apply, payload: Buffer) -> list[Entry]:
        workers, entries = apply.workers, list[Entry]()
        if len(apply.versions) != len(apply.ranges) or len(apply.clocks) != len(apply.ranges) * len(workers):
            raise PeerMisbehaved("sent entries that lack versions or clocks")
        pieces: Pieces | None = None
        if apply.updates:
            try:
                pieces = Pieces(self._store.keys, apply.ranges, apply.rows, payload)
            except ValueError as wrong:
                raise PeerMisbehaved(f"sent entries that cannot be applied: {wrong}") from None
        for places in self._alike(apply):
            clocks = apply.clocks[places[0] * len(workers) : (places[0] + 1) * len(workers)]
            pushed = None if pieces is None else pieces.of(places)
            ranges = tuple(apply.ranges[place] for place in places)
            entries.append(Entry(ranges, pushed, dict(zip(workers, clocks, strict=True)), apply.joins, apply.order))
        return entries

    def _alike(self, apply: Apply) -> list[list[int]]:
        """The places of the message's ranges, in groups that are neighbours and for which one entry will do."""
        groups, many = list[list[int]](), len(apply.workers)
        before: object = None
        for place, number in enumerate(apply.ranges):
            like: object = None
            if apply.updates:
                clocks = apply.clocks[place * many : (place + 1) * many]
                like = clocks, self._tenure.successor(number), self._store.keys.kind(number)
            if like is not None and like == before and apply.ranges[place - 1] < number:
                groups[-1].append(place)
            else:
                groups.append([place])
            before = like
        return groups


def _divided(entry: Entry, most: int, keys: Keys) -> Iterator[Entry]:
    """Entries for at most `most` ranges each, which together do the same as `entry`."""
    assert entry.pushed is not None
    pieces, ranges = parted(keys, entry.ranges, entry.pushed), entry.ranges
    for at in range(0, len(ranges), most):
        yield replace(entry, ranges=ranges[at : at + most], pushed=joined(pieces[at : at + most]))


def _bytes_of(entry: Entry, keys: Keys) -> int:
    """The bytes in a message of what an entry applies."""
    pushed = entry.pushed
    if isinstance(pushed, Rows):
        return len(pushed) * keys.row_bytes(pushed.values.shape[1])
    return 0 if pushed is None else pushed.nbytes
