"""The ledger: a member's Paxos state, written to disk before it answers a proposer, so that its next life, the process
after a restart, keeps its promises.

A peer that can be restarted under its key keeps these entries: its seat (the view in which it is a member), its ballot
(what it has promised and adopted in the change of that view), and its vote (the result that it voted for last). A
process that finds these entries only votes on behalf of the former life: it no longer holds the result for which that
life voted, so it does not train until a later view has its new life among the members. It adds its own life to the
entries: a life that is let in, and ends before it hears of that, has never voted, so the next one votes on its behalf,
too. A peer that joins anew of its own will removes its entries first. If the disk takes no writes, the entries are
removed. An acceptor whose entries can be neither written nor removed stops answering, because its next life would read
outdated entries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import msgpack

from ..testpoints import buggify
from ..wire.schema import STR_BYTES_MAX, fields_of, plain_fields, read_fields
from .errors import MembershipError
from .view import Decree, Member, Version

T = TypeVar("T")
_SLOW_S = 0.5


class Store(Protocol):
    """A place for named entries of a few kilobytes that outlive the process, such as files. `load` returns None for no
    entry."""

    def load(self, name: str) -> bytes | None:
        """The entry last saved under `name`; None: there is none."""
        ...

    async def save(self, name: str, entry: bytes) -> None:
        """Replace the entry atomically. On return it is on the disk. Raises OSError."""
        ...

    def clear(self) -> None:
        """Remove all entries. Raises OSError."""
        ...


@dataclass(frozen=True, slots=True)
class Seat:
    """The entry for membership: the life `me` is a member of the view of `decree`."""

    me: Member
    decree: Decree


@dataclass(frozen=True, slots=True)
class Ballot:
    """The entry for a change of the view of `generation`: what `life`, that of the seat, has promised and adopted in
    it, as in `Promise`."""

    life: int
    generation: int
    promised: int
    adopted: int
    decree: Decree | None


@dataclass(frozen=True, slots=True)
class Vote:
    """The entry for a vote: the version of the result for which the life has voted last."""

    life: int
    generation: int
    version: Version


@dataclass(frozen=True, slots=True)
class Lives:
    """The entry for the lives that have found the record of `life` in the view of `generation`. None of them has voted
    in a later view: it would have a seat there."""

    life: int
    generation: int
    lives: tuple[int, ...]


Entry = Seat | Ballot | Vote | Lives


@dataclass(frozen=True, slots=True)
class Former:
    """The entries of a former life: its seat; its ballot and vote, each None unless it is of the seat's generation; and
    the lives that voted on its behalf."""

    seat: Seat
    ballot: Ballot | None
    vote: Vote | None
    lives: tuple[int, ...] = ()


class Ledger:
    """One peer's ledger in a `store`. Without a store nothing is kept, and callers do not wait."""

    def __init__(self, store: Store | None = None) -> None:
        self._store = store
        self._due: list[tuple[Entry, Callable[[], None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._last: dict[type, Entry] = {}
        """The last entry of each kind since the seat: all are written again after a write has failed."""
        self._unwritten, self._outdated = False, False
        """Whether the last entry could not be written, and whether the entries on disk could not be removed either."""
        self.on_trouble: list[Callable[[str], None]] = []
        """Called with the problem when an entry cannot be written."""

    @property
    def kept(self) -> bool:
        """Whether entries are kept, because there is a store."""
        return self._store is not None

    def former(self) -> Former | None:
        """The entries of a former life in this store. None: there is none, or it cannot be read."""
        seat, ballot, vote, lives = self._read(Seat), self._read(Ballot), self._read(Vote), self._read(Lives)
        if seat is None:
            return None
        now = (seat.me.life, seat.decree.view.generation)
        ballot = ballot if ballot is not None and (ballot.life, ballot.generation) == now else None
        vote = vote if vote is not None and (vote.life, vote.generation) == now else None
        since = lives.lives if lives is not None and (lives.life, lives.generation) == now else ()
        return Former(seat, ballot, vote, since)

    def keep(self, entry: Entry, then: Callable[[], None] = lambda: None) -> None:
        """Write `entry` in the background, and call `then` as soon as it and all earlier entries are on the disk, or
        are removed from it. `then` is not called while outdated entries are left there."""
        if self._store is None:
            then()
            return
        self._due.append((entry, then))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(self._store), name="ledger")

    async def on_record(self, entry: Vote) -> None:
        """Write `entry`, and return when it is on the disk, or when writing has failed: a bad disk must not end the
        training."""
        self.keep(entry)
        await self._written_out()

    async def synced(self) -> None:
        """Wait until all entries are written. Raises MembershipError when outdated entries could be neither replaced
        nor removed, so that this peer must not vote."""
        await self._written_out()
        if self._outdated:
            raise MembershipError("the record of its votes can be neither written nor removed, so it cannot vote")

    async def _written_out(self) -> None:
        if self._writing is not None:
            await asyncio.shield(self._writing)

    def strike(self) -> None:
        """Remove the entries of this life, which is over, and drop those that wait to be written. It has to be done
        before any other peer hears that the life is over."""
        self.close()
        if self._store is not None:
            self._clear(self._store)

    def close(self) -> None:
        """Stop writing. Entries that are still waiting are dropped, and their `then` is not called."""
        self._due.clear()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    async def _write(self, store: Store) -> None:
        while self._due:
            entry, then = self._due[0]
            self._last = {} if isinstance(entry, Seat) else self._last
            self._last[type(entry)] = entry
            await self._written(store, entry)
            if self._due:
                del self._due[0]
            if not self._outdated:
                then()
        self._writing = None

    async def _written(self, store: Store, entry: Entry) -> None:
        entries = [entry]
        try:
            if self._unwritten:  # write all again, the seat last: without a seat the other entries are ignored
                store.clear()
                entries = sorted(self._last.values(), key=lambda one: isinstance(one, Seat))
            if buggify("a disk is slow"):
                await asyncio.sleep(_SLOW_S)
            for one in entries:
                packed: bytes = msgpack.packb(plain_fields(one, fields_of(type(one))))
                await store.save(type(one).__name__.lower(), packed)
            self._unwritten = self._outdated = False
        except OSError as error:
            for told in self.on_trouble:
                told(f"the record of its votes cannot be written: {error.strerror or error}")
            self._unwritten, self._outdated = True, not self._clear(store)

    def _clear(self, store: Store) -> bool:
        try:
            store.clear()
        except OSError as error:
            for told in self.on_trouble:
                told(f"the record of its votes cannot be removed, so it votes no more: {error.strerror or error}")
            return False
        return True

    def _read(self, kind: type[T]) -> T | None:
        entry = None if self._store is None else self._store.load(kind.__name__.lower())
        if entry is None:
            return None
        limits = {"max_array_len": 0, "max_map_len": 0, "max_ext_len": 0, "max_str_len": STR_BYTES_MAX}
        unpacker: Any = msgpack.Unpacker(None, raw=False, max_buffer_size=len(entry), **limits)
        unpacker.feed(entry)
        fields = fields_of(kind)
        try:
            if unpacker.read_array_header() != len(fields.codecs):
                return None
            return kind(*read_fields(unpacker, fields))
        except (ValueError, msgpack.UnpackException):
            return None  # written by another version of this program, or torn
