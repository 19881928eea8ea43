"""Admission: how a newcomer asks a member of the run, its contact, to let it in (Knock), and how the contact
decides."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace

from ..channel import Channel, Envelope
from ..link.link import PeerLost
from ..members.backoff import Once
from ..members.errors import JoinRefused
from ..members.next_view import with_data_shards
from ..members.terms import Terms
from ..members.view import NAME_LETTERS_MAX, Member
from ..transport import PeerId
from ..wire.frames import in_words
from .driver import Driver
from .ending import Ending
from .invite_uses import InvitedKeys
from .messages import TABLE_MAX, Knock, TurnedAway, Welcome, check_words
from .words import INCARNATION_MAX, check_member, mark

_AGAIN = 8
"""The fewest periods between two knocks of a peer that is in the run already."""


class Admission:
    """One peer's side of letting others into the run, and of getting in itself: as contact, it answers knocks; as
    newcomer, it knocks. `inside` returns whether this peer is in the run itself."""

    def __init__(
        self,
        channel: Channel,
        driver: Driver,
        terms: Terms,
        keys: InvitedKeys,
        ending: Ending,
        inside: Callable[[], bool],
    ) -> None:
        self._channel, self._driver, self._terms = channel, driver, terms
        self._keys, self._ending, self._inside = keys, ending, inside
        self._again: Once[PeerId] = Once(_AGAIN * channel.endpoint.interval_s)
        self._knocking: asyncio.Task[None] | None = None
        channel.on(Knock, self._on_knock)

    def knock_again(self, peer: PeerId) -> None:
        """Ask `peer`, which does not know this member, to let it in again; in the background, and whichever peer it is
        at most once in eight periods, because it may hear of this member from others. Does nothing if this peer is in
        no run or leaves. If `peer` refuses or does not answer, nothing follows."""
        if self._inside() and not self._ending.leaves and self._again.due(""):
            self._knocking = asyncio.create_task(self._knock_again(peer), name="knock")

    async def _knock_again(self, peer: PeerId) -> None:
        with contextlib.suppress(PeerLost, JoinRefused):  # it is no member any more
            self.enter(await self.knock(peer), peer)

    def close(self) -> None:
        """Stop a knock that `knock_again` has begun."""
        if self._knocking is not None:
            self._knocking.cancel()

    async def knock(self, contact: PeerId) -> Welcome:
        """Ask `contact` to let this peer in, and return its Welcome. Raises JoinRefused when every member would refuse
        this peer; PeerLost when the contact, or another member, may be asked again, also without an answer within twice
        the endpoint's patience; PeerMisbehaved for a Welcome with too many or malformed words."""
        terms, swim, patience_s = self._terms, self._driver.swim, self._channel.endpoint.patience_s
        answer = await self._channel.ask(
            contact,
            lambda ask: Knock(ask, terms.run, swim.table.me, terms.layout, terms.model),
            answers=(Welcome, TurnedAway),
            within_s=2 * patience_s,
        )
        if isinstance(answer.message, TurnedAway):
            why = in_words(answer.message.why).strip() or "it is not let in, and was not told why"
            raise JoinRefused(why) if answer.message.final else PeerLost(contact, why)
        welcome: Welcome = answer.message
        check_words(welcome.words, TABLE_MAX)
        if welcome.incarnation > INCARNATION_MAX:
            raise PeerLost(contact, f"it lets this peer in with incarnation {welcome.incarnation}")
        return welcome

    def enter(self, welcome: Welcome, contact: PeerId) -> None:
        """Enter the run: take over the data shard, the members, the start and the invitation that `contact` has told in
        its `welcome`. Raises PeerMisbehaved for an invitation that no honest peer can tell."""
        swim, me = self._driver.swim, self._driver.swim.table.me
        own = replace(me.attributes, data_shard=welcome.data_shard)
        swim.table.take(replace(me, attributes=own), swim.table.incarnation)
        self._keys.enter(welcome)
        self._driver.do(lambda: swim.enter(welcome.incarnation, welcome.words, contact, started=welcome.started))

    def _on_knock(self, envelope: Envelope) -> None:
        knock: Knock = envelope.message
        newcomer = knock.member
        check_member(newcomer)
        why, final = self._refusal(knock, envelope.sender)
        if why:
            self._channel.post(envelope.sender, TurnedAway(knock.ask, in_words(why), final))
            return
        swim = self._driver.swim
        own = replace(newcomer.attributes, data_shard=self._data_shard(newcomer))
        newcomer = replace(newcomer, attributes=own)
        words = (swim.table.own_word,) if swim.overlay is not None else swim.table.words()[:TABLE_MAX]
        incarnation = 0

        def let_in() -> None:
            nonlocal incarnation
            incarnation = swim.let_in(newcomer)

        self._driver.do(let_in)
        self._keys.let_in(newcomer.id)
        started, shard = swim.gathering.started, newcomer.attributes.data_shard
        welcome = Welcome(knock.ask, incarnation, shard, started, words, self._keys.told())
        self._channel.post(newcomer.id, welcome)

    def _refusal(self, knock: Knock, sender: PeerId) -> tuple[str, bool]:
        """Why the newcomer is not let in, "" if it is; and whether every other member would refuse it too."""
        terms, table = self._terms, self._driver.swim.table
        if knock.run != terms.run:
            return f"this is run {terms.run!r}, not {knock.run!r}", True
        if knock.member.id != sender:
            return "it asks in another peer's name", True
        if len(knock.member.name) > NAME_LETTERS_MAX:
            return f"its name has {len(knock.member.name):,} letters, at most {NAME_LETTERS_MAX} are taken", True
        if knock.layout != terms.layout:
            return terms.other_model(knock.model), True
        if why := self._keys.why_not(sender):
            return why, True
        if not self._inside() or self._ending.leaves:
            return "this peer is in no run itself now; ask another, or later", False
        if self._ending.over(table.me.id):
            return "the run is over: its members are done", True
        if self._driver.swim.overlay is None and sender not in table.entries and len(table) >= table.room:
            return f"the run is full: {len(table) + 1} members; for more, found it with more --peers", True
        return "", False

    def _data_shard(self, newcomer: Member) -> int:
        """The shard of the data that the newcomer asks for, or another one if that is taken."""
        swim, founders = self._driver.swim, self._terms.founders
        known = [entry.member for entry in swim.table if entry.member.id != newcomer.id]
        if swim.overlay is None:
            return with_data_shards([newcomer], [swim.table.me, *known], founders, 1)[0].attributes.data_shard
        asked = newcomer.attributes.data_shard
        if asked < founders and not (swim.gathering.started and asked == 0):
            return asked
        return mark(newcomer.id, 0) % founders  # nobody knows which are free
