"""Departure: how a member leaves of its own will, and how all members leave when the run is over."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from ..channel import Channel, Envelope
from ..wire.frames import in_words
from .messages import Finished, Leave
from .roster import Expelled, MembershipError, Roster


class Departure:
    """One peer's part in departures."""

    def __init__(self, channel: Channel, roster: Roster) -> None:
        self._channel, self._roster = channel, roster
        self._let_go: asyncio.Future[None] | None = None
        roster.on_news.append(self._go_when_free)
        channel.on(Leave, self._on_leave)
        channel.on(Finished, self._on_finished)

    def leave(self, why: str) -> asyncio.Future[None]:
        """Tell the others that this peer leaves. They need this peer to decide the next view: await the returned
        future, which is done when they have decided, or after two patiences; then close the endpoint."""
        loop, roster = asyncio.get_running_loop(), self._roster
        if self._let_go is None:
            self._let_go = loop.create_future()
            loop.call_later(2 * self._channel.endpoint.patience_s, self.go)
            roster.leaving[roster.id] = in_words(why)
            roster.tell(Leave(in_words(why)))
            roster.news()
        return self._let_go

    async def finish(self, leads: Callable[[], bool]) -> None:
        """The run is over here. Return when it is over for all members, which may need this peer as donor until then.
        `leads`: whether this peer leads a change, by which members may be added."""
        roster = self._roster
        if roster.learns:
            return  # nobody waits for a learner or needs it
        roster.finished.add(roster.id)
        roster.watch()
        roster.tell(Finished())
        with contextlib.suppress(MembershipError, Expelled):  # this peer has the result, whatever happens to the others
            await roster.until(
                lambda: (roster.waits or not leads()) and roster.finished.issuperset({*roster.staying} & {*roster.near})
            )

    def go(self) -> None:
        """The others have let this peer go."""
        if self._let_go is not None and not self._let_go.done():
            self._let_go.set_result(None)

    def tell_again(self) -> None:
        """In a new view, repeat what this peer said in the last one: that it has finished, or leaves."""
        roster = self._roster
        if roster.id in roster.finished:
            roster.tell(Finished())
        if roster.id in roster.leaving:
            roster.tell(Leave(roster.leaving[roster.id]))

    def _on_leave(self, envelope: Envelope) -> None:
        roster, sender = self._roster, envelope.sender
        if sender in roster.view.ids and sender not in roster.leaving:
            roster.leaving[sender] = envelope.message.why
            roster.news()

    def _on_finished(self, envelope: Envelope) -> None:
        if envelope.sender in self._roster.view.ids:
            self._roster.finished.add(envelope.sender)
            self._roster.watch()
            self._roster.notify()

    def _go_when_free(self) -> None:
        roster = self._roster
        if roster.id not in roster.view.ids or not roster.staying:
            self.go()
