"""Shared arena: the memory that all members of a group share if all are on one machine, and how they agree to use it.

The member of rank 0 makes a segment and offers it (Offer). Each other member opens the segment, writes its proof into
it, and answers whether it could (Attached). Then rank 0 tells all whether the segment is used (Use). Cost: three small
messages for each member, once an epoch.
On failure: the group changes, and the next one has a segment of its own, or none.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ..channel import Channel, Envelope
from ..group import Group
from ..limits import SHARED_MEMORY_MEMBERS_MAX
from ..offload import off_loop
from ..transport import PeerId
from ..wire.frames import PeerMisbehaved, message
from .segment import SECRET_BYTES, Segment

_DEALS_MAX = 16
"""The most segments of different sizes that are in use at a time."""
_EARLY_MAX, _EARLY_PEERS_MAX = 2 * _DEALS_MAX, 2 * SHARED_MEMORY_MEMBERS_MAX
"""The most messages of a later epoch that are kept for each peer, and the most peers outside the group for which any
are kept."""


@message("shared_memory")
@dataclass(frozen=True, slots=True)
class Offer:
    """From rank 0 to all other members of the epoch's group: a segment of `nbytes` for all, which its process `pid` has
    open as the descriptor `fd`. `secret`: the bytes at its beginning."""

    epoch: int
    nbytes: int
    pid: int
    fd: int
    secret: bytes


@message("shared_memory")
@dataclass(frozen=True, slots=True)
class Attached:
    """The answer to Offer. `could`: whether the sender has opened the segment of `nbytes` and written its proof."""

    epoch: int
    nbytes: int
    could: bool


@message("shared_memory")
@dataclass(frozen=True, slots=True)
class Use:
    """From rank 0 to all other members. `all_have_it`: all members have opened the segment of `nbytes`, and it is used
    from now on; else it is never used."""

    epoch: int
    nbytes: int
    all_have_it: bool


@dataclass(slots=True, eq=False)
class _Deal:
    """One peer's knowledge of one segment. `fd`: the descriptor by which others may open it, -1: they may not.
    `settled`: whether it is used."""

    segment: Segment | None = None
    fd: int = -1
    answers: dict[PeerId, bool] = field(default_factory=dict)
    settled: asyncio.Future[bool] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def settle(self, all_have_it: bool) -> None:
        if self.fd >= 0:
            os.close(self.fd)  # a process that has mapped it keeps it
            self.fd = -1
        if not self.settled.done():
            self.settled.set_result(all_have_it and self.segment is not None)


class Commons:
    """One peer's side of the agreement on segments. `group` returns the present group."""

    def __init__(self, channel: Channel, group: Callable[[], Group]) -> None:
        self._channel, self._group = channel, group
        self._epoch = 0
        self._deals: dict[int, _Deal] = {}
        self._early: dict[PeerId, deque[Envelope]] = {}
        for kind in (Offer, Attached, Use):
            channel.on(kind, self._hear)

    async def segment(self, nbytes: int) -> Segment | None:
        """Wait until the members of the present group have agreed on a segment of `nbytes`, and return it, the same at
        each call in one epoch. All members must ask for it. None: they share none; they are on several machines, or
        more than 64, or one of them could not open it, or there are 16 of other sizes, or the epoch has ended
        meanwhile."""
        group = self._group()
        if len(group.ids) > SHARED_MEMORY_MEMBERS_MAX or not group.one_machine:
            return None
        self._turn_to(group.epoch)
        first, new = group.rank == 0, nbytes not in self._deals
        if (deal := self._deal(nbytes)) is None:
            if first:
                self._tell(group, nbytes, False)
            return None
        if new and first:
            await self._offer(deal, group, nbytes)
        return deal.segment if await asyncio.shield(deal.settled) else None

    def _turn_to(self, epoch: int) -> None:
        if epoch == self._epoch:
            return
        for deal in self._deals.values():
            deal.settle(False)
        self._epoch, self._deals = epoch, {}
        early = [envelope for envelopes in self._early.values() for envelope in envelopes]
        self._early.clear()
        for envelope in early:
            self._channel.resume(envelope, self._hear)

    def _deal(self, nbytes: int) -> _Deal | None:
        """The negotiation of the segment of `nbytes`; None: there are `_DEALS_MAX` of other sizes already."""
        if nbytes not in self._deals and len(self._deals) < _DEALS_MAX:
            self._deals[nbytes] = _Deal()
        return self._deals.get(nbytes)

    async def _offer(self, deal: _Deal, group: Group, nbytes: int) -> None:
        try:
            segment, fd = await off_loop(nbytes, lambda: Segment.create(nbytes))
        except OSError:
            self._decide(deal, group, nbytes, False)
            return
        except asyncio.CancelledError:
            del self._deals[nbytes]
            raise
        deal.segment, deal.fd = segment, fd
        for peer in group.ids[1:]:
            self._channel.post(peer, Offer(group.epoch, nbytes, os.getpid(), fd, segment.secret))

    def _decide(self, deal: _Deal, group: Group, nbytes: int, all_have_it: bool) -> None:
        self._tell(group, nbytes, all_have_it)
        deal.settle(all_have_it)

    def _tell(self, group: Group, nbytes: int, all_have_it: bool) -> None:
        for peer in group.ids[1:]:
            self._channel.post(peer, Use(group.epoch, nbytes, all_have_it))

    def _hear(self, envelope: Envelope) -> None:
        """Handle a message; one of a later epoch waits until that epoch begins."""
        group, told = self._group(), envelope.message
        group.check_sense(told.epoch)
        if told.epoch > self._epoch:
            self._keep(envelope)
        elif told.epoch == self._epoch == group.epoch and envelope.sender in group.ids:
            from_first = envelope.sender == group.ids[0]
            if not from_first and not isinstance(told, Attached):
                raise PeerMisbehaved("dealt in shared memory, which only the first in rank does")
            deal = self._deal(told.nbytes) if from_first else self._deals.get(told.nbytes)
            if isinstance(told, Offer):
                self._attach(told, group, deal)
            elif isinstance(told, Use) and deal is not None:  # maybe before this peer asked for it
                deal.settle(told.all_have_it)
            elif isinstance(told, Attached) and deal is not None and deal.segment is not None:
                rank = group.ids.index(envelope.sender)
                deal.answers[envelope.sender] = told.could and deal.segment.proven(rank)
                if len(deal.answers) == len(group.ids) - 1 and not deal.settled.done():
                    self._decide(deal, group, told.nbytes, all(deal.answers.values()))

    def _keep(self, envelope: Envelope) -> None:
        sender = envelope.sender
        if sender in {*self._group().ids, *self._early} or len(self._early) < _EARLY_PEERS_MAX:
            self._early.setdefault(sender, deque(maxlen=_EARLY_MAX)).append(envelope)

    def _attach(self, offer: Offer, group: Group, deal: _Deal | None) -> None:
        with contextlib.suppress(OSError, ValueError):
            if deal is not None and deal.segment is None and len(offer.secret) == SECRET_BYTES:
                deal.segment = Segment.attach(offer.pid, offer.fd, offer.secret, offer.nbytes)
                deal.segment.prove(group.rank)
        answer = Attached(group.epoch, offer.nbytes, deal is not None and deal.segment is not None)
        self._channel.post(group.ids[0], answer)
