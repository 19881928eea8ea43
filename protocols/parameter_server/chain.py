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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ...aggregation.rows import Rows
from ..channel import Channel, Envelope
from ..link.link import PeerLost
from ..testpoints import witness, witnessed
from ..transport import PeerId
from ..wire.frames import PAYLOAD_BYTES_MAX, Buffer, PeerMisbehaved
from ..wire.schema import ITEMS_MAX
from .keys import Piece
from .messages import Applied, Apply
from .pieces import counts_of, of_pieces, unpacked
from .store import Entry, Store
from .tenure import Tenure

Told = Callable[[], None]


@dataclass(slots=True)
class _Waiter:
    """`told` is called when all servers behind this one have `version` of the range."""

    version: int
    told: Told


class Chains:
    """One server's part in the chains of its ranges."""

    def __init__(self, channel: Channel, store: Store, tenure: Tenure) -> None:
        self._channel, self._store, self._tenure = channel, store, tenure
        self.on_entries: list[Callable[[Sequence[int]], None]] = []
        """Called with the ranges whose copies have new entries."""
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
        """A new view begins: give up the entries that are on their way. Functions that were given to `after` are
        dropped and never called."""
        for task in self._tasks:
            task.cancel()
        self._everywhere.clear()
        self._waiting.clear()
        self._asked.clear()

    def settled(self, range: int) -> None:
        """All servers of the chain of `range` hold the same copy as this one: call the functions that wait for that."""
        self._all_have({range: self._store.copies[range].version})

    def after(self, range: int, told: Told) -> None:
        """Call `told` once all servers behind this one in the chain have all entries that this server's copy of `range`
        has now; at once if they have them."""
        version = self._store.copies[range].version
        if self._everywhere.get(range, -1) >= version:
            told()
        else:
            self._waiting[range].append(_Waiter(version, told))

    def enter(self, entries: Sequence[Entry]) -> None:
        """Apply these entries to this server's copies, and send them to the next server of each chain."""
        behind: defaultdict[tuple[object, ...], list[Entry]] = defaultdict(list)
        observed = witnessed()
        for entry in entries:
            self._store.enter(entry)
            if observed:
                witness(self._store.entered(entry))
            key = (
                self._tenure.successor(entry.range),
                tuple(entry.clocks),
                entry.pushed is None,
                entry.joins,
                entry.order,
            )
            behind[key].append(entry)
        for those in behind.values():
            for some in self._batches(those, max(1, ITEMS_MAX // max(1, len(those[0].clocks)))):
                self._send(self._tenure.successor(those[0].range), some)
        for on_entries in self.on_entries:
            on_entries([entry.range for entry in entries])

    def _batches(self, entries: Sequence[Entry], most: int) -> Iterator[list[Entry]]:
        """These entries in groups of at most `most`, each of which fits in a message."""
        group, nbytes = list[Entry](), 0
        for entry in entries:
            rows = len(entry.pushed) if isinstance(entry.pushed, Rows) else 0
            own = 0 if entry.pushed is None else self._store.keys.piece_bytes(entry.range, rows)
            if group and (len(group) == most or nbytes + own > PAYLOAD_BYTES_MAX):
                yield group
                group, nbytes = [], 0
            group.append(entry)
            nbytes += own
        yield group

    def _send(self, successor: PeerId | None, entries: Sequence[Entry]) -> None:
        reached = {entry.range: self._store.copies[entry.range].version for entry in entries}
        if successor is None:
            self._all_have(reached)
            return
        pieces = [entry.pushed for entry in entries if entry.pushed is not None]
        payload, rows = of_pieces(pieces), counts_of(pieces) or (0,) * len(entries)
        clocks = tuple(clock for entry in entries for clock in entry.clocks.values())
        first, workers, epoch = entries[0], tuple(entries[0].clocks), self._tenure.epoch

        def question(ask: int) -> Apply:
            versions = tuple(reached.values())
            head = (ask, epoch, tuple(reached), rows, versions, workers, clocks)
            return Apply(*head, first.joins, bool(pieces), first.order)

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
        for range, version in reached.items():
            self._everywhere[range] = max(version, self._everywhere.get(range, -1))
            there = [one for one in self._waiting[range] if one.version <= version]
            self._waiting[range] = [one for one in self._waiting[range] if one.version > version]
            for one in there:
                one.told()

    def _on_apply(self, envelope: Envelope) -> None:
        apply: Apply = envelope.message
        entries = self._entries(apply, envelope.payload)
        self._store.traffic.received[envelope.sender] += len(envelope.payload)
        envelope.done()
        before = [self._store.copies[entry.range].version for entry in entries]
        if any(version != own + 1 for version, own in zip(apply.versions, before, strict=True)):
            self._channel.refuse(envelope, "entries before these have not come")
            return
        left = {entry.range for entry in entries}
        self._asked.append(envelope)

        def told(range: int) -> None:
            left.discard(range)
            if not left and envelope in self._asked:
                self._asked.remove(envelope)
                self._channel.post(envelope.sender, Applied(apply.ask))

        self.enter(entries)
        for entry in entries:
            self.after(entry.range, partial(told, entry.range))

    def _entries(self, apply: Apply, payload: Buffer) -> list[Entry]:
        workers, entries = apply.workers, list[Entry]()
        if len(apply.versions) != len(apply.ranges) or len(apply.clocks) != len(apply.ranges) * len(workers):
            raise PeerMisbehaved("sent entries that lack versions or clocks")
        pieces: Sequence[Piece | None] = [None] * len(apply.ranges)
        if apply.updates:
            try:
                pieces, _ = unpacked(self._store.keys, apply.ranges, apply.rows, payload)
            except ValueError as wrong:
                raise PeerMisbehaved(f"sent entries that cannot be applied: {wrong}") from None
        for place, (number, pushed) in enumerate(zip(apply.ranges, pieces, strict=True)):
            clocks = apply.clocks[place * len(workers) : (place + 1) * len(workers)]
            entries.append(Entry(number, pushed, dict(zip(workers, clocks, strict=True)), apply.joins, apply.order))
        return entries
