"""Admission: how a newcomer gets into the view, the list of members that these decide together.

The newcomer sends Join to any member, its contact, which answers Welcome or Refused. The contact then introduces the
newcomer to the coordinator, and to the next coordinator if the first is lost before it has let the newcomer in. If the
view has a former life of the newcomer, the newcomer has to confirm the introduction (`introductions`). The next change
of the view lets the newcomer in. A newcomer that asks again with a life that the view already has is sent that view. A
newcomer that the run's invitation does not let in, now or at the next view, or that still waits when the run is over,
is told so (Uninvited) and gives up. A peer that was removed for holding up the others, or for the second time within an
hour, is told Later and asks again then. Only the peer that removed it knows of this delay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..addresses import NOWHERE
from ..channel import Channel, Envelope
from ..link.link import PeerLost
from ..testpoints import sometimes, witness
from ..transport import PeerId
from ..wire.frames import in_words
from .attached import Standing
from .backoff import LONGEST_S
from .departure import is_over
from .errors import Expelled, JoinRefused
from .introductions import Introductions
from .messages import Anew, AskAnew, Install, Introduce, Join, Later, Refused, Restarted, Uninvited, Welcome
from .roster import Roster
from .terms import Terms
from .view import NAME_LETTERS_MAX, Decree

_NEWCOMERS_MAX = 1024
_NO_REASON = "it is not let in, and was not told why"
_OVER = "the run is over: its members are done"


@dataclass(frozen=True, slots=True)
class Overruled:
    """Event for a simulation's checkers: the others have gone on without this peer to the view of `generation`, which
    has these members and learners."""

    generation: int
    everybody: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class Asks:
    """Event for a simulation's checkers: this peer asks the member `contact` to be let in, or whether it would be."""

    contact: PeerId


class _Host(NamedTuple):
    """The contact that this peer has asked to introduce it, in which of its lives, and the contact's address, once the
    contact has told it."""

    id: PeerId
    life: int
    address: str = NOWHERE


class Admission:
    """One peer's side of getting into the view, and of helping others to: as newcomer it asks, as contact it answers
    and introduces, as coordinator it collects the newcomers for the next view. `standing` returns the versions of its
    state."""

    def __init__(
        self,
        channel: Channel,
        roster: Roster,
        terms: Terms,
        *,
        standing: Callable[[], Standing],
        latest: Callable[[], Decree | None],
        votes: Callable[[], bool],
    ) -> None:
        """`latest` returns the decree of the present view; `votes` returns whether this peer still votes on behalf of a
        former life."""
        self._channel, self._roster, self._standing = channel, roster, standing
        self._latest, self._votes, self._terms = latest, votes, terms
        self._host: _Host | None = None
        self._held_off: dict[PeerId, Later] = {}
        """The peers that this peer does not let in yet. In these records `seconds` is a time on the loop's clock."""
        self._later: tuple[float, PeerId] = (0.0, "")
        """The time on the loop's clock before which the others do not let this peer in, and the peer that told so."""
        self._overruled: Decree | None = None
        """The decree of a view without this peer. It is told to the contacts that this peer asks, which may not have
        heard of it."""
        self._introductions = Introductions(channel, roster)
        self._introduces: set[PeerId] = set()
        """The newcomers that have asked this peer to introduce them."""
        channel.on(Join, self._on_join)
        channel.on(Introduce, self._on_introduce)
        channel.on(AskAnew, self._on_ask_anew)
        channel.on(Later, self._on_later)
        channel.on(Uninvited, self._on_uninvited)
        channel.on(Anew, self._on_anew)
        channel.on(Restarted, self._on_restarted)
        roster.on_news.append(self._come_out)
        roster.on_change.append(self._end)

    async def ask(self, contact: PeerId, *, ready: bool) -> Welcome:
        """Ask the member `contact` to introduce this peer, so that the next view lets it in; without `ready`, ask only
        whether it would. Returns the contact's view and version. Raises JoinRefused when all members would refuse, and
        PeerLost when another member may be asked: the contact is lost, is in no view itself, or has not answered within
        two patiences."""
        me, has, terms = self._roster.me, self._standing(), self._terms
        if not ready:
            self._roster.failed = None  # a new attempt: the failure of the last one is over
        self._host = _Host(contact, me.life) if ready else None
        self._roster.notify()
        if self._overruled is not None and contact in self._overruled.view.everybody:
            self._channel.post(contact, Install(self._overruled))
        witness(Asks(contact))
        if ready:
            self._later = (0.0, "")  # reset before asking: a Later may arrive before this task sees the answer
        answer = await self._channel.ask(
            contact,
            lambda ask: Join(ask, terms.run, me, terms.layout, terms.model, has.result, ready, self._votes()),
            answers=(Welcome, Refused),
            within_s=2 * self._channel.endpoint.patience_s,
        )
        if isinstance(answer.message, Refused):
            why = in_words(answer.message.why).strip() or _NO_REASON
            raise JoinRefused(why) if answer.message.final else PeerLost(contact, why)
        welcome: Welcome = answer.message
        if self._host is not None and (host := welcome.view.anybody(contact)) is not None:
            self._host = self._host._replace(address=host.address)
        if not self._roster.view.ids:
            self._roster.meet(welcome.view)
        if self._later[1] not in welcome.view.ids:
            self._later = (0.0, "")  # only the sender of Later knew, and it is no member any more
        return welcome

    def overrule(self, decree: Decree) -> None:
        """Note that the others have gone on to the view of `decree` without this peer: from now on it asks the members
        of that view to be let in, and tells its contacts of the decree."""
        self._overruled = decree
        witness(Overruled(decree.view.generation, decree.view.everybody))
        self._roster.meet(decree.view)

    @property
    def asks(self) -> bool:
        """Whether this peer, in its present life, has last asked a contact to be let in, not only whether it would."""
        return self._host is not None and self._host.life == self._roster.me.life

    @property
    def held_off_s(self) -> float:
        """Seconds that this peer still has to wait before the others let it in, as its contact or the coordinator has
        told (Later); 0.0: it need not wait, as far as it knows."""
        return max(0.0, self._later[0] - asyncio.get_running_loop().time())

    def hold_off(self, peer: PeerId, seconds: float, why: str) -> None:
        """Do not let `peer` in before `seconds` are over (3600 at most), and tell it so, and `why`, whenever it is
        introduced. A later time that is already set stays. Only this peer knows the time: another coordinator may let
        `peer` in sooner."""
        now = asyncio.get_running_loop().time()
        self._held_off = {held: later for held, later in self._held_off.items() if later.seconds > now}
        until_s = now + min(seconds, LONGEST_S)
        if peer not in self._held_off or self._held_off[peer].seconds < until_s:
            self._held_off[peer] = Later(until_s, in_words(why))

    def _on_join(self, envelope: Envelope) -> None:
        join, newcomer, roster = envelope.message, envelope.sender, self._roster
        refusal = self._refusal(join, newcomer)
        if refusal is not None or not roster.view.ids:
            why = refusal or "this peer is in no view itself now; ask another, or later"
            self._channel.post(newcomer, Refused(join.ask, in_words(why), refusal is not None))
            return
        there = roster.view.holds(join.member)
        if not there:
            roster.joins_anew(join.member, votes=join.votes, heard=True)
        self._introductions.dial(join.member, newcomer)
        self._channel.post(newcomer, Welcome(join.ask, roster.view, self._standing().result))
        if there and (latest := self._latest()) is not None:
            self._channel.post(newcomer, Install(latest))
        elif join.ready:
            self._introduces.add(newcomer)
            guest = roster.invites.came_by(newcomer)
            self._introduce(Introduce(join.member, join.version, roster.view.generation, join.votes, guest), newcomer)

    def _refusal(self, join: Join, sender: PeerId) -> str | None:
        view, terms = self._roster.view, self._terms
        if join.run != terms.run:
            return f"this is run {terms.run!r}, not {join.run!r}"
        if join.member.id != sender:
            return "it asks in another peer's name"
        if len(join.member.name) > NAME_LETTERS_MAX:
            return f"its name has {len(join.member.name):,} letters, at most {NAME_LETTERS_MAX} are taken"
        if join.layout != terms.layout:
            return terms.other_model(join.model)
        if why := self._roster.invites.why_not(sender, self._roster.invites.came_by(sender)):
            return why
        if sender not in view.everybody and not replace(view, learners=()).has_room(join.member):
            return f"the run is full: {len(view.ids)} members"
        if join.ready and is_over(self._roster, terms):
            return _OVER
        return None

    def _on_introduce(self, envelope: Envelope) -> None:
        came, roster = envelope.message, self._roster
        if envelope.sender not in roster.view.everybody or roster.id == came.member.id or is_over(roster, self._terms):
            return
        there, host = roster.view.anybody(came.member.id), envelope.sender
        if there is not None and (there.life == came.member.life or came.generation < there.since):
            return  # this introduction has already let it in, or is of an earlier life than the one in the view
        learner = host not in roster.view.ids and host != came.member.id
        if learner and (there is not None or roster.invites.why_not(came.member.id, came.guest)):
            return  # an invite is enough to become a learner, so a learner's word ends no life and rejects no peer
        if there is not None and host != came.member.id:
            self._introductions.verify(came.member, host)
            return
        if host == came.member.id:
            self._introductions.settle(host)
        known = roster.newcomers.get(came.member.id)
        if known is None or known.member.life != came.member.life:
            roster.joins_anew(came.member, votes=came.votes, heard=host == came.member.id)
        self._introduce(came, host)

    def _on_ask_anew(self, envelope: Envelope) -> None:
        if self.asks and not self._roster.view.ids:
            has, generation = self._standing().result, envelope.message.generation
            self._channel.post(envelope.sender, Introduce(self._roster.me, has, generation, self._votes()))

    def _on_anew(self, envelope: Envelope) -> None:
        roster, sender = self._roster, envelope.sender
        roster.gave_up(sender)
        asked = self._host is not None and sender == self._host.id
        if asked and not roster.view.ids and roster.failed is None:
            roster.fail(Expelled(sender))  # the contact has our introduction, and no view any more to pass it on in

    def _on_restarted(self, envelope: Envelope) -> None:
        there = self._roster.view.anybody(envelope.sender)
        if there is not None and there.life == envelope.message.life:
            self._roster.joins_anew(there, votes=False, heard=True)

    def _on_later(self, envelope: Envelope) -> None:
        later, now = envelope.message, asyncio.get_running_loop().time()
        asked = self._host is not None and not self._roster.view.ids and envelope.sender in self._roster.addresses
        if not asked or not 0 < later.seconds <= LONGEST_S:
            return
        if not self.held_off_s:
            for told in self._roster.on_waiting:
                told(f"the others let it in again in {later.seconds:.0f} s, not sooner: {in_words(later.why)}")
        self._later = now + later.seconds, envelope.sender
        self._roster.notify()

    def _come_out(self) -> None:
        """If no member can be dialled before the run has started, it never will: no newcomer reaches them. So this peer
        joins again through its contact, where the run may be founded anew."""
        roster, view, host = self._roster, self._roster.view, self._host
        waits = roster.id in view.ids and not view.started and roster.failed is None
        if waits and host is not None and not any(member.dialable for member in view.members):
            sometimes("no newcomer could reach the members")
            roster.addresses[host.id] = host.address  # of a past member it was forgotten
            roster.fail(Expelled(host.id, "no peer is left that newcomers could reach"))

    def turn_away(self) -> None:
        """Called after a change of the view: forget the claims that members join anew, and turn away each newcomer
        whose invitation does not let it in any more: it is forgotten, and told so (Uninvited)."""
        self._introductions.begin()
        for newcomer, came in list(self._roster.newcomers.items()):
            if why := self._roster.invites.why_not(newcomer, came.guest):
                self._refuse(newcomer, why)
        self._introduces.intersection_update(self._roster.newcomers)

    def _refuse(self, newcomer: PeerId, why: str) -> None:
        del self._roster.newcomers[newcomer]
        self._channel.post(newcomer, Uninvited(in_words(why)))

    def _end(self) -> None:
        """When the run is over: tell each newcomer that this peer was to introduce. It goes at once, so a word of any
        other member would wait for its answer in vain."""
        if self._introduces and is_over(self._roster, self._terms):
            for newcomer in sorted(self._introduces.intersection(self._roster.newcomers)):
                self._refuse(newcomer, _OVER)
            self._introduces.clear()

    def _on_uninvited(self, envelope: Envelope) -> None:
        roster, why = self._roster, in_words(envelope.message.why).strip()
        if self.asks and not roster.view.ids and roster.failed is None and envelope.sender in roster.addresses:
            roster.fail(JoinRefused(why or _NO_REASON))

    def _introduce(self, came: Introduce, teller: PeerId) -> None:
        newcomer, roster, now = came.member.id, self._roster, asyncio.get_running_loop().time()
        later, came = self._held_off.get(newcomer), replace(came, guest=roster.invites.came_by(newcomer, came.guest))
        roster.invites.knows(newcomer, came.guest)
        if why := roster.invites.why_not(newcomer, came.guest):
            self._introductions.dial(came.member, teller)
            self._channel.post(newcomer, Uninvited(in_words(why)))
        elif later is not None and later.seconds > now:
            self._introductions.dial(came.member, teller)
            self._channel.post(newcomer, Later(later.seconds - now, later.why))
        elif len(roster.newcomers) < _NEWCOMERS_MAX:
            roster.newcomers[newcomer] = came
            self._introductions.dial(came.member, teller)
            roster.news()
