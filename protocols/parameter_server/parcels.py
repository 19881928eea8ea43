"""Parcels: the payload of a push, or of an answer, lies on its sender's board (shared memory) where sender and receiver
are on one machine, and the message tells only its number there.

A receiver copies a parcel before it does anything with it, and marks it as taken; then its place may be used again. If
it was written over all the same, because the sender believes that nobody waits for it any more, the receiver finds
another number on it, and takes nothing. Readers of the same values share one parcel.
Cost: the bytes are written once and read once by each receiver, and a message goes over the link.
On failure: small payloads, the first ones of each pair of peers, and those for which no place is free go over the link.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..channel import Channel, Envelope
from ..members.view import View
from ..shared_memory.board import Board, Form, Lent, Window
from ..shared_memory.boards import Boards
from ..transport import PeerId
from ..wire.frames import PAYLOAD_BYTES_MAX, Buffer

SLOTS, BOARD_BYTES_MAX = 64, 16 << 20
"""The most parcels on a board, and the most bytes of them all."""
MEMORY_BYTES_MAX = 2 * BOARD_BYTES_MAX
"""The most memory that a board takes for its parcels: a slot keeps the memory of its largest one."""
_BYTES_MIN = 32 * 1024
"""A smaller payload takes less time over the link than a parcel."""
_FORM = Form(torch.empty(1, dtype=torch.uint8).expand(PAYLOAD_BYTES_MAX), SLOTS, facts=1)
"""The fact is the number of bytes."""


@dataclass(slots=True, eq=False)
class _Laid:
    """The content of a slot: its `number` and size, and its receivers `to`. `of`: the tensors whose elements it has;
    none: only one receiver gets it."""

    number: int
    nbytes: int
    to: set[PeerId]
    of: list[weakref.ref[Tensor]]

    def is_of(self, tensors: Sequence[Tensor]) -> bool:
        return len(self.of) == len(tensors) and all(its() is one for its, one in zip(self.of, tensors, strict=True))


@dataclass(frozen=True, slots=True)
class Parcel:
    """A parcel as its receiver finds it: its `payload`, uint8 [b], in the shared memory, for reading only.
    `lent.intact`: it has not been written over since."""

    payload: Tensor
    lent: Lent


class Parcels:
    """The parcels that one peer sends and receives on a channel."""

    def __init__(self, channel: Channel) -> None:
        self._me, self._view = channel.endpoint.id, 0
        self._near = frozenset[PeerId]()
        """The other members of the view that are on this machine."""
        self._boards = Boards(
            channel,
            lambda: Board(_FORM),
            lambda pid, fd, secret: Window(pid, fd, secret, _FORM),
            lambda peer: peer in self._near,
        )
        self._slots: dict[int, _Laid] = {}
        self._newest: dict[PeerId, int] = {}
        """By receiver, the number of its last parcel."""
        self.bytes_shared = 0
        channel.endpoint.on_ended.append(self._boards.forget)

    def begin(self, view: View) -> None:
        """Go on to `view`: only its members on this machine get parcels, and all parcels from before may be
        overwritten."""
        if view.generation != self._view:
            self._view = view.generation
            self._slots.clear()
            self._newest.clear()
            here = next((one.machine for one in view.members if one.id == self._me), "")
            near = (one.id for one in view.members if one.machine == here and one.id != self._me)
            self._near = frozenset(near if here else ())
            for gone in [peer for peer in self._boards.met() if peer not in self._near]:
                self._boards.drop(gone)  # the link to a peer that leaves may stay, and its board keeps memory

    def is_near(self, peer: PeerId) -> bool:
        """Whether `peer` is on this machine."""
        return peer in self._near

    def reaches(self, peer: PeerId) -> bool:
        """Whether this peer and `peer` can read each other's boards."""
        return peer in self._near and self._boards.reached(peer) is not None

    def put(self, to: PeerId, payload: Sequence[Buffer], of: Sequence[Tensor] = ()) -> int:
        """Write these bytes to this peer's board, for the peer `to` to read. Returns the parcel's number on the board,
        which the message to `to` tells; 0: nothing is written, and the bytes have to go over the link, because they are
        fewer than 32 KiB, `to` cannot read the board (yet), or no place is free. `of`: the tensors whose elements they
        are, which do not change any more; if they are on the board already, that parcel is used again. Empty `of`: no
        other peer gets the same."""
        if to not in self._near or (nbytes := sum(map(len, payload))) < _BYTES_MIN:
            return 0
        self._boards.meet([to])
        board = self._boards.own
        if board is None or self._boards.reached(to) is None:
            return 0
        same = next((one for one in self._slots.values() if one.is_of(of)), None) if of else None
        if same is not None and same.number > self._newest.get(to, 0):  # a receiver's mark stands for all before it
            same.to.add(to)
            self._newest[to] = same.number
            return same.number
        self._clear()
        slot = self._free(board.reserved, nbytes)
        if slot is None or sum(one.nbytes for one in self._slots.values()) + nbytes > BOARD_BYTES_MAX:
            return 0
        try:
            there, at = board.clear(slot, nbytes).numpy(), 0
        except OSError:
            return 0
        for part in payload:
            there[at : at + len(part)] = np.frombuffer(part, np.uint8)
            at += len(part)
        number = self._newest[to] = board.number(slot, nbytes)
        self._slots[slot] = _Laid(number, nbytes, {to}, [weakref.ref(one) for one in of])
        self.bytes_shared += nbytes
        return number

    def _clear(self) -> None:
        """Forget what each of its receivers has taken, or is gone."""
        reached = {peer: self._boards.reached(peer) for laid in self._slots.values() for peer in laid.to}

        def is_taken(laid: _Laid) -> bool:
            return all((mark := reached[peer]) is None or mark >= laid.number for peer in laid.to)

        self._slots = {slot: laid for slot, laid in self._slots.items() if not is_taken(laid)}

    def _free(self, reserved: Mapping[int, int], nbytes: int) -> int | None:
        """The free slot in which a parcel of this size takes the least further memory, and the smallest of those.
        `reserved`: by slot, the bytes for which it has memory. None: there is none, or it would take too much."""
        least: tuple[int, int, int] | None = None
        for slot in range(SLOTS):
            has = reserved.get(slot, 0)
            if slot not in self._slots and (least is None or (max(0, nbytes - has), has) < least[:2]):
                least = max(0, nbytes - has), has, slot
            if not has:
                break  # those behind have none either
        more = least is not None and least[0] > 0 and sum(reserved.values()) + least[0] > MEMORY_BYTES_MAX
        return None if least is None or more else least[2]

    def find(self, sender: PeerId, number: int) -> Parcel | None:
        """The parcel with this number on the board of `sender`. None: it was overwritten, or the board cannot be
        read."""
        window = self._boards.window(sender)
        slot = None if window is None else window.slot_of(number)
        if window is None or slot is None:
            return None
        lent = Lent(window, slot, number)
        return Parcel(lent.tensor[: max(0, window.fact(slot))], lent)

    def unpack(self, envelope: Envelope, number: int) -> bool:
        """Fetch the payload of a message that arrived: copy the parcel with this `number` on its sender's board into
        ``envelope.payload``. 0: the payload came with the message, and nothing is done. Returns False if the parcel is
        not there any more."""
        if not number:
            return True
        parcel = self.find(envelope.sender, number)
        copy = None if parcel is None else parcel.payload.clone()
        self.took(envelope.sender, number, 0 if copy is None else copy.nbytes)
        if parcel is None or copy is None or not parcel.lent.intact:
            return False
        envelope.payload = copy.numpy().data
        return True

    def took(self, sender: PeerId, number: int, nbytes: int) -> None:
        """Tell `sender`, by a mark on this peer's board, that this peer needs none of its parcels up to this number any
        more. `nbytes`: the bytes that this peer has read of it, for the count of shared bytes."""
        self.bytes_shared += nbytes
        self._boards.mark(sender, number)

    def close(self) -> None:
        self._boards.close()
