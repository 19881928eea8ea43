"""The roster: what one peer knows of the others now, the links it keeps to them, and the waiting for a change of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from ..endpoint import Endpoint
from ..transport import PeerId
from .view import Anew, Introduce, Member, Suspicion, View, in_words

NOBODY = View(0, (), False)
TRY_FOR = 4
"""How long to go on without what is needed, a quorum, a way in, a state, before giving up: in patiences."""


class MembershipError(Exception):
    """This peer cannot go on. The message says why and what to do."""


class NoQuorum(MembershipError):
    """Too few peers are left to decide anything."""


class Expelled(Exception):
    """The others went on without this peer: join again through `contact`."""

    def __init__(self, contact: PeerId) -> None:
        super().__init__(f"the others went on without this peer; joining again through {contact:.12}")
        self.contact = contact


@dataclass(frozen=True, slots=True)
class Gone:
    """Why a member cannot be worked with, and since when, on the loop's clock."""

    why: str
    since_s: float


@dataclass(frozen=True, slots=True)
class Standing:
    """What the membership must know of the peer's state. `held`: the last round whose result it has, and the
    fingerprint of the model after it."""

    held: int
    fingerprint: int


class Roster:
    """The present view, and who of its members is gone, leaving or done, as far as this peer knows. `on_news` is called
    whenever somebody comes, goes or is lost."""

    def __init__(self, endpoint: Endpoint, me: Member) -> None:
        self.me = me
        self.view = NOBODY
        self.base = 0
        """The round that the view goes on from: some committed its result."""
        self.gone: dict[PeerId, Gone] = {}
        self.leaving: dict[PeerId, str] = {}
        self.finished: set[PeerId] = set()
        self.newcomers: dict[PeerId, Introduce] = {}
        self.bandwidths_Bps: dict[PeerId, int] = {}
        """What the next view is to say that members' connections carry, where that is news."""
        self.addresses: dict[PeerId, str] = {}
        """The other members, the last ones known when this peer is none itself."""
        self.failed: Exception | None = None
        self.on_news: list[Callable[[], None]] = []
        self.on_waiting: list[Callable[[str], None]] = []
        """Told why, when too few members answer to go on."""
        self._endpoint = endpoint
        self._anew: set[PeerId] = set()
        """Members who join anew: if there is a link to one, it is new."""
        self._old_links: set[PeerId] = set()
        """Former members whose link dates from when they were one."""
        self._waiting: list[asyncio.Future[None]] = []
        self._limits: dict[asyncio.Timeout, Callable[[], bool]] = {}
        endpoint.on_lost.append(self._lost)

    @property
    def id(self) -> PeerId:
        return self.me.id

    @property
    def others(self) -> list[PeerId]:
        """All members but this peer."""
        return [peer for peer in self.view.ids if peer != self.id]

    @property
    def alive(self) -> list[PeerId]:
        """Members that are not gone."""
        return [peer for peer in self.view.ids if peer not in self.gone]

    @property
    def staying(self) -> list[PeerId]:
        """Members that are neither gone nor leaving."""
        return [peer for peer in self.view.ids if self.stays(peer)]

    def stays(self, peer: PeerId) -> bool:
        """Whether a member is neither gone nor leaving."""
        return peer not in self.gone and peer not in self.leaving

    @property
    def coordinator(self) -> PeerId | None:
        """The most senior member that stays."""
        return next((peer for peer in self.view.by_seniority if self.stays(peer)), None)

    @property
    def shrinking(self) -> bool:
        """Whether a view without the gone and the leaving is due. When all leave, nobody would be in it."""
        return 0 < len(self.staying) < len(self.view.ids)

    def suspect(self, peer: PeerId, why: str) -> None:
        """A member cannot be worked with: have it removed. It may join again."""
        if peer in self.others and peer not in self.gone:
            self.gone[peer] = Gone(why, asyncio.get_running_loop().time())
            self.news()

    def welcome_back(self, peer: PeerId) -> None:
        """A member that was given up answers: it is there."""
        self.gone.pop(peer, None)
        self.watch()
        self.notify()

    def _lost(self, peer: PeerId, why: str) -> None:
        self._old_links.discard(peer)
        self.suspect(peer, why)

    def dismiss_lost(self) -> None:
        """Newcomers that are lost before they were let in may come again."""
        for peer in [peer for peer in self.newcomers if self._endpoint.is_lost(peer) is not None]:
            del self.newcomers[peer]

    def news(self) -> None:
        """Somebody comes, goes or is lost."""
        self.watch()
        coordinator = self.coordinator
        if coordinator is not None and coordinator != self.id:
            for peer, gone in self.gone.items():
                self._endpoint.post(coordinator, Suspicion(self.view.generation, peer, in_words(gone.why)))
            for came in self.newcomers.values():
                self._endpoint.post(coordinator, came)
        for told in self.on_news:
            told()
        self.notify()

    def watch(self) -> None:
        """Heartbeats: the coordinator with all, newcomers too; the others with it and with the next in rank, but with
        all while somebody is gone, so that several deaths show at once. Who has finished, with all that have not."""
        alive, watched = self.alive, set[PeerId]()
        if self.id not in alive:
            pass
        elif self.id in self.finished:
            watched = set(alive) - self.finished
        elif self.coordinator == self.id:
            watched = {*alive, *self.newcomers}
        elif self.gone:
            watched = set(alive)
        else:
            watched = {alive[(alive.index(self.id) + 1) % len(alive)], self.coordinator or self.id}
        self._endpoint.watch(watched - {self.id})

    def tell(self, message: object) -> None:
        """Post `message` to all other members."""
        for peer in self.others:
            self._endpoint.post(peer, message)

    def tell_former(self, peer: PeerId, message: object) -> None:
        """Post `message` to who is no member any more, unless it joins anew and knows."""
        if peer not in self._anew and self._endpoint.is_lost(peer) is None:
            self._endpoint.post(peer, message)

    # From view to view. When a peer has to join anew, both ends of each of its links must begin it anew, and only then:
    # a link that ends between members means that messages are lost, and makes them suspect each other.

    def take(self, view: View, *, base: int, led: bool) -> None:
        """Go on to `view`, from round `base`; what was known of those who are not in it, or in it anew, is over. `led`:
        we asked its members, and whoever is gone is so since it answered. All other suspicions are over."""
        before, self.view = self.view, view
        # What a resumed run begins with is committed by nobody in it.
        begins = not before.started and before.generation + 1 == view.generation
        self.base = 0 if begins else base
        for peer in sorted(self._old_links):
            self._end_link(peer)  # it has had a generation's time to hear that it is no member
        for peer in (member.id for member in before.members if not view.holds(member) and member.id != self.id):
            told = (led or peer in self.leaving) and peer not in self._anew and self._endpoint.is_lost(peer) is None
            if told and view.member(peer) is None:
                self._old_links.add(peer)  # it still has to hear it
            else:
                self._end_link(peer)
        self._anew.clear()
        self.bandwidths_Bps.clear()
        for member in view.members:
            if member.since == view.generation:
                self.newcomers.pop(member.id, None)
        kept = {member.id for member in before.members if view.holds(member)}
        self.gone = {peer: gone for peer, gone in self.gone.items() if peer in kept and led}
        self.leaving = {peer: why for peer, why in self.leaving.items() if peer in kept}
        self.finished &= set(view.ids)
        self.me = view.member(self.id) or self.me
        self.meet(view)

    def meet(self, view: View) -> None:
        """Learn where the members of `view` are."""
        others = [member for member in view.members if member.id != self.id]
        self.addresses = {member.id: member.address for member in others}
        for member in others:
            self._endpoint.dial(member.id, member.address)

    def retire(self) -> None:
        """Be a member of nothing, in order to become one anew."""
        addresses = self.addresses
        told = (*self.others, *(self.newcomers if self.coordinator == self.id else ()))
        for peer in dict.fromkeys(told):
            self._endpoint.post(peer, Anew())  # or it would take the end of this link for a loss when we are let in
        self.leaving.clear()
        self.take(NOBODY, base=0, led=False)
        self.addresses = addresses
        self.newcomers.clear()
        self.failed = None
        self.watch()

    def joins_anew(self, peer: PeerId, *, heard: bool) -> None:
        """`peer` joins anew; `heard`: we heard it from itself, over its new link."""
        if not heard and (peer in self.others or peer in self._old_links):
            self._end_link(peer)
        self._anew.add(peer)
        self._old_links.discard(peer)
        self.suspect(peer, "it joins anew")

    def gave_up(self, peer: PeerId) -> None:
        """`peer` is about to join anew and has ended the link by which it says so."""
        self._endpoint.forget(peer)
        self.newcomers.pop(peer, None)
        self.joins_anew(peer, heard=True)

    def _end_link(self, peer: PeerId) -> None:
        """Talk to `peer` over a new link only."""
        if peer not in self._anew or self._endpoint.is_lost(peer) is not None:
            self._endpoint.forget(peer)
        self._old_links.discard(peer)

    # Waiting

    def fail(self, error: Exception) -> None:
        """Tell all who wait that waiting is of no use."""
        self.failed = error
        self.notify()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for `condition`, looked at again whenever something changes. Raises what makes waiting hopeless."""
        while True:
            if self.failed is not None:
                raise self.failed
            if condition():
                return
            await self._change()

    @contextlib.asynccontextmanager
    async def only_while(self, condition: Callable[[], bool]) -> AsyncIterator[None]:
        """End what is done inside as soon as `condition` does not hold. Raises what makes going on hopeless."""
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._limits[limit] = condition
                yield
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            self._limits.pop(limit, None)
        if self.failed is not None:
            raise self.failed

    async def change_within(self, seconds: float) -> None:
        """Wait for something to change, but no longer than that."""
        try:
            async with asyncio.timeout(seconds):
                await self._change()
        except TimeoutError:
            pass

    async def _change(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def notify(self) -> None:
        """Something that `until` may wait for has changed."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
        for limit, condition in list(self._limits.items()):
            if self.failed is not None or not condition():
                del self._limits[limit]
                limit.reschedule(0.0)
