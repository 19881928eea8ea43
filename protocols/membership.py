"""Membership: who takes part, agreed generation by generation.

A change is one exchange led by the most senior member nobody suspects: Propose (commit nothing any more in older
generations) -> Promise (the last round I hold the result of) -> Install (the new view, and the round all go on from).
It needs promises from more than half of the old view (leavers aside), or `quorum` peers when the user says so, hence of
two halves of a split at most one goes on. As a commit too needs more than half (`local_sgd`), a result that anyone
committed is held by one who promises, and Install hands it to all: nothing committed is ever undone.
Messages of older generations are refused and answered with Stale; their sender joins again and catches up.
(The scheme is view-stamped replication's view change, Oki & Liskov 1988, with the round's result as its log.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from .endpoint import Endpoint, Envelope
from .transport import PeerId
from .view import (
    Finished,
    Install,
    Introduce,
    Join,
    Leave,
    Member,
    Promise,
    Propose,
    Refused,
    Stale,
    Suspicion,
    View,
    Welcome,
    ranked,
    with_data_parts,
)


class MembershipError(Exception):
    """This peer cannot go on. The message says why and what to do."""


class NoQuorum(MembershipError):
    """Too few peers are left to decide anything."""


class JoinRefused(MembershipError):
    """The run does not let this peer in."""


class Expelled(Exception):
    """The others went on without this peer: join again through `contact`."""

    def __init__(self, contact: PeerId) -> None:
        super().__init__(f"the others went on without this peer; joining again through {contact:.12}")
        self.contact = contact


@dataclass(frozen=True, slots=True)
class Loss:
    """A member that is no more. `since_s`: when it was missed, on the loop's clock."""

    peer: PeerId
    name: str
    address: str
    since_s: float
    why: str
    advice: str
    left: bool
    """Whether it went of its own will."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What the membership must know of the peer's state. `held`: the last round whose result it has."""

    held: int
    fingerprint: int


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
        `founders`: how many gather before the first round. `quorum`: how many may go on, None for more than half."""
        self.endpoint, self.me, self.run, self.founders, self.quorum = endpoint, me, run, founders, quorum
        self.view = View(0, (), False)
        self.losses: list[Loss] = []
        self.failed: Exception | None = None
        self.finished: set[PeerId] = set()
        self.stale_refused = 0
        self._layout, self._model = layout, model
        self._standing, self._installed = standing, installed
        self._promised = 0
        self._newcomers: dict[PeerId, tuple[Member, int]] = {}
        self._gone: dict[PeerId, tuple[str, float, bool]] = {}
        self._promises: dict[PeerId, Promise] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._changing: asyncio.Task[None] | None = None
        self._stale_told: dict[PeerId, int] = {}
        self._hosts: set[PeerId] = set()
        endpoint.on_lost.append(self._lost)
        for kind, handler in (
            (Join, self._on_join),
            (Introduce, self._on_introduce),
            (Propose, self._on_propose),
            (Promise, self._on_promise),
            (Install, self._on_install),
            (Suspicion, self._on_suspicion),
            (Leave, self._on_leave),
            (Stale, self._on_stale),
            (Finished, self._on_finished),
        ):
            endpoint.on(kind, handler)

    # What conversations ask

    def found(self) -> None:
        """Begin a new run, of which this peer is the first member."""
        me = replace(self.me, since=1)
        self._take(View(1, (me,), self.founders <= 1), self._standing().held, ())

    async def knock(self, contact: PeerId) -> Welcome:
        """Ask `contact`, whom the endpoint can reach, whether this peer may join. Raises JoinRefused, PeerLost."""
        self.failed = None
        if self._changing is not None:
            self._changing.cancel()
        self.view, self._promised, self._gone = View(0, (), False), 0, {}
        return await self._ask_to_join(contact, ready=False)

    async def join(self, contact: PeerId) -> None:
        """Ask `contact` to be let in. The view with this peer in it comes later, by Install."""
        await self._ask_to_join(contact, ready=True)

    async def _ask_to_join(self, contact: PeerId, *, ready: bool) -> Welcome:
        held = self._standing().held
        answer = await self.endpoint.ask(
            contact, lambda ask: Join(ask, self.run, self.me, self._layout, self._model, held, ready)
        )
        if isinstance(answer.message, Refused):
            raise JoinRefused(answer.message.why)
        welcome: Welcome = answer.message
        self._hosts = set(welcome.view.ids)
        for member in welcome.view.members:
            self.endpoint.dial(member.id, member.address)
        return welcome

    def leave(self, why: str) -> None:
        """Tell the others that this peer goes. Drain the endpoint afterwards."""
        for peer in self.view.ids:
            if peer != self.endpoint.id:
                self.endpoint.post(peer, Leave(self.view.generation, why))

    async def finish(self) -> None:
        """The run is over here; return when it is for all members, who may need this peer as donor until then."""
        self.finished.add(self.endpoint.id)
        self._tell_finished()
        await self.until(self._all_finished)

    def _tell_finished(self) -> None:
        for peer in self.view.ids:
            if peer != self.endpoint.id:
                self.endpoint.post(peer, Finished(self.view.generation, self._standing().held))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for `condition`, looked at again whenever something changes. Raises what makes waiting hopeless."""
        while True:
            if self.failed is not None:
                raise self.failed
            if condition():
                return
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future

    def notify(self) -> None:
        """Something that `until` may wait for has changed."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    @property
    def settled(self) -> bool:
        """Whether this peer is a member of a view that has started and is not being changed."""
        return self.view.started and self._promised <= self.view.generation and self.me.id in self.view.ids

    @property
    def coordinator(self) -> PeerId | None:
        return next((peer for peer in self.view.by_seniority() if peer not in self._gone), None)

    def current(self, envelope: Envelope, generation: int) -> bool:
        """Whether a message of `generation` counts. One from a former member is refused and told so."""
        if envelope.sender in self.view.ids:
            return generation == self.view.generation and self._promised <= generation
        if generation < self.view.generation and self._stale_told.get(envelope.sender) != self.view.generation:
            self.stale_refused += 1
            self._stale_told[envelope.sender] = self.view.generation
            self.endpoint.post(envelope.sender, Stale(self.view.generation))
        return False

    # Joining

    def _on_join(self, envelope: Envelope) -> None:
        join: Join = envelope.message
        refusal = self._refusal(join, envelope.sender)
        if refusal is not None:
            self.endpoint.post(envelope.sender, Refused(join.ask, refusal))
            return
        self.endpoint.dial(join.member.id, join.member.address)
        standing = self._standing()
        self.endpoint.post(envelope.sender, Welcome(join.ask, self.view, standing.held, standing.fingerprint))
        introduce = Introduce(join.member, join.round)
        if not join.ready:
            return
        if self.coordinator == self.endpoint.id:
            self._introduce(introduce)
        elif self.coordinator is not None:
            self.endpoint.post(self.coordinator, introduce)

    def _refusal(self, join: Join, sender: PeerId) -> str | None:
        if join.run != self.run:
            return f"this is run {self.run!r}, not {join.run!r}"
        if join.member.id != sender:
            return "it asks in another peer's name"
        if join.layout != self._layout:
            return f"its model has another layout: {join.model} there, {self._model} here"
        if self.me.id not in self.view.ids:
            return "this peer is no member itself; ask another"
        return None

    def _on_introduce(self, envelope: Envelope) -> None:
        if envelope.sender in self.view.ids:
            self._introduce(envelope.message)

    def _introduce(self, introduce: Introduce) -> None:
        member = introduce.member
        self._newcomers[member.id] = (member, introduce.round)
        self.endpoint.dial(member.id, member.address)
        self._consider()

    # Losing

    def _lost(self, peer: PeerId, why: str) -> None:
        self._newcomers.pop(peer, None)
        self.suspect(peer, why)

    def suspect(self, peer: PeerId, why: str) -> None:
        """A member cannot be worked with: have it removed. It may join again."""
        if peer in self.view.ids and peer not in self._gone:
            self._suspect(peer, why, left=peer in self.finished)
        self.notify()

    def _suspect(self, peer: PeerId, why: str, *, left: bool = False) -> None:
        self._gone[peer] = (why, asyncio.get_running_loop().time(), left)
        self._watch()
        self._consider()
        self._tell_suspicions()
        self.notify()

    def _tell_suspicions(self) -> None:
        coordinator = self.coordinator
        if coordinator is not None and coordinator != self.endpoint.id:
            for peer, (why, _, left) in self._gone.items():
                self.endpoint.post(coordinator, Suspicion(self.view.generation, peer, why[:500], left))

    def _on_suspicion(self, envelope: Envelope) -> None:
        told: Suspicion = envelope.message
        known = told.peer in self.view.ids and told.peer != self.endpoint.id
        if self.current(envelope, told.generation) and known and told.peer not in self._gone:
            why = told.why if told.left else f"{told.why} (says peer {self.view.name(envelope.sender)})"
            self._suspect(told.peer, why, left=told.left)

    def _on_leave(self, envelope: Envelope) -> None:
        if envelope.sender in self.view.ids and envelope.sender not in self._gone:
            self._suspect(envelope.sender, f"left: {envelope.message.why}", left=True)

    def _on_finished(self, envelope: Envelope) -> None:
        if envelope.sender in self.view.ids:
            self.finished.add(envelope.sender)
            self.notify()

    def _all_finished(self) -> bool:
        return all(peer in self.finished or peer in self._gone for peer in self.view.ids)

    def _watch(self) -> None:
        """Heartbeats with the coordinator and the next in rank; the coordinator with all. Whoever has finished may go."""
        ids, mine = self.view.ids, self.endpoint.id
        watched: set[PeerId] = set()
        if mine in ids:
            alive = [peer for peer in ids if peer not in self._gone]
            others = alive if self.coordinator == mine else [str(self.coordinator)]
            watched = {*others, alive[(alive.index(mine) + 1) % len(alive)]} if mine in alive else set()
        self.endpoint.watch(watched - {mine} - self.finished)

    # Changing

    def _consider(self) -> None:
        """As coordinator, lead a change when there is reason for one."""
        reason = self._newcomers or any(peer in self.view.ids for peer in self._gone)
        leading = self.coordinator == self.endpoint.id and (self._changing is None or self._changing.done())
        if reason and leading and self.me.id in self.view.ids:
            self._changing = asyncio.create_task(self._change(), name="membership change")

    async def _change(self) -> None:
        generation = max(self._promised, self.view.generation) + 1
        try:
            promises = await self._collect(generation)
            if promises is None:
                return
            base = max((self.view, *(p.view for p in promises.values())), key=lambda view: view.generation)
            if base.generation > self.view.generation:
                self._take(base, self._standing().held, ())  # the change before this one had reached some of us
                return
            self._decide(generation, promises)
        finally:
            self._changing = None
            if self.failed is None:
                asyncio.get_running_loop().call_soon(self._consider)

    async def _collect(self, generation: int) -> dict[PeerId, Promise] | None:
        """Promises of all that are not gone; None when another leads. Raises nothing: sets `failed` without a quorum."""
        self._promised = max(self._promised, generation)
        self._promises = {}
        began = asyncio.get_running_loop().time()
        asked: set[PeerId] = set()
        while True:
            everyone = [peer for peer in self.view.ids if peer != self.endpoint.id]
            alive = [peer for peer in everyone if peer not in self._gone]
            for peer in alive:
                if peer not in asked:
                    asked.add(peer)
                    self.endpoint.post(peer, Propose(generation))
            higher = max((p.promised for p in self._promises.values() if not p.given), default=0)
            if higher >= generation:
                await asyncio.sleep(self.endpoint.interval_s * (1 + self.view.ids.index(self.endpoint.id)))
                self._promised = max(self._promised, higher)
                return None
            given = {peer: p for peer, p in self._promises.items() if p.given and p.generation == generation}
            if all(peer in given for peer in alive):
                if len(given) + 1 >= self._needed():
                    return given
                if asyncio.get_running_loop().time() - began > 4 * self.endpoint.patience_s:
                    self._fail(NoQuorum(self._no_quorum(len(given) + 1)))
                    return None
                await self._call_back()
                asked.clear()
                continue
            await self._change_or_tick()

    async def _call_back(self) -> None:
        """Too few answered. Those given up may live on the better side of a split: ask them, they say Stale if so."""
        for member in self.view.members:
            if member.id in self._gone and not self._gone[member.id][2]:
                self.endpoint.dial(member.id, member.address)
                self.endpoint.post(member.id, Propose(self._promised))
        await asyncio.sleep(self.endpoint.interval_s)

    async def _change_or_tick(self) -> None:
        try:
            async with asyncio.timeout(self.endpoint.interval_s):
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting.append(future)
                await future
        except TimeoutError:
            pass

    def _needed(self) -> int:
        left = sum(1 for peer, (_, _, leaver) in self._gone.items() if leaver and peer in self.view.ids)
        return (len(self.view.members) - left) // 2 + 1 if self.quorum is None else self.quorum

    def _no_quorum(self, present: int) -> str:
        return (
            f"{present} of {len(self.view.members)} peers are left, {self._needed()} are needed to go on; "
            f"restart the others, or allow fewer with --quorum {present}"
        )

    def _decide(self, generation: int, promises: dict[PeerId, Promise]) -> None:
        newcomers = [member for member, _ in self._newcomers.values()]
        staying = [m for m in self.view.members if m.id == self.endpoint.id or m.id in promises]
        staying = [m for m in staying if m.id not in self._newcomers]
        placed = with_data_parts(newcomers, staying, self.founders, generation)
        members = ranked(staying + placed)
        rounds = {peer: p.round for peer, p in promises.items()}
        rounds |= {peer: round_ for peer, (_, round_) in self._newcomers.items() if not self.view.started}
        rounds[self.endpoint.id] = self._standing().held
        last = max(rounds.values())
        donors = tuple(peer for peer, held in rounds.items() if held == last)
        started = self.view.started or len(members) >= self.founders
        install = Install(View(generation, members, started), last, donors)
        self._newcomers.clear()
        for member in members:
            if member.id != self.endpoint.id:
                self.endpoint.post(member.id, install)
        self._take(install.view, last, donors)

    def _on_propose(self, envelope: Envelope) -> None:
        generation = envelope.message.generation
        if envelope.sender not in self.view.ids:
            self.current(envelope, 0)
            return
        given = generation > self._promised
        if given:
            self._promised = generation
            self.notify()
        answer = Promise(generation, given, self._promised, self.view, self._standing().held)
        self.endpoint.post(envelope.sender, answer)

    def _on_promise(self, envelope: Envelope) -> None:
        if envelope.sender in self.view.ids:
            self._promises[envelope.sender] = envelope.message
            self.notify()

    def _on_install(self, envelope: Envelope) -> None:
        install: Install = envelope.message
        from_member = envelope.sender in self.view.ids or envelope.sender in self._hosts
        if from_member and install.view.generation > self.view.generation and install.view.generation >= self._promised:
            self._take(install.view, install.round, install.donors)

    def _on_stale(self, envelope: Envelope) -> None:
        if envelope.message.generation > self.view.generation:
            self._fail(Expelled(envelope.sender))

    def _take(self, view: View, round_: int, donors: tuple[PeerId, ...]) -> None:
        for member in self.view.members:
            if member.id not in view.ids:
                self._record_loss(member)
        before = set(self.view.ids)
        self.view, self._promised = view, max(self._promised, view.generation)
        self._gone = {peer: gone for peer, gone in self._gone.items() if peer in view.ids and peer in before}
        self.finished &= set(view.ids)
        for member in view.members:
            if member.id == self.me.id:
                self.me = member
            else:
                self.endpoint.dial(member.id, member.address)
        for peer in before - set(view.ids):
            self.endpoint.forget(peer)
        self._watch()
        self._tell_suspicions()
        if self.endpoint.id in self.finished:
            self._tell_finished()
        self._installed(view, round_, donors)
        self.notify()

    def _record_loss(self, member: Member) -> None:
        now = asyncio.get_running_loop().time()
        why, since, left = self._gone.get(member.id, ("the coordinator gave it up", now, False))
        advice = "" if left else "if it lives, it joins again by itself; else start it anew with the join line"
        self.losses.append(Loss(member.id, member.name, member.address, since, why, advice, left))

    def _fail(self, error: Exception) -> None:
        self.failed = error
        self.notify()

    def close(self) -> None:
        if self._changing is not None:
            self._changing.cancel()
