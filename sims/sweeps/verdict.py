"""One scenario, run and judged."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ...peers.task import Task
from ..loop import Deadlock, run_virtual
from ..scenarios.scenario import Scenario
from ..world import Hung, World
from .checkers import broken
from .tell import story

_BOUND_S = 600.0


def bound_s(scenario: Scenario) -> float:
    """When everything has to be over, in virtual time, with the toy task."""
    return (scenario.faults_until_s or 0.0) + _BOUND_S


@dataclass(frozen=True, slots=True)
class Verdict:
    """`broken`: the promise that did not hold, and how; None: all did. `reached`: how often which rare place was.
    `last`: what was witnessed last, a line each."""

    scenario: Scenario
    broken: str | None
    digest: str
    delivered: int
    reached: Counter[str]
    last: tuple[str, ...]

    @property
    def promise(self) -> str | None:
        """The broken promise alone, without how."""
        return None if self.broken is None else self.broken.split(":")[0]


def judge(scenario: Scenario, task: Task) -> Verdict:
    """Run `scenario` in a world of its own and look at what was witnessed."""
    world = World(task, scenario)
    try:
        run_virtual(world.run(within_s=bound_s(scenario)), seed=scenario.settings.seed)
        wrong = broken(scenario, world.log.entries)
    except (Hung, Deadlock) as error:
        wrong = broken(scenario, world.log.entries) or f"everybody comes to an end: {error}"
    except Exception as error:  # of the world itself, or of a peer to which nothing was done
        wrong = broken(scenario, world.log.entries) or f"no error is a surprise: {error!r}"
    network, reached = world.network, world.log.reached + world.network.happened
    last = story(scenario, world.log.entries, wrong) if wrong else ()
    return Verdict(scenario, wrong, network.digest, network.delivered, reached, last)
