"""Boards: how the peers of one machine tell each other where their boards are.

Each peer makes one board, as soon as it meets another peer on its machine, and offers it to each of these once, and
again after it has dropped the other's board.
Cost: a small message each way for each pair of peers.
On failure: a peer knows by the other's mark whether that one can read its board. Where it cannot, because there is no
descriptor or address space left, or no board, tensors for it go over the link.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..channel import Channel, Envelope
from ..transport import PeerId
from ..wire.frames import PeerMisbehaved, message
from .board import ROWS, Board, Window
from .segment import SECRET_BYTES

B = TypeVar("B", bound=Board)
W = TypeVar("W", bound=Window)
_AGAIN_MAX = 64
"""A peer that was out of the view, and comes back by the same link, offers its board again; so often at most."""
_UNREAD = -1
"""The mark for a peer whose board its owner cannot read."""


@message("shared_memory")
@dataclass(frozen=True, slots=True)
class BoardOffer:
    """Tells the receiver where the sender's board is: open in the process `pid` as the file descriptor `fd`, with the
    `secret` on it. `row`: the row of that board in which the sender's marks for the receiver are."""

    pid: int
    fd: int
    secret: bytes
    row: int


@dataclass(slots=True, eq=False)
class _Near(Generic[W]):
    """A peer on this machine. `row`: where this peer's board has the marks for it; `their_row`: where its board has
    those for this peer. `window`: its board; None: it has told of none that can be read. `has_told`: whether it has
    told."""

    row: int
    window: W | None = None
    their_row: int = -1
    has_told: bool = False


class Boards(Generic[B, W]):
    """One peer's own board, made by `make`, and the boards of peers on the same machine, opened by `look` (process,
    descriptor, secret); both may raise OSError, and the board is then done without. `is_near` returns whether a peer is
    known to be on this machine."""

    def __init__(
        self,
        channel: Channel,
        make: Callable[[], B],
        look: Callable[[int, int, bytes], W],
        is_near: Callable[[PeerId], bool],
    ) -> None:
        self._channel, self._make, self._look, self._is_near = channel, make, look, is_near
        self.own: B | None = None
        """This peer's board; None: it has met no peer on this machine, or there is no memory to share."""
        self._has_none = False
        """Whether there is no memory for a board."""
        self._near: dict[PeerId, _Near[W]] = {}
        self._early: dict[PeerId, BoardOffer] = {}
        """Offers of peers that are not known to be here yet."""
        self._again = Counter[PeerId]()
        """By peer, how often it has offered its board again over one link."""
        channel.on(BoardOffer, self._on_offer)

    def meet(self, peers: Iterable[PeerId]) -> None:
        """Offer this peer's board to each of these peers that is on this machine and has not been offered it yet, to at
        most 64 at a time. Makes the board first if there is none; does nothing where there is no memory to share."""
        for peer in peers:
            if peer not in self._near and not self._has_none and self._is_near(peer):
                self._offer(peer)

    def has_met(self, peer: PeerId) -> bool:
        return peer in self._near

    def met(self) -> Collection[PeerId]:
        """The peers on this machine to which this peer has offered its board, without those that were dropped since. It
        is not said that they can read it (`reached`)."""
        return self._near.keys()

    def window(self, peer: PeerId) -> W | None:
        """The board of `peer`, mapped here; None: it cannot be read, or `peer` has not told yet where it is."""
        near = self._near.get(peer)
        return None if near is None else near.window

    def reached(self, peer: PeerId) -> int | None:
        """How far `peer` has read this peer's board: what `peer` has last given to `mark`, 0 before that. None: one of
        the two cannot read the other's board, or not yet."""
        near = self._near.get(peer)
        mark = _UNREAD if near is None or near.window is None else near.window.mark(near.their_row)
        return None if mark < 0 else mark

    def mark(self, peer: PeerId, reached: int) -> None:
        """Mark on this peer's own board that this peer has read the board of `peer` up to `reached`, from 0: a count
        that the users of the boards have agreed on. Does nothing if the two have not met."""
        near = self._near.get(peer)
        if self.own is not None and near is not None:
            self.own.mark(near.row, reached)

    def _offer(self, peer: PeerId) -> None:
        rows = {near.row for near in self._near.values()}
        if (row := next((row for row in range(ROWS) if row not in rows), None)) is None:
            return
        if self.own is None:
            try:
                self.own = self._make()
            except OSError:
                self._has_none = True
                return
        self.own.mark(row, _UNREAD)
        self._near[peer] = _Near(row)
        self._tell(peer, row)
        if (offer := self._early.pop(peer, None)) is not None:
            self._attach(self._near[peer], offer)

    def _on_offer(self, envelope: Envelope) -> None:
        """Raises PeerMisbehaved for a board that is offered again and again."""
        peer, offer = envelope.sender, envelope.message
        near = self._near.get(peer)
        has_told = near is not None and near.has_told
        if has_told or peer in self._early:  # it has dropped this peer's board meanwhile
            self._again[peer] += 1
            if self._again[peer] > _AGAIN_MAX:
                raise PeerMisbehaved("offered its memory again and again")
        self.meet([peer])
        if (near := self._near.get(peer)) is None:
            if len(self._early) < ROWS:
                self._early[peer] = offer
            return
        self._attach(near, offer)
        if has_told and near.window is not None and near.window.mark(near.their_row) == _UNREAD:
            self._tell(peer, near.row)

    def _tell(self, peer: PeerId, row: int) -> None:
        if self.own is not None:
            self._channel.post(peer, BoardOffer(os.getpid(), self.own.fd, self.own.secret, row))

    def _attach(self, near: _Near[W], offer: BoardOffer) -> None:
        near.has_told, near.window = True, None
        if len(offer.secret) == SECRET_BYTES and 0 <= offer.row < ROWS:
            with contextlib.suppress(OSError):
                near.window = self._look(offer.pid, offer.fd, offer.secret)
                near.their_row = offer.row
        if self.own is not None:
            self.own.mark(near.row, _UNREAD if near.window is None else 0)

    def forget(self, peer: PeerId) -> None:
        """Forget the board of `peer`, as `drop` does, because the link to it has ended. A new process of that peer
        offers a new board. An unknown peer is ignored."""
        self.drop(peer)
        self._again.pop(peer, None)

    def drop(self, peer: PeerId) -> None:
        """Stop reading the board of `peer`, and mark on this peer's own board that it cannot read that one. They read
        each other's boards again once each has offered its own to the other again (`meet`)."""
        self.mark(peer, _UNREAD)
        self._near.pop(peer, None)
        self._early.pop(peer, None)

    def close(self) -> None:
        if self.own is not None:
            self.own.close()
        self._near.clear()
