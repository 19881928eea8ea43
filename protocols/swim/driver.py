"""The driver: it runs the state machine of SWIM (`swim`) over a channel, with timers of the event loop."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable

from ..channel import Channel, Envelope
from ..members.neighbours import UNLINKED
from ..members.view import Member
from ..transport import PeerId
from ..wire.frames import Lane, lane_of
from .member_table import MemberTable
from .messages import (
    Ack,
    AskProbe,
    Found,
    Instead,
    Link,
    Linked,
    Near,
    Probe,
    Probed,
    Table,
    Tell,
    Unlink,
    Vouch,
    Walk,
)
from .suspicion import ANEW
from .swim import Swim
from .timing import Timing

_KINDS = (Ack, AskProbe, Found, Instead, Link, Linked, Near, Probe, Probed, Table, Tell, Unlink, Vouch, Walk)


class Driver:
    """Runs one peer's state machine, and carries out what it asks for (`effects`). `founders`, `links`: as for `Swim`.
    `changed` is called after each step in which members have come or gone, or the run has started."""

    def __init__(
        self,
        channel: Channel,
        table: MemberTable,
        timing: Timing,
        *,
        founders: int,
        links: int | None,
        changed: Callable[[], None],
    ) -> None:
        self._channel, self._loop = channel, asyncio.get_running_loop()
        chance = random.Random(channel.endpoint.draw())
        self.swim = Swim(table, timing, self, chance, founders=founders, links=links)
        self.on_departed: list[Callable[[Member, str, bool], None]] = []
        """Called with a member that is gone (`Effects.departed`), why, and whether it left of its own will."""
        self.on_joined: list[Callable[[Member], None]] = []
        self.on_unknown: list[Callable[[PeerId], None]] = []
        """Called with a member that does not know this peer."""
        self._changed, self._is_changed = changed, False
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        for kind in _KINDS:
            channel.on(kind, self._on_message)

    def begin(self) -> None:
        """Begin to probe other members."""
        self.do(self.swim.begin)

    def do(self, step: Callable[[], object]) -> None:
        """Run `step`, a call of the state machine. Then set the timer for its next `tick`, and call `changed` if
        members have come or gone or the run has started. Nothing after `close`."""
        if self._closed:
            return
        try:
            step()
        finally:
            self._set_timer()
            if self._is_changed:
                self._is_changed = False
                self._changed()

    def has_ended(self, peer: PeerId) -> bool:
        """Whether the process of `peer` is proven to have ended."""
        return self._channel.endpoint.has_ended(peer)

    def close(self) -> None:
        """Stop: send no probes and answer no messages any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def begin_anew(self) -> None:
        """After `close`: begin to probe again, without the members that were known. `on_departed` is called for each of
        them, `changed` for none."""
        self._closed, self._timer = False, None
        for entry in list(self.swim.table):
            self.swim.suspicion.unlink(entry)
        self._is_changed = False
        self.begin()

    def _set_timer(self) -> None:
        wake_s, timer = self.swim.wake_s, self._timer
        if wake_s == math.inf or (timer is not None and not timer.cancelled() and timer.when() <= wake_s):
            return
        if timer is not None:
            timer.cancel()
        self._timer = self._loop.call_at(wake_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.do(self.swim.tick)

    def _on_message(self, envelope: Envelope) -> None:
        endpoint, sender = self._channel.endpoint, envelope.sender
        if self._closed:
            return
        if endpoint.is_lost(sender) is not None:
            endpoint.retry(sender)  # it is there again
        self.do(lambda: self.swim.heard(sender, envelope.message))

    # The world of the state machine

    def now(self) -> float:
        return self._loop.time()

    def send(self, to: PeerId, message: object) -> None:
        if lane_of(message) is not Lane.LOOSE:
            self._channel.post(to, message)
        else:
            self._channel.tell(to, message)

    def reach(self, member: Member) -> None:
        self._channel.endpoint.dial(member.id, member.address)

    def lapse(self, peer: PeerId) -> None:
        self._channel.endpoint.lapse(peer)

    def joined(self, member: Member) -> None:
        self._is_changed = True
        for told in self.on_joined:
            told(member)

    def departed(self, member: Member, why: str, *, left: bool) -> None:
        self._is_changed = True
        if why not in (ANEW, UNLINKED) and not left:
            self._loop.call_soon(self._forget, member)  # who waits for it is told so
        for told in self.on_departed:
            told(member, why, left)

    def _forget(self, member: Member) -> None:
        if member.id not in self.swim.table.entries:
            self._channel.endpoint.forget(member.id)

    def unknown_to(self, peer: PeerId) -> None:
        for told in self.on_unknown:
            told(peer)

    def distrusts(self, peer: PeerId) -> None:
        self._channel.endpoint.report(peer, "suspects others that answer; what it says of others no longer counts")

    def starts(self) -> None:
        self._is_changed = True
