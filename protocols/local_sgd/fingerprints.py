"""Fingerprints: a peer that has to fetch the state of a round, and knows only the round's number, asks the members for
the fingerprint of the state that most of them have.

It knows only the number after a round in which its own result differed from the others': the verdict names the
fingerprint of the sum, and not that of the state which follows from it.
Cost: two small messages for each member, after such a round alone.
On failure: a member that has not committed the round yet does not answer. The caller asks again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from ..channel import Channel, Envelope
from ..members.membership import Membership
from ..members.view import Version
from ..transport import PeerId
from ..wire.frames import message
from .rounds import LOCAL_SGD


@message(LOCAL_SGD)
@dataclass(frozen=True, slots=True)
class AskFingerprint:
    """Asks a member for the fingerprint of its state after `round`."""

    round: int


@message(LOCAL_SGD)
@dataclass(frozen=True, slots=True)
class HasState:
    """The answer to AskFingerprint of a member whose state is that after `round`: its `fingerprint`."""

    round: int
    fingerprint: int


class Fingerprints:
    """One peer's side of the exchange: it tells the fingerprint of its own state, and asks for that of most members.
    `version` returns the version of its state."""

    def __init__(self, channel: Channel, membership: Membership, version: Callable[[], Version]) -> None:
        self._channel, self._membership, self._version = channel, membership, version
        self._round = 0
        self._told: dict[PeerId, int] = {}
        """By member, the fingerprint that it has told of its state after `_round`."""
        channel.on(AskFingerprint, self._on_ask)
        channel.on(HasState, self._on_state)

    async def of_most(self, round: int) -> int | None:
        """The fingerprint of the state after `round` that more than half of the view have, this peer's own not counted;
        None: too few have told it within a heartbeat interval, and the caller may call this again: later answers count
        then. Raises as `Membership.until`."""
        membership, endpoint = self._membership, self._channel.endpoint
        if round != self._round:
            self._round, self._told = round, {}
        for peer in membership.view.ids:
            if peer != endpoint.id and peer not in self._told:
                self._channel.post(peer, AskFingerprint(round))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(endpoint.interval_s):
                await membership.until(lambda: self._agreed() is not None)
        return self._agreed()

    def _agreed(self) -> int | None:
        view = self._membership.view
        votes = Counter(mark for peer, mark in self._told.items() if peer in view.ids)
        return next((mark for mark, count in votes.items() if count >= view.majority()), None)

    def _on_ask(self, envelope: Envelope) -> None:
        version = self._version()
        if envelope.sender in self._membership.view.ids and version.number == envelope.message.round:
            self._channel.post(envelope.sender, HasState(version.number, version.fingerprint))

    def _on_state(self, envelope: Envelope) -> None:
        if envelope.message.round == self._round and envelope.sender in self._membership.view.ids:
            self._told[envelope.sender] = envelope.message.fingerprint
            self._membership.notify()
