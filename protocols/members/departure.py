"""Departure: how a member leaves of its own will, and how all members leave when they have finished."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from ..channel import Channel, Envelope
from ..transport import PeerId
from ..wire.frames import in_words
from .errors import Expelled, MembershipError
from .messages import Finished, Leave
from .roster import Roster
from .terms import Terms
from .view import dialable_of


def is_over(roster: Roster, terms: Terms) -> bool:
    """Whether the run is over as far as this peer knows, so that it lets no peer in any more: this peer has finished,
    and, unless `Terms.ends_together`, so have all members that stay."""
    return roster.id in roster.finished and (terms.ends_together or roster.finished.issuperset(roster.staying))


class Departure:
    """Tells the others that one peer leaves or has finished, waits for them, and records the same of others in the
    roster."""

    def __init__(self, channel: Channel, roster: Roster) -> None:
        self._channel, self._roster = channel, roster
        self._let_go: asyncio.Future[None] | None = None
        roster.on_news.append(self._go_when_free)
        channel.on(Leave, self._on_leave)
        channel.on(Finished, self._on_finished)

    def leave(self, why: str) -> asyncio.Future[None]:
        """Tell the other peers of the view that this peer leaves, and why. The returned future is done when they have
        decided a view without this peer, when no member stays, or after twice the endpoint's patience; at once if this
        peer is no member. The members need this peer for that decision, so the caller must not close the endpoint
        before. A second call tells nothing, and its future is done at the same time."""
        loop, roster = asyncio.get_running_loop(), self._roster
        if self._let_go is None:
            self._let_go = loop.create_future()
            loop.call_later(2 * self._channel.endpoint.patience_s, self.go)
            roster.leaving[roster.id] = in_words(why)
            roster.tell(Leave(in_words(why)))
            roster.news()
        return asyncio.shield(self._let_go)  # a caller may give up waiting, and call again

    async def finish(self, leads: Callable[[], bool]) -> None:
        """Tell the others that this peer has finished, and wait until all members that stay, and that it can reach,
        have finished too: until then one of them may need to fetch the last result from this peer. A learner returns at
        once. If the others go on without this peer, or it fails, this returns too, without an error. `leads` returns
        whether this peer leads a change of the view; while it does, and answers come, this waits too."""
        roster = self._roster
        if roster.learns:
            return  # no member waits for a learner or needs it
        roster.finished.add(roster.id)
        roster.watch()
        roster.tell(Finished())
        with contextlib.suppress(MembershipError, Expelled):  # this peer has the result, whatever happens to the others
            await roster.until(
                lambda: (roster.waits or not leads()) and roster.finished.issuperset({*roster.staying} & {*roster.near})
            )

    def go(self) -> None:
        """Complete the future that `leave` has returned, if there is one: the others do not need this peer any more."""
        if self._let_go is not None and not self._let_go.done():
            self._let_go.set_result(None)

    def take_back(self, contact: PeerId | None) -> None:
        """Make this peer, which has left, join again: its waiters raise Expelled, with a member that can be dialled as
        the contact, or else `contact`. If there is neither, this peer only counts as not leaving any more."""
        roster = self._roster
        self._let_go = None
        roster.leaving.pop(roster.id, None)
        hosts = [*dialable_of(roster.addresses), contact]
        if hosts[0] is not None:
            roster.fail(Expelled(hosts[0]))

    def tell_again(self) -> None:
        """Tell the peers of a new view what this peer has told those of the last one: that it has finished, or that it
        leaves."""
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
