"""The verdict on a round: a result is committed when more than half of the view hold it; the sum was bad when more than
half say so.

Each member sends Have to the coordinator, with the fingerprint of its result. When more than half agree, the
coordinator sends Commit to all.
Cost: one round trip to the coordinator, two small messages for each member.
On failure: the view changes (`members.view_change`), and the next view goes on from a result that a majority held. When
results differ so that no majority is possible, the coordinator changes the view too: the change makes one of the
results the round's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..channel import Channel, Envelope
from ..link_quality.bandwidths import Bandwidths, Levels
from ..members.membership import Membership
from ..testpoints import witness
from ..transfer.chunks import AttemptId
from ..transport import PeerId
from ..wire.frames import message
from .rounds import LOCAL_SGD

BAD = 2**63 - 1
"""The fingerprint that a member votes for when its sum was bad and it has no result."""
Ballot = tuple[int, int, int]
"""The subject of a vote: (generation, round, try). Try 0 is the round's sum; try 1 is the second sum, which is made
when the first was bad."""


@message(LOCAL_SGD)
@dataclass(frozen=True, slots=True)
class Have:
    """A member's vote, sent to the coordinator: the sender holds the result of this round with this fingerprint; BAD:
    it found the sum bad. `levels`: bandwidths of its connections to the others (`bandwidths`), where the sizes of parts
    depend on them; else empty. `again`: 1 for the second sum, else 0."""

    generation: int
    round: int
    fingerprint: int
    levels: Levels = ()
    again: int = 0


@message(LOCAL_SGD)
@dataclass(frozen=True, slots=True)
class Commit:
    """Sent by the coordinator to all members: more than half of the view hold the result of this round with this
    fingerprint: commit it; BAD: they found the sum bad. `again`: as in `Have`."""

    generation: int
    round: int
    fingerprint: int
    again: int = 0


@dataclass(frozen=True, slots=True)
class Heeded:
    """Event for a simulation's checkers: a peer has accepted another's vote or verdict on a round. `generation`: the
    number of the view in which the other one gave it."""

    generation: int


class Verdicts:
    """Has the members vote on the result of a round, and returns what more than half of the view say. It sends this
    peer's vote and, if this peer is the coordinator, counts all. `round` returns the last round that this peer has
    committed. `bandwidths`: None where the sizes of parts do not depend on bandwidths."""

    def __init__(
        self, channel: Channel, membership: Membership, round: Callable[[], int], bandwidths: Bandwidths | None
    ) -> None:
        self._channel, self._membership, self._round, self._bandwidths = channel, membership, round, bandwidths
        self._votes: dict[Ballot, dict[PeerId, int]] = {}
        self._commits: dict[Ballot, int] = {}
        channel.on(Have, self._on_have)
        channel.on(Commit, self._on_commit)

    def on(self, attempt: AttemptId) -> int | None:
        """The fingerprint that the members have committed in this attempt, or `BAD` (2**63 - 1) if they found the sum
        bad. After a verdict on a second sum of the attempt, that verdict. None: there is none yet."""
        return self._commits.get((*attempt, 1), self._commits.get((*attempt, 0)))

    async def reach(self, attempt: AttemptId, fingerprint: int, again: int = 0) -> None:
        """Vote for the result with this fingerprint (or BAD), and wait for the coordinator's verdict, which `on` then
        returns. The wait has no limit, and a changed view does not end it: the caller cancels it then
        (`Attempts.while_hopeful`). `again`: 1 for the second sum. Raises what `Membership.until` raises."""
        coordinator, have = self._membership.coordinator, Have(*attempt, fingerprint, again=again)
        if self._bandwidths is not None:
            have = replace(have, levels=self._bandwidths.levels())
        if coordinator == self._channel.endpoint.id:
            self._count(coordinator, have)
        elif coordinator is not None:
            self._channel.post(coordinator, have)
        await self._membership.until(lambda: (*attempt, again) in self._commits)

    def _on_have(self, envelope: Envelope) -> None:
        if self._membership.current(envelope, envelope.message.generation):
            witness(Heeded(envelope.message.generation))
            self._count(envelope.sender, envelope.message)

    def _count(self, voter: PeerId, have: Have) -> None:
        ballot, view = (have.generation, have.round, have.again), self._membership.view
        if self._bandwidths is not None:
            self._bandwidths.told(voter, have.levels)
        near = 0 < have.round - self._round() <= 2  # a faster member may be a round ahead of us, not more
        if self._membership.coordinator != self._channel.endpoint.id or ballot in self._commits or not near:
            return
        votes = self._votes.setdefault(ballot, {})
        votes[voter] = have.fingerprint
        if sum(vote == have.fingerprint for vote in votes.values()) >= view.majority():
            self._announce(Commit(have.generation, have.round, have.fingerprint, have.again))
        elif len(votes) == len(view.ids):
            self._membership.renew()

    def _announce(self, commit: Commit) -> None:
        for peer in self._membership.view.ids:
            if peer != self._channel.endpoint.id:
                self._channel.post(peer, commit)
        self._note(commit)
        if self._bandwidths is not None:
            self._bandwidths.consider()

    def _on_commit(self, envelope: Envelope) -> None:
        if self._membership.current(envelope, envelope.message.generation) and self._may_lead(envelope.sender):
            witness(Heeded(envelope.message.generation))
            self._note(envelope.message)

    def _may_lead(self, peer: PeerId) -> bool:
        """Whether `peer` may rightly act as coordinator: this peer knows of no more senior member that stays."""
        seniority, coordinator = self._membership.view.by_seniority, self._membership.coordinator
        return coordinator is None or seniority.index(peer) <= seniority.index(coordinator)

    def _note(self, commit: Commit) -> None:
        ballot = (commit.generation, commit.round, commit.again)
        self._commits = {known: verdict for known, verdict in self._commits.items() if known[1] >= ballot[1]}
        self._commits[ballot] = commit.fingerprint
        self._votes = {known: votes for known, votes in self._votes.items() if known > ballot}
        self._membership.notify()
