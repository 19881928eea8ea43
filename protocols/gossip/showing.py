"""Showing: peers on one machine read each other's vectors on boards (shared memory), and send none.

Each peer writes a vector to its own board, once, however many neighbours read it. Where the neighbours of a round are
known, they look at the board by themselves (`find`), and no message is needed. Otherwise the reader asks; the answer
tells the vector's number on the board (`lend`), and a later message of the reader that it has read the vector, so that
the slot is free again. The first vectors of a pair of peers go over the link, while each tells the other where its
board is (`shared_memory.boards`).
Cost: n bytes written, and n read for each neighbour; two small messages for each pair.
On failure: where memory cannot be shared, vectors go over the link.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from torch import Tensor

from ..channel import Channel
from ..offload import off_loop
from ..shared_memory.board import Lent
from ..shared_memory.boards import Boards
from ..transport import PeerId
from .board import SLOTS, VectorBoard, VectorWindow
from .kept import Kept
from .lent import Shown
from .messages import Published
from .mixing import Own, copied_own


@dataclass(slots=True, eq=False)
class _Placed:
    """A published vector `of` this peer, the same as it lies `there`, on the board, and its number there; 0: it is not
    there yet. `is_written`: nothing is written to it any more."""

    of: Published
    there: Published
    number: int = 0
    norm: float = 0.0
    is_written: bool = False


class Showing:
    """One peer's own board, and its view of the boards of peers on the same machine. `like` [n]: a tensor of the size
    and dtype of all vectors. `kept`: the vectors that this peer has published. `is_sent` returns whether a published
    vector is being sent, so that its slot is still needed."""

    def __init__(self, channel: Channel, like: Tensor, kept: Kept, is_sent: Callable[[Published], bool]) -> None:
        self._kept, self._is_sent = kept, is_sent
        like = like.new_empty(1).expand(like.numel())  # which takes no memory
        self._nbytes = like.nbytes
        self._boards = Boards(
            channel,
            lambda: VectorBoard(like),
            lambda pid, fd, secret: VectorWindow(pid, fd, secret, like),
            lambda peer: self.is_near(peer),
        )
        self._lent: dict[PeerId, _Placed] = {}
        """By peer, the vector that it was told to read, until it tells that it has."""
        self._slots: dict[int, _Placed] = {}
        self.is_near: Callable[[PeerId], bool] = lambda peer: False
        """Whether a peer is known to be on this machine."""
        self.bytes_shared = 0
        self._writing = asyncio.Lock()
        """Held until a vector that was written is kept, or lent: its slot is needed until then."""

    # What this peer shows

    async def show(self, one: Published) -> tuple[Published, Own] | None:
        """Write a vector to this peer's board. Returns it as it lies on the board, and the original with its norm.
        None: this peer has met no other on this machine (`meet`), or the board has no room. Raises ValueError when the
        vector is not finite."""
        if not self._boards.met():
            return None
        async with self._writing:
            placed = await self._placed(one)
        return None if placed is None else (placed.there, Own(one.vector, placed.norm))

    def number(self, one: Published) -> int:
        """The number of a vector, as `show` returned it, on this peer's board; 0: it is not there."""
        return next((placed.number for placed in self._slots.values() if placed.there is one), 0)

    def original(self, one: Published) -> Published:
        """The vector that was given to `show` for `one`, which lies on this peer's board: its memory is not written to
        again. `one` itself if it does not lie there."""
        return next((placed.of for placed in self._slots.values() if placed.there is one), one)

    async def lend(self, peer: PeerId, one: Published) -> int:
        """Put a vector on this peer's board, if it is not there yet, and keep it there until `peer` has read it
        (`given_back`). Returns the number by which `peer` finds it. 0: there is no room, `peer` does not read this
        board, or the vector is not finite; nothing is lent then."""
        async with self._writing:
            placed = next((placed for placed in self._slots.values() if placed.of is one and placed.number), None)
            if placed is None:
                with contextlib.suppress(ValueError):  # it is not finite: the reader will say so
                    placed = await self._placed(one)
            if placed is None or not self._boards.has_met(peer):
                return 0
            self._lent[peer] = placed
            return placed.number

    async def _placed(self, one: Published) -> _Placed | None:
        board, slot = self._boards.own, self._free()
        if board is None or slot is None:
            return None
        self._slots.pop(slot, None)
        try:
            there = board.clear(slot)
        except OSError:
            return None
        self._slots[slot] = placed = _Placed(one, replace(one, vector=there))

        def write() -> None:  # to the end, also when this peer does not wait for it any more
            try:
                placed.norm = copied_own(one.vector, there)
            finally:
                placed.is_written = True

        await off_loop(one.vector.nbytes, write)
        placed.number = board.show(slot, one.round, one.step, one.last, one.told)
        self.bytes_shared += one.vector.nbytes
        return placed

    def _free(self) -> int | None:
        """A slot whose vector nobody needs any more."""
        for peer in self._boards.met():
            if (reached := self._boards.reached(peer)) is not None:
                self._kept.taken_up_to(peer, reached)
        lent = [*self._lent.values()]
        return next((slot for slot in range(SLOTS) if not self._is_needed(self._slots.get(slot), lent)), None)

    def _is_needed(self, placed: _Placed | None, lent: list[_Placed]) -> bool:
        if placed is None:
            return False
        there = placed.there
        used = self._kept.holds(there) or self._is_sent(there) or any(placed is one for one in lent)
        return used or not placed.is_written

    def given_back(self, peer: PeerId) -> None:
        """Note that `peer` has read the vector that it was lent, or needs it no more: its slot may be overwritten."""
        self._lent.pop(peer, None)

    # What others show

    def meet(self, peers: Iterable[PeerId]) -> None:
        """Tell each of these peers that is on this machine, and has not been told, where this peer's board is."""
        self._boards.meet(peers)

    def shows(self, peer: PeerId) -> bool:
        """Whether this peer can read the newest vectors of `peer` on the board of `peer`."""
        window = self._boards.window(peer)
        return window is not None and not window.full

    def find(self, peer: PeerId, round: int) -> Shown | None:
        """The vector of `round`, or a newer one, on the board of `peer` (`Window.find`). None: it is not there yet, or
        this peer cannot read that board."""
        window = self._boards.window(peer)
        note = None if window is None else window.find(round)
        if window is None or note is None:
            return None
        lent = Lent(window, note.slot, note.number)
        return Shown(note.round, note.step, lent, note.told, note.last)

    def borrowed(self, peer: PeerId, number: int) -> Lent | None:
        """The vector with this number on the board of `peer`. None: it is not there, or this peer cannot read that
        board."""
        window = self._boards.window(peer)
        slot = None if window is None else window.slot_of(number)
        return None if window is None or slot is None else Lent(window, slot, number)

    def took(self, peer: PeerId, round: int) -> None:
        """Count a vector of `peer` as read, and mark on this peer's board that it needs none of `peer` up to `round`
        any more."""
        self.bytes_shared += self._nbytes
        self._boards.mark(peer, round)

    def forget(self, peer: PeerId) -> None:
        """Forget the board of `peer`, whose link has ended. A new process of that peer offers a new one."""
        self._boards.forget(peer)
        self._lent.pop(peer, None)

    def close(self) -> None:
        self._boards.close()
        self._lent.clear()
