"""A crowd: many SWIM memberships on a lean network, without endpoints, models and training. Their state machines are
those of real peers (`protocols.swim.swim`)."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial

from ...protocols.members.view import Attributes, Member
from ...protocols.swim.member_table import MemberTable
from ...protocols.swim.messages import SWIM
from ...protocols.swim.swim import Swim
from ...protocols.swim.timing import Timing
from ...protocols.testpoints import WITNESS
from ...protocols.transport import PeerId
from .lean_network import LeanNetwork

_AGAIN_S = 1.0


class Bystander:
    """One process of a peer of a crowd: `index` is the number of the peer, `life` that of the process, from 1 on. It
    implements the effects of its state machine (`protocols.swim.effects`)."""

    def __init__(self, crowd: Crowd, index: int, life: int = 1) -> None:
        self.index, self.here, self._crowd = index, True, crowd
        member = Member(f"{index:064x}", str(index), f"sim://{index}", Attributes(data_shard=index), 0, "", life)
        chance = random.Random(f"{crowd.seed} {index} {life}")
        self.swim = Swim(
            MemberTable(member, crowd.room), crowd.timing, self, chance, founders=crowd.founders, links=crowd.links
        )
        self.let_in: set[PeerId] = set()
        """Keys that members have vouched for: nothing else arrives."""
        self.departures: list[tuple[str, str, bool]] = []
        """Name, reason and whether it was of its own will, of each member that went."""
        self.distrusted: list[PeerId] = []
        self.due_s, self.still_until_s = math.inf, 0.0

    @property
    def id(self) -> PeerId:
        """Its public key, which its later processes share."""
        return self.swim.table.me.id

    def now(self) -> float:
        """The virtual time, in seconds."""
        return self._crowd.network.now_s

    def send(self, to: PeerId, message: object) -> None:
        """Send a message on the lean network, which may lose it."""
        self._crowd.network.carry(self.id, to, message, SWIM)

    def reach(self, member: Member) -> None:
        """Accept messages of the member from now on."""
        self.let_in.add(member.id)

    def lapse(self, peer: PeerId) -> None:
        """Drop messages of `peer` from now on."""
        self.let_in.discard(peer)

    def joined(self, member: Member) -> None:
        """Do nothing: in a crowd nobody waits to hear of a new member."""
        pass

    def departed(self, member: Member, why: str, *, left: bool) -> None:
        """Note in `departures` that `member` is no member any more, with the reason, and whether it `left` of its own
        will."""
        self.departures.append((member.name, why, left))

    def unknown_to(self, peer: PeerId) -> None:
        """Have `peer`, which does not know this member, let it in (`Crowd.let_in`), without a message: at the present
        virtual time, after the code that runs now. While `peer` has no room, it is tried again every second."""
        self._crowd.network.at(self.now(), self._crowd.let_in, self, self._crowd.by_id[peer])

    def distrusts(self, peer: PeerId) -> None:
        """Note in `distrusted` that this process distrusts `peer`."""
        self.distrusted.append(peer)

    def starts(self) -> None:
        """Do nothing: in a crowd nobody waits for the start of the run."""
        pass


class Crowd:
    """A crowd of `count` peers, whose processes are in `peers`. `loss`: probability that a loose message is lost.
    `room`: the most members that each peer knows; `links`: how many links each peer wishes for, None: each knows all.
    `founders`: how many peers gather before the run starts. `timing`: of SWIM. No peer knows another, or probes, before
    a call of `acquaint` or `join`."""

    def __init__(
        self,
        count: int,
        *,
        timing: Timing,
        seed: int = 0,
        loss: float = 0.0,
        room: int = 1 << 20,
        founders: int = 1,
        links: int | None = None,
    ) -> None:
        self.timing, self.seed, self.room, self.founders, self.links = timing, seed, room, founders, links
        self.network = LeanNetwork(self._arrive, loss=loss, seed=seed)
        self.events: list[tuple[float, int, object]] = []
        """The events of all peers: the time, the number of the peer, the event."""
        self.kept: type | tuple[type, ...] = object
        """The classes of events that are kept in `events`."""
        self.peers = [Bystander(self, index) for index in range(count)]
        self.by_id = {peer.id: peer for peer in self.peers}
        self._running = 0

    def acquaint(self) -> None:
        """Let all peers know each other, and begin to probe; called before `run`."""
        for peer in self.peers:
            others = [other.swim.table.own_word for other in self.peers if other is not peer]
            self.inside(peer, partial(peer.swim.enter, 0, others, "", started=True))
            self.begin(peer)

    def begin(self, peer: Bystander) -> None:
        """Have `peer` begin to probe."""
        self.inside(peer, peer.swim.begin)

    def run(self, until_s: float) -> None:
        """Run all peers until the virtual time `until_s`."""
        self.network.run(until_s)

    # Coming and going

    def join(self, index: int, contact: int) -> None:
        """Let the peer number `index` join through the peer number `contact`, and begin to probe."""
        self.let_in(self.peers[index], self.peers[contact])
        self.begin(self.peers[index])

    def let_in(self, newcomer: Bystander, contact: Bystander) -> None:
        """Have `contact` let in `newcomer`, without a message. Where each peer is to know all, and `contact` has no
        room for one more member, it is tried again every second."""
        if len(contact.swim.table) >= contact.swim.table.room and self.links is None:
            self.network.at(self.network.now_s + _AGAIN_S, self.let_in, newcomer, contact)
            return
        words = contact.swim.table.words() if self.links is None else (contact.swim.table.own_word,)
        incarnation = 0

        def admit() -> None:
            nonlocal incarnation
            incarnation = contact.swim.let_in(newcomer.swim.table.me)

        self.inside(contact, admit)
        started = contact.swim.gathering.started
        self.inside(newcomer, lambda: newcomer.swim.enter(incarnation, words, contact.id, started=started))

    def restart(self, index: int, contact: int) -> Bystander:
        """Restart the peer number `index` under its key, and let it join again through the peer number `contact`.
        Returns its new process."""
        before = self.peers[index]
        before.here = False
        peer = self.peers[index] = Bystander(self, index, before.swim.table.me.life + 1)
        self.by_id[peer.id] = peer
        self.join(index, contact)
        return peer

    def end(self, index: int) -> None:
        """End the process of the peer number `index`, without any message to others."""
        self.peers[index].here = False

    def leave(self, index: int) -> None:
        """Have the peer number `index` announce that it leaves, and end."""
        self.inside(self.peers[index], self.peers[index].swim.leave)
        self.peers[index].here = False

    def pause(self, index: int, for_s: float) -> None:
        """Stop the process of the peer number `index` for `for_s` virtual seconds. Messages that arrive meanwhile
        wait."""
        self.peers[index].still_until_s = self.network.now_s + for_s

    # Running the peers' code

    def inside(self, peer: Bystander, do: Callable[[], object]) -> None:
        """Run `do`, code of `peer`. Its events are recorded, and the next `tick` of its state machine is scheduled."""
        self._running = peer.index
        token = WITNESS.set(self)
        try:
            do()
        finally:
            WITNESS.reset(token)
        wake_s = peer.swim.wake_s
        if wake_s < peer.due_s:
            peer.due_s = wake_s
            self.network.at(max(self.network.now_s, wake_s), self._tick, peer, wake_s)

    def saw(self, event: object) -> None:
        """Append an event of the peer whose code runs to `events`, if its class is in `kept`."""
        if isinstance(event, self.kept):
            self.events.append((self.network.now_s, self._running, event))

    def sometimes(self, what: str) -> None:
        """Do nothing: rare places are not counted."""
        pass

    def buggify(self, site: str) -> bool:
        """False: no site is disturbed."""
        return False

    def _arrive(self, sender: PeerId, to: PeerId, message: object) -> None:
        receiver = self.by_id.get(to)
        if receiver is None or not receiver.here or self._stands_still(receiver, self._arrive, sender, to, message):
            return
        if sender in receiver.let_in:
            self.inside(receiver, lambda: receiver.swim.heard(sender, message))

    def _tick(self, peer: Bystander, due_s: float) -> None:
        if peer.due_s == due_s and not self._stands_still(peer, self._tick, peer, due_s):
            peer.due_s = math.inf
            if peer.here:
                self.inside(peer, peer.swim.tick)

    def _stands_still(self, peer: Bystander, do: Callable[..., None], *what: object) -> bool:
        """Whether `peer` is paused; then `do` is postponed until it continues."""
        if self.network.now_s < peer.still_until_s:
            self.network.at(peer.still_until_s, do, *what)
            return True
        return False
