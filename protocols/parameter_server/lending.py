"""Lending: how the workers of an algorithm in shared memory all come to have the same memory.

The worker that is furthest makes it, the first in the view among equals, once it has heard from all others that they
have none. So a run that is resumed goes on from the newest model. Each worker that has the memory lends it to those
that ask, so that a newcomer can have it as long as one worker is there. A worker that the others have gone on without
asks anew, and goes on in their memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from ..channel import Channel, Envelope
from ..link.link import PeerLost
from ..members.presence import Presence
from ..members.view import Member, View
from ..shared_memory.common_vector import CommonVector, Memories, Where
from ..testpoints import witness
from ..transport import PeerId
from ..wire.frames import PeerMisbehaved, message
from .events import Shares
from .messages import PARAMETER_SERVER

_MEND = "on several take --algorithm downpour"
Progress = tuple[int, int]
"""A worker's clock, and its local steps in the run."""


@message(PARAMETER_SERVER)
@dataclass(frozen=True, slots=True)
class Borrow:
    """From a worker to another one of view `epoch`: asks for the memory of the model."""

    ask: int
    epoch: int


@message(PARAMETER_SERVER)
@dataclass(frozen=True, slots=True)
class Lent:
    """The answer to Borrow: the process `pid` has the memory open as the descriptor `fd`; `pid` 0: the sender has none.
    `secret`: the bytes at its beginning. `clock`, `step`: how far the sender is (`Progress`)."""

    ask: int
    pid: int
    fd: int
    secret: bytes
    clock: int
    step: int


class Lending:
    """One worker's side of sharing the model's memory: it asks the others for it, or makes it, and lends it to those
    that ask. `memories`: the shared memory of its machine. `initial` [n]: the model that the memory begins with if this
    worker makes it. `progress` returns this worker's clock and local steps."""

    def __init__(
        self,
        channel: Channel,
        presence: Presence,
        memories: Memories,
        initial: Tensor,
        progress: Callable[[], Progress],
    ) -> None:
        self._channel, self._presence, self._memories = channel, presence, memories
        self.vector, self._progress = initial, progress
        """The model [n]: in the memory, if this worker has it."""
        self._memory: CommonVector | None = None
        self._lender: Progress | None = None
        """How far the worker is that has lent the memory; None: none has in the present view."""
        self._furthest: PeerId | None = None
        """The worker that is to make the memory, as all have told that they have none; None: they have not."""
        self._elsewhere = ""
        """Why memory that was lent is not taken; "": it is, or none was lent."""
        channel.on(Borrow, self._on_borrow)

    async def memory(self) -> tuple[CommonVector, Progress]:
        """Wait until this worker has the memory that all workers of the view share, and return it with a progress
        (clock, local steps): that of the worker that lent it, or this worker's own if it made it. Raises ValueError
        when the memory that others share cannot be mapped here, OSError when this worker is to make it and cannot, and
        the errors of `Presence.view`."""
        in_vain = False
        while True:
            view = await self._presence.view()
            self._lender, self._elsewhere, self._furthest = None, "", None
            await self._presence.during(view, partial(self._ask, view))
            if self._presence.has_left(view):
                continue
            if self._lender is None and self._elsewhere:
                if in_vain:
                    raise ValueError(self._elsewhere)
                in_vain = True  # the lender may have ended since, so ask all once more
                await self._presence.pause()
                continue
            if self._memory is None and self._furthest == self._presence.me:
                self._has(self._memories.create(self.vector))
            if self._memory is not None and (self._furthest or self._lender):
                witness(Shares(view.generation, self._memory.where.secret))
                return self._memory, self._lender or self._progress()
            await self._presence.pause()

    async def _ask(self, view: View) -> None:
        """Ask the others in `view`, one after another, until one lends the memory."""
        heard = {self._presence.me: self._progress()}
        for member in view.members:
            if member.id == self._presence.me:
                continue
            try:
                borrow = partial(Borrow, epoch=view.generation)
                answer = await self._channel.ask(member.id, borrow, answers=(Lent,))
            except PeerLost:
                self._channel.endpoint.retry(member.id)
                continue
            lent: Lent = answer.message
            if lent.pid and self._takes(member, lent):
                return
            heard[member.id] = lent.clock, lent.step
        if len(heard) == len(view.members):
            self._furthest = max((one.id for one in view.members), key=lambda one: heard[one])

    def _takes(self, lender: Member, lent: Lent) -> bool:
        """Go on in the memory that `lender` has lent. Returns whether it is on this machine."""
        where = Where(lent.pid, lent.fd, lent.secret)
        if self._memory is None or self._memory.where.secret != lent.secret:
            try:
                memory = self._memories.attach(where, self.vector)
            except OSError as error:
                why = f"the memory of peer {lender.name} at {lender.address} cannot be mapped here ({error})"
                self._elsewhere = f"{why}: all workers that share it run on one machine, as one user; {_MEND}"
                return False
            self._has(memory)
        self._lender = lent.clock, lent.step
        return True

    def _has(self, memory: CommonVector) -> None:
        self.close()
        self._memory, self.vector = memory, memory.vector

    def _on_borrow(self, envelope: Envelope) -> None:
        borrow, view = envelope.message, self._presence.present
        if borrow.epoch != view.generation:
            self._channel.refuse(envelope, "the view has changed")
        elif envelope.sender not in view.ids:
            raise PeerMisbehaved(f"sent Borrow, which it may not send in view {borrow.epoch}")
        elif (memory := self._memory) is None:
            self._channel.post(envelope.sender, Lent(borrow.ask, 0, 0, b"", *self._progress()))
        else:
            self._channel.post(envelope.sender, Lent(borrow.ask, *memory.where, *self._progress()))

    def close(self) -> None:
        """Lend the memory to no further worker: one that asks is told that this worker has none. Workers that have the
        memory keep it. This worker's `vector` stays in it, but the memory's lock cannot be taken here any more."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()
