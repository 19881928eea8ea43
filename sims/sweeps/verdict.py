"""One scenario, run and judged."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ...peers.task.task import TaskError
from ...peers.training.trainer import Diverged
from ..scenarios.scenario import Scenario
from ..scenarios.toy import toy_task
from ..world.loop import Deadlock, run_virtual
from ..world.world import Hung, Simulated, World
from .checkers import broken
from .tell import story

_BOUND_S = 2_000.0


def bound_s(scenario: Scenario) -> float:
    """When a run of the toy task must be over, in virtual time."""
    return (scenario.faults_until_s or 0.0) + _BOUND_S


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement on one scenario. `broken`: the promise that did not hold, and how; None: all did. `reached`: how
    often each rare place was reached. `last`: the last events, one a line."""

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


def run_and_judge(world: World, *, within_s: float | None) -> tuple[Simulated, str | None]:
    """Run `world` to its end and check the promises; returns also the first that did not hold, and how.

    Raises the errors of the task itself, about which there is no promise.
    """
    scenario, wrong = world.scenario, None
    try:
        simulated = run_virtual(world.run(within_s=within_s), seed=scenario.settings.seed)
    except (TaskError, Diverged):
        raise
    except Exception as error:  # the run hangs, the world itself fails, or a peer fails without any fault
        ends = isinstance(error, Hung | Deadlock)
        wrong = f"everybody comes to an end: {error}" if ends else f"no error is a surprise: {error!r}"
        entries = world.log.entries
        simulated = Simulated(None, entries[-1].time_s if entries else 0.0, world.network.digest)
    return simulated, broken(scenario, world.log.entries) or wrong


def judge(scenario: Scenario) -> Verdict:
    """Run `scenario` with its toy task in a world of its own, with a bound on its virtual time."""
    world = World(toy_task(scenario.toy_size), scenario)
    _, wrong = run_and_judge(world, within_s=bound_s(scenario))
    network, reached = world.network, world.log.reached + world.network.happened
    last = story(scenario, world.log.entries, wrong) if wrong else ()
    return Verdict(scenario, wrong, network.digest, network.delivered, reached, last)
