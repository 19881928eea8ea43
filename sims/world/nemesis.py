"""The nemesis: it applies the faults of a scenario to their targets in the world, each at its moment."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Iterable
from contextvars import Context
from dataclasses import dataclass, replace

from ...protocols.transport import PeerId
from ..frames import kind_of
from ..scenarios.scenario import AT_ONCE, Fault
from .deeds import Deeds, Heal, Stage
from .event_log import Fell, OutOfMemory
from .simulated_peer import Life
from .ways import Frame

VECTORS = 4
"""Number of vectors of the model's size that a training peer holds: the model, its gradients, its contribution, and the
sum."""


@dataclass(slots=True, eq=False)
class _Awaited:
    """A fault that strikes at a message: at the `left`-th message of its kind from now on. They are counted only once a
    message of the kind `after` has been received; "": they are counted already."""

    fault: Fault
    left: int
    after: str


class Nemesis:
    """Applies the faults of the world's scenario, and heals them when they are over."""

    def __init__(self, world: Stage) -> None:
        self._world = world
        self._at_step: list[Fault] = []
        self._over = False
        self._number: dict[PeerId, int] = {}
        self._at_message: dict[tuple[str, bool], list[_Awaited]] = defaultdict(list)
        """(Kind of a message, whether it is sent or received) -> the faults that strike at it."""
        self._deeds = Deeds(world)
        self._heals: list[Heal] = []

    def arm(self) -> None:
        """Schedule all faults of the scenario. Called when the world begins."""
        loop, scenario = asyncio.get_running_loop(), self._world.scenario
        at_event: dict[int, list[Fault]] = defaultdict(list)
        for fault in scenario.faults:
            if fault.at_message is not None:
                moment = fault.at_message
                self._at_message[moment.message, moment.sent].append(_Awaited(fault, moment.number, moment.after))
            elif fault.at_event is not None:
                at_event[fault.at_event].append(fault)
            elif fault.at_step is not None:
                self._at_step.append(fault)
            else:
                loop.call_at(fault.at_s or 0.0, self.strike, fault)
        for number, faults in at_event.items():
            self._world.network.before[number] = lambda faults=faults: self._strike_all(faults)  # type: ignore[misc]
        if self._at_message:
            self._world.network.seen.append(self._see)
        if scenario.faults_until_s is not None:
            loop.call_at(scenario.faults_until_s, self._heal_all)
        self._number = {peer: index for index, peer in enumerate(self._world.ids)}
        if any(group.memory_bytes for group in scenario.groups):
            self._world.network.after.append(self._weigh)

    def _see(self, frame: Frame, sent: bool) -> None:
        """Apply the faults that strike at this frame. It has just been sent by the running code of its sender, or else
        received by that of its receiver."""
        if not {frame.sender, frame.to} <= self._number.keys():
            return
        kind, now = kind_of(frame.header), asyncio.get_running_loop().time()
        for awaited in list(self._at_message.get((kind, sent), ())):
            fault = awaited.fault
            awaited.left -= now >= (fault.at_s or 0.0) and not awaited.after
            if awaited.left == 0:
                self._at_message[kind, sent].remove(awaited)
                self._world.log.reached[f"a fault fell at {kind}"] += 1
                roles = {"sender": frame.sender, "receiver": frame.to}
                who = tuple(self._number[roles[one]] if one in roles else one for one in fault.who)
                self.strike(replace(fault, who=who))

        for awaited in [one for waiting in self._at_message.values() for one in waiting] if not sent else ():
            awaited.after = "" if awaited.after == kind else awaited.after

    def stepped(self, index: int, step: int) -> None:
        """Apply the faults at the local step `step` of their first target, the peer with this number, right after the
        code that runs now. Called when the peer takes this step."""
        for fault in [fault for fault in self._at_step if fault.at_step == step and fault.who[:1] == (index,)]:
            self._at_step.remove(fault)
            asyncio.get_running_loop().call_soon(self.strike, fault, context=Context())

    def _weigh(self, peer: PeerId) -> None:
        """Crash `peer` if it needs more memory than it has. Not before the run has begun for it, because it would only
        be restarted then."""
        if peer not in self._number:
            return
        memory_bytes = self._world.scenario.group_of(self._number[peer]).memory_bytes
        life = self._world.life(self._number[peer]) if memory_bytes else None
        if life is None or not life.begun:
            return
        needed_bytes = life.endpoint.held_bytes + VECTORS * life.model_bytes
        if needed_bytes > memory_bytes:
            self._world.log.add(life.name, OutOfMemory(needed_bytes, memory_bytes))
            Context().run(life.crash)

    def strike(self, fault: Fault) -> None:
        """Apply `fault` now, unless the time of faults is over, or the fault has targets and none of them is
        running."""
        Context().run(self._strike, fault)  # outside the context of the machine that is running

    def _strike_all(self, faults: Iterable[Fault]) -> None:
        for fault in faults:
            self.strike(fault)

    def _strike(self, fault: Fault) -> None:
        targets = self._targets(fault)
        if self._over or (fault.who and not targets):
            return
        self._world.log.add("nemesis", Fell(fault.kind, tuple(life.name for life in targets), self._end_of(fault)))
        self._world.log.reached[f"fault: {fault.kind}"] += 1
        heal = self._deeds.do(fault, targets, self._end_of(fault))
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
        if role in ("coordinator", "second"):
            place = 0 if role == "coordinator" else 1
            leaders = {leader for life in running if (leader := life.leader(place)) is not None}
            return next((life for life in running if life.id in leaders), None)
        return (running[0] if role == "founder" else running[-1]) if running else None

    def _heal(self, heal: Heal) -> None:
        if heal in self._heals:
            self._heals.remove(heal)
            heal()

    def close(self) -> None:
        """End the faults that run as tasks: hostile senders. Called at the end of the world. Raises the error by which
        such a task has ended."""
        self._deeds.close()

    def _heal_all(self) -> None:
        self._over = True
        for heal in list(self._heals):
            self._heal(heal)
