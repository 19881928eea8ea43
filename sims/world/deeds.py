"""Applying and undoing each kind of fault in a simulated world."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Protocol

from ...protocols.transport import PeerId
from ..scenarios.noise import QUIET
from ..scenarios.scenario import Fault, Kind, Scenario
from .event_log import Log
from .hostile import Hostile
from .network import Network
from .repeated_lies import RepeatedLie
from .simulated_peer import Life
from .wall_clock import WallClock


class Stage(Protocol):
    """The part of the world's interface that is needed to apply faults."""

    scenario: Scenario
    network: Network
    log: Log
    clock: WallClock
    lives: list[Life]
    ids: list[PeerId]

    def life(self, index: int) -> Life | None:
        """The running process of the peer with this number; None: there is none."""
        ...

    def expect(self, index: int) -> None:
        """Announce that the peer with this number will be started, so that the world does not end before that."""
        ...

    def begin(self, index: int) -> None:
        """Start a process of the peer with this number, unless one is running or the run is over."""
        ...

    def lose_disk(self, index: int) -> None:
        """Give the peer with this number an empty disk: the processes started from now on have it. One that runs keeps
        the old one."""
        ...

    def outage(self, for_s: float) -> None:
        """Crash all peers, if the run has begun and none has finished it. They resume the run after `for_s` virtual
        seconds."""
        ...


Heal = Callable[[], object]
"""Undoes a fault."""


def _to_each(targets: Iterable[Life], do: Callable[[Life], None], undo: Callable[[Life], None]) -> Heal:
    for life in targets:
        do(life)

    def heal() -> None:
        for life in targets:
            undo(life)

    return heal


class Deeds:
    """Applies faults for the nemesis, the object that begins and ends a scenario's faults at their times; `do` applies
    one."""

    def __init__(self, world: Stage) -> None:
        self._world = world
        self._noises = [QUIET]
        self._hostile_ones: list[Hostile | RepeatedLie] = []
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
            Kind.NOISE: self._noise,
            Kind.LINK: self._link,
            Kind.FULL_DISK: self._full_disk,
            Kind.CLOCK: self._clock,
            Kind.SEPARATE: self._separate,
            Kind.HANG: self._hang,
            Kind.OUTAGE: self._outage,
            Kind.SPOIL: self._spoil,
            Kind.HOSTILE: self._hostile,
        }

    def do(self, fault: Fault, targets: list[Life], until_s: float | None) -> Heal | None:
        """Apply `fault` to `targets`. Returns the function that undoes it; None: it cannot be undone, or ends by
        itself. `until_s`: virtual time of its planned end; None: it does not end, or has no duration."""
        if fault.kind is Kind.CLOG:
            self._clog(targets, until_s or 0.0)
            return None
        return self._do[fault.kind](fault, targets)

    def close(self) -> None:
        """End the faults that run as tasks: hostile senders. Raises the error by which such a task has ended."""
        for hostile in self._hostile_ones:
            hostile.stop()

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
        return _to_each(targets, lambda life: life.machine.pause(), lambda life: life.machine.resume())

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

    def _clog(self, targets: list[Life], until_s: float) -> None:
        """Hold up the targets' frames until `until_s`. This time is given to the network at once, so nothing has to be
        undone."""
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
            """Give the peer the link of the latest fault that still changes it, or else its own link."""
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

    def _separate(self, fault: Fault, targets: list[Life]) -> Heal:
        ids = [life.id for life in targets]
        return self._cut([(one, two) for one in ids for two in ids if one != two])

    def _hang(self, fault: Fault, targets: list[Life]) -> Heal:
        return _to_each(targets, lambda life: life.machine.hang(), lambda life: life.machine.unhang())

    def _outage(self, fault: Fault, targets: list[Life]) -> None:
        self._world.outage(fault.for_s)

    def _hostile(self, fault: Fault, targets: list[Life]) -> Heal:
        world = self._world
        seed = f"{world.scenario.settings.seed} {asyncio.get_running_loop().time()}"
        hostile: Hostile | RepeatedLie
        if fault.lie is None:
            hostile = Hostile(world.network, seed, lambda: [life for life in world.lives if life.running], targets)
        else:
            hostile = RepeatedLie(fault.lie, seed, targets, world.log)
        self._hostile_ones.append(hostile)
        return hostile.stop

    def _spoil(self, fault: Fault, targets: list[Life]) -> None:
        for life in targets:
            life.machine.spoils = fault.factor
