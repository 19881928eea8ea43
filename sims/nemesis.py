"""The nemesis: does to the world what the scenario says, at the moment it says, to whom it says."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Protocol

from ..protocols.transport import PeerId
from .life import Life
from .links import QUIET
from .log import Fell, Log, OutOfMemory
from .network import Network
from .scenarios.scenario import AT_ONCE, Fault, Kind, Scenario
from .wall_clock import WallClock


class Stage(Protocol):
    """What the nemesis must know of the world, and may ask of it."""

    scenario: Scenario
    network: Network
    log: Log
    clock: WallClock
    lives: list[Life]
    ids: list[PeerId]

    def life(self, index: int) -> Life | None: ...

    def expect(self, index: int) -> None: ...

    def begin(self, index: int) -> None: ...

    def lose_disk(self, index: int) -> None: ...


Heal = Callable[[], object]
"""How a fault is undone."""
VECTORS = 4
"""Of the model's size, that a peer that trains holds: the model, its gradients, what is averaged, and its sum."""


class Nemesis:
    def __init__(self, world: Stage) -> None:
        self._world = world
        self._at_step: list[Fault] = []
        self._over = False
        self._number: dict[PeerId, int] = {}
        self._noises = [QUIET]
        self._relinked: dict[int, list[Fault]] = defaultdict(list)
        self._do: dict[Kind, Callable[[Fault, list[Life]], Heal | None]] = {
            Kind.CRASH: self._crash,
            Kind.PAUSE: self._pause,
            Kind.RESTART: self._restart,
            Kind.REPLACE: self._restart,
            Kind.SLOW: self._slow,
            Kind.CUT_OFF: self._cut_off,
            Kind.DEAFEN: self._deafen,
            Kind.RING: self._ring,
            Kind.CLOG: self._clog,
            Kind.NOISE: self._noise,
            Kind.LINK: self._link,
            Kind.FULL_DISK: self._full_disk,
            Kind.CLOCK: self._clock,
        }
        self._heals: list[Heal] = []

    def arm(self) -> None:
        """Wait for the moments of all faults."""
        loop, scenario = asyncio.get_running_loop(), self._world.scenario
        at_event: dict[int, list[Fault]] = defaultdict(list)
        for fault in scenario.faults:
            if fault.at_event is not None:
                at_event[fault.at_event].append(fault)
            elif fault.at_step is not None:
                self._at_step.append(fault)
            else:
                loop.call_at(fault.at_s or 0.0, self.strike, fault)
        for number, faults in at_event.items():
            self._world.network.before[number] = lambda faults=faults: self._strike_all(faults)  # type: ignore[misc]
        if scenario.faults_until_s is not None:
            loop.call_at(scenario.faults_until_s, self._heal_all)
        if any(group.memory_bytes for group in scenario.groups):
            self._number = {peer: index for index, peer in enumerate(self._world.ids)}
            self._world.network.after.append(self._weigh)

    def stepped(self, index: int, step: int) -> None:
        """The peer with this number takes its local step of that number."""
        for fault in [fault for fault in self._at_step if fault.at_step == step and fault.who[:1] == (index,)]:
            self._at_step.remove(fault)
            asyncio.get_running_loop().call_soon(self.strike, fault, context=Context())

    def _weigh(self, peer: PeerId) -> None:
        """Kill who needs more memory than it has; but none before its run has begun, who would only be started anew."""
        memory_bytes = self._world.scenario.group_of(self._number[peer]).memory_bytes
        life = self._world.life(self._number[peer]) if memory_bytes else None
        if life is None or not life.peer.membership.view.started:
            return
        needed_bytes = life.endpoint.held_bytes + VECTORS * life.peer.state.vector.nbytes
        if needed_bytes > memory_bytes:
            self._world.log.add(life.name, OutOfMemory(needed_bytes, memory_bytes))
            Context().run(life.crash)

    def strike(self, fault: Fault) -> None:
        """Do it now, unless the time for faults is over or nobody is there to whom it could be done."""
        Context().run(self._strike, fault)  # whoever's turn it is: what follows is not for its machine to do

    def _strike_all(self, faults: Iterable[Fault]) -> None:
        for fault in faults:
            self.strike(fault)

    def _strike(self, fault: Fault) -> None:
        targets = self._targets(fault)
        if self._over or (fault.who and not targets):
            return
        self._world.log.add("nemesis", Fell(fault.kind, tuple(life.name for life in targets), self._end_of(fault)))
        self._world.log.reached[f"fault: {fault.kind}"] += 1
        heal = self._do[fault.kind](fault, targets)
        if heal is not None:
            self._heals.append(heal)
            if fault.for_s:
                asyncio.get_running_loop().call_later(fault.for_s, self._heal, heal)

    def _end_of(self, fault: Fault) -> float | None:
        now, healed_s = asyncio.get_running_loop().time(), self._world.scenario.faults_until_s
        if fault.kind in AT_ONCE or not (fault.for_s or healed_s):
            return None
        return min(now + (fault.for_s or math.inf), healed_s or math.inf)

    def _targets(self, fault: Fault) -> list[Life]:
        lives = [self._world.life(who) if isinstance(who, int) else self._by_role(who) for who in fault.who]
        return list(dict.fromkeys(life for life in lives if life is not None))

    def _by_role(self, role: str) -> Life | None:
        running = [life for life in self._world.lives if life.running]
        if role == "coordinator":
            coordinators = [life.peer.membership.coordinator for life in running]
            return next((life for life in running if life.id in coordinators), None)
        return (running[0] if role == "founder" else running[-1]) if running else None

    def _heal(self, heal: Heal) -> None:
        if heal in self._heals:
            self._heals.remove(heal)
            heal()

    def _heal_all(self) -> None:
        self._over = True
        for heal in list(self._heals):
            self._heal(heal)

    # What can be done; each returns how it is undone, if it can be.

    def _crash(self, fault: Fault, targets: list[Life]) -> None:
        for life in targets:
            life.crash()

    def _restart(self, fault: Fault, targets: list[Life]) -> Heal | None:
        comes_back = bool(fault.for_s) or self._world.scenario.faults_until_s is not None
        for life in targets:
            if comes_back:
                self._world.expect(life.index)
            life.crash()
        if not comes_back:
            return None

        def start() -> None:
            for life in targets:
                if fault.kind is Kind.REPLACE:
                    self._world.lose_disk(life.index)
                self._world.begin(life.index)

        return start

    def _pause(self, fault: Fault, targets: list[Life]) -> Heal:
        for life in targets:
            life.machine.pause()

        def resume() -> None:
            for life in targets:
                life.machine.resume()

        return resume

    def _slow(self, fault: Fault, targets: list[Life]) -> Heal:
        for life in targets:
            life.machine.slowness *= fault.factor

        def recover() -> None:
            for life in targets:
                life.machine.slowness /= fault.factor

        return recover

    def _cut_off(self, fault: Fault, targets: list[Life]) -> Heal:
        inside = {life.id for life in targets}
        ids = self._world.ids
        return self._cut([(one, two) for one in ids for two in ids if (one in inside) != (two in inside)])

    def _deafen(self, fault: Fault, targets: list[Life]) -> Heal:
        deaf = {life.id for life in targets}
        return self._cut([(sender, to) for sender in self._world.ids for to in deaf if sender not in deaf])

    def _ring(self, fault: Fault, targets: list[Life]) -> Heal:
        ids = self._world.ids
        count, reach = len(ids), (len(ids) // 2 + 1) // 2
        near = {(ids[i], ids[(i + d) % count]) for i in range(count) for d in range(-reach, reach + 1)}
        return self._cut([(one, two) for one in ids for two in ids if (one, two) not in near])

    def _cut(self, ways: Iterable[tuple[PeerId, PeerId]]) -> Heal:
        network, ways = self._world.network, list(ways)
        for way in ways:
            network.cut(*way)

        def join() -> None:
            for way in ways:
                network.join(*way)

        return join

    def _clog(self, fault: Fault, targets: list[Life]) -> None:
        """A frame that is held up is under way: when it goes on is settled from the start, and needs no healing."""
        until_s = self._end_of(fault) or 0.0
        for life in targets:
            for other in self._world.ids:
                self._world.network.clog(life.id, other, until_s)

    def _noise(self, fault: Fault, targets: list[Life]) -> Heal:
        network = self._world.network
        self._noises.append(fault.noise)
        network.noise = fault.noise

        def quiet() -> None:
            self._noises.remove(fault.noise)
            network.noise = self._noises[-1]

        return quiet

    def _link(self, fault: Fault, targets: list[Life]) -> Heal:
        for life in targets:
            self._relinked[life.index].append(fault)

        def undo() -> None:
            for life in targets:
                self._relinked[life.index].remove(fault)
                connect(life)

        def connect(life: Life) -> None:
            """By the latest of the connections that it was given."""
            own = self._world.scenario.group_of(life.index).link
            links = [fault.link for fault in self._relinked[life.index] if fault.link is not None]
            self._world.network.links[life.id] = links[-1] if links else own

        for life in targets:
            connect(life)
        return undo

    def _full_disk(self, fault: Fault, targets: list[Life]) -> Heal:
        for life in targets:
            life.disk.full += 1

        def make_room() -> None:
            for life in targets:
                life.disk.full -= 1

        return make_room

    def _clock(self, fault: Fault, targets: list[Life]) -> None:
        self._world.clock.change({life.machine.host for life in targets}, jump_s=fault.factor, drift=fault.drift)
