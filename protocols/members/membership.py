"""Membership: who takes part, agreed generation by generation.

Each generation has its view. `change` is how its members decide the next one, led by the coordinator, the most senior
member that stays; `admission` is how a newcomer gets in. This file puts them together, and adds how members go (Leave,
Finished), how the coordinator hears of a lost one (Suspicion), and what becomes of messages of other generations: a
sender who is no member any more is told so (Stale), joins again and catches up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from ..endpoint import Endpoint, Envelope
from ..transport import PeerId
from ..witness import sometimes
from .admission import Admission
from .admission import JoinRefused as JoinRefused
from .change import Change
from .losses import Loss as Loss
from .losses import loss_of
from .roster import Expelled as Expelled
from .roster import MembershipError as MembershipError
from .roster import NoQuorum as NoQuorum
from .roster import Roster
from .roster import Standing as Standing
from .view import Decree, Finished, Leave, Member, Stale, Suspicion, View, Welcome, in_words


class Membership:
    """One peer's part in it. `standing` tells the state; `installed` hears of every new view."""

    def __init__(
        self,
        endpoint: Endpoint,
        me: Member,
        *,
        run: str,
        layout: str,
        model: str,
        founders: int,
        quorum: int | None,
        standing: Callable[[], Standing],
        installed: Callable[[View, int, tuple[PeerId, ...]], None],
    ) -> None:
        """`run`: only peers of the same run meet. `layout`, `model`: the layout's digest and description.
        `founders`: how many gather before the first round. `quorum`: how many may go on, None for more than half.
        `installed` gets a view, the round that all go on from, and who has its result."""
        self.losses: list[Loss] = []
        self.stale_refused = 0
        self._endpoint, self._founders, self._standing, self._installed = endpoint, founders, standing, installed
        self._roster = Roster(endpoint, me)
        self._roster.on_news.append(self._go_when_free)
        self._admission = Admission(endpoint, self._roster, run=run, layout=layout, model=model, standing=standing)
        self._change = Change(
            endpoint,
            self._roster,
            founders=founders,
            quorum=quorum,
            standing=standing,
            stale=self._refuse,
            take=self._take,
        )
        self._stale_until: dict[PeerId, float] = {}
        self._let_go: asyncio.Future[None] | None = None
        endpoint.on(Suspicion, self._on_suspicion)
        endpoint.on(Leave, self._on_leave)
        endpoint.on(Stale, self._on_stale)
        endpoint.on(Finished, self._on_finished)

    @property
    def me(self) -> Member:
        """This peer, as the view has it."""
        return self._roster.me

    @property
    def view(self) -> View:
        return self._roster.view

    @property
    def failed(self) -> Exception | None:
        """Why this peer cannot go on as it is."""
        return self._roster.failed

    @property
    def finished(self) -> set[PeerId]:
        """Members that have committed the last round."""
        return self._roster.finished

    @property
    def coordinator(self) -> PeerId | None:
        return self._roster.coordinator

    @property
    def hosts(self) -> tuple[PeerId, ...]:
        """Other members, the last ones known when this peer is none itself: any of them may let it in."""
        return tuple(self._roster.addresses)

    @property
    def held_off_s(self) -> float:
        """For how long the others do not let this peer in yet, as they have said."""
        return self._admission.held_off_s

    @property
    def on_waiting(self) -> list[Callable[[str], None]]:
        """Told why, when too few members answer to go on, or when they do not let this peer in yet."""
        return self._roster.on_waiting

    @property
    def settled(self) -> bool:
        """Whether this peer is a member of a view that has started and is not being changed."""
        me, roster = self.me.id, self._roster
        return self.view.started and not self._change.promised and me in self.view.ids and roster.stays(me)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for `condition`, looked at again whenever something changes. Raises what makes waiting hopeless."""
        await self._roster.until(condition)

    def only_while(self, condition: Callable[[], bool]) -> contextlib.AbstractAsyncContextManager[None]:
        """End what is done inside as soon as `condition` does not hold. Raises what makes going on hopeless."""
        return self._roster.only_while(condition)

    def notify(self) -> None:
        """Something that `until` may wait for has changed."""
        self._roster.notify()

    def suspect(self, peer: PeerId, why: str) -> None:
        """A member cannot be worked with: have it removed. It may join again."""
        self._roster.suspect(peer, why)

    def hold_off(self, peer: PeerId, seconds: float, why: str) -> None:
        """Do not let `peer`, which is to be removed, in again before that. Only this peer knows: when another comes to
        coordinate, it may be let in sooner."""
        self._admission.hold_off(peer, seconds, why)

    def can_spare(self, peer: PeerId) -> bool:
        """Whether those who stay would be enough to go on without it, and could still lose another."""
        left = [other for other in self._roster.staying if other != peer]
        return self._change.enough(left) and (len(left) > 2 or self._change.quorum is not None)

    @property
    def leaders(self) -> tuple[PeerId, ...]:
        """The coordinator, and who would coordinate without it: the two most senior members that stay."""
        return tuple(peer for peer in self.view.by_seniority if self._roster.stays(peer))[:2]

    @contextlib.contextmanager
    def averaging(self) -> Iterator[None]:
        """While a round is averaged here: newcomers are let in before or after it, so every attempt has its chance."""
        self._change.averaging = True
        try:
            yield
        finally:
            self._change.averaging = False
            self._change.consider()

    def renew(self) -> None:
        """Have the next generation decided though nobody comes or goes: the members disagree about a result."""
        self._change.renew()

    def learn(self, bandwidths_Bps: Mapping[PeerId, int]) -> None:
        """The same, as it is worth it to all to know what the members' connections carry."""
        self._roster.bandwidths_Bps = dict(bandwidths_Bps)
        self._change.renew()

    # Coming and going

    def found(self) -> None:
        """Begin a new run, of which this peer is the first member."""
        view = View(1, (replace(self.me, since=1),), self._founders <= 1)
        self._take(Decree(view, self._standing().held, (self.me.id,), ()), self.me.id)

    async def knock(self, contact: PeerId) -> Welcome:
        """Ask `contact`, whom the endpoint can reach, whether this peer may join; it is a member of nothing then.

        Raises JoinRefused, or PeerLost when another member may be asked.
        """
        self._change.stop()
        self._roster.retire()
        self._change.begin(None)
        if contact in self._roster.addresses:
            self._endpoint.dial(contact, self._roster.addresses[contact])
        return await self._admission.ask(contact, ready=False)

    async def join(self, contact: PeerId) -> None:
        """Ask `contact` to be let in. The view with this peer in it comes later, by Install. Raises as `knock`."""
        await self._admission.ask(contact, ready=True)

    def leave(self, why: str) -> asyncio.Future[None]:
        """Tell the others that this peer goes. They need it to decide so: await what this returns, which is done when
        they have, or after two patiences; then close the endpoint."""
        loop = asyncio.get_running_loop()
        if self._let_go is None:
            self._let_go = loop.create_future()
            loop.call_later(2 * self._endpoint.patience_s, self._go)
            self._roster.leaving[self.me.id] = in_words(why)
            self._roster.tell(Leave(in_words(why)))
            self._roster.news()
        return self._let_go

    async def finish(self) -> None:
        """The run is over here; return when it is for all members, who may need this peer as donor until then."""
        roster = self._roster
        roster.finished.add(roster.id)
        roster.watch()
        roster.tell(Finished())
        with contextlib.suppress(MembershipError, Expelled):  # whatever becomes of the others, we have the result
            await self.until(lambda: roster.finished.issuperset(roster.staying))

    def close(self) -> None:
        self._change.stop()
        self._go()

    def _on_suspicion(self, envelope: Envelope) -> None:
        told: Suspicion = envelope.message
        if envelope.sender not in self.view.ids:
            self._refuse(envelope.sender, told.generation)
        elif told.generation == self.view.generation:
            self.suspect(told.peer, f"{told.why} (says peer {self.view.name(envelope.sender)})")

    def _on_leave(self, envelope: Envelope) -> None:
        if envelope.sender in self.view.ids and envelope.sender not in self._roster.leaving:
            self._roster.leaving[envelope.sender] = envelope.message.why
            self._roster.news()

    def _on_finished(self, envelope: Envelope) -> None:
        if envelope.sender in self.view.ids:
            self._roster.finished.add(envelope.sender)
            self._roster.watch()
            self.notify()

    def _go_when_free(self) -> None:
        roster = self._roster
        if roster.id not in roster.view.ids or not roster.staying:
            self._go()

    def _go(self) -> None:
        if self._let_go is not None and not self._let_go.done():
            self._let_go.set_result(None)

    # From generation to generation

    def current(self, envelope: Envelope, generation: int) -> bool:
        """Whether a message of `generation` counts. A former member is told that it is one."""
        if envelope.sender in self.view.ids:
            return generation == self.view.generation and not self._change.promised
        self._refuse(envelope.sender, generation)
        return False

    def _refuse(self, sender: PeerId, generation: int) -> None:
        """Somebody speaks from a generation without being a member: if that generation is over, it is told so."""
        now = asyncio.get_running_loop().time()
        if self.me.id in self.view.ids and generation < self.view.generation:
            self.stale_refused += 1
            sometimes("an old generation was refused")
            if now >= self._stale_until.get(sender, now):
                self._stale_until[sender] = now + self._endpoint.interval_s
                self._endpoint.post(sender, Stale(self.view.generation, self.me.id, self.view.ids))

    def _on_stale(self, envelope: Envelope) -> None:
        stale: Stale = envelope.message
        behind = self.me.id in self.view.ids and stale.generation > self.view.generation
        if behind and self.me.id not in stale.members and self.failed is None:
            self._expelled(stale)

    def _expelled(self, stale: Stale) -> None:
        """The others went on without us. Those on our side of a split hear it from us."""
        self._change.stop()
        for peer in self._roster.alive:
            if peer != self.me.id:
                self._endpoint.post(peer, stale)
        self._roster.fail(Expelled(stale.contact))
        self._go()

    def _take(self, decree: Decree, teller: PeerId) -> None:
        """The decree holds: go on to its view."""
        view, before, roster = decree.view, self.view, self._roster
        if self.me.id not in view.ids and self.me.id not in roster.leaving:
            if self.me.id not in before.ids:
                return
            contact = next((peer for peer in (teller, *view.ids) if peer in view.ids), teller)
            self._expelled(Stale(view.generation, contact, view.ids))
            return
        parting = [member for member in before.members if not view.holds(member) and member.id != self.me.id]
        for member in parting:
            self.losses.append(loss_of(member, decree, roster))
            if teller == self.me.id and view.member(member.id) is None and member.id not in roster.leaving:
                roster.tell_former(member.id, Stale(view.generation, self.me.id, view.ids))
        self._stale_until.clear()
        roster.take(view, base=decree.round, led=teller == self.me.id)
        self._change.begin(decree)
        if self.me.id in view.ids:
            if self.me.id in roster.finished:
                roster.tell(Finished())
            if self.me.id in roster.leaving:
                roster.tell(Leave(roster.leaving[self.me.id]))
            self._installed(view, decree.round, decree.donors)
        roster.news()
