"""Running one scenario and judging whether all promises held."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ...peers.task.model_copy import Diverged
from ...peers.task.task import TaskError
from ..scenarios.scenario import Scenario
from ..scenarios.toy import toy_task_of
from ..world.loop import Deadlock, run_virtual
from ..world.world import Hung, Simulated, World
from .promises import broken
from .tell import story

_BOUND_S = 2_000.0


def bound_s(scenario: Scenario) -> float:
    """The virtual time, in seconds, by which a run of the toy task must be over."""
    return (scenario.faults_until_s or 0.0) + _BOUND_S


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one scenario. `broken`: the promise that did not hold, and the way in which it was broken; None:
    all held. `digest`: digest of the run; `delivered`: number of delivered frames. `reached`: name of a rare situation
    that the library's code or the simulated world counts -> how often it was reached. `last`: the last events, one a
    line, if a promise was broken."""

    scenario: Scenario
    broken: str | None
    digest: str
    delivered: int
    reached: Counter[str]
    last: tuple[str, ...]

    @property
    def promise(self) -> str | None:
        """The name of the broken promise, without the way in which it was broken; None: all held."""
        return None if self.broken is None else self.broken.split(":")[0]


def run_and_judge(world: World, *, within_s: float | None) -> tuple[Simulated, str | None]:
    """Run `world` to its end and check the promises. Returns the result, and the first promise that did not hold with
    the way in which it was broken; None: all held. `within_s`: limit in virtual seconds, beyond which the run counts as
    hung; None: no limit.

    Raises TaskError and Diverged, which are errors of the task and break no promise. Any other error of the run is a
    broken promise; the result is then without metrics.
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
        simulated = Simulated({}, {}, entries[-1].time_s if entries else 0.0, world.network.digest)
    return simulated, broken(scenario, world.log.entries) or wrong


def judge(scenario: Scenario) -> Verdict:
    """Run `scenario` with the toy task in a world of its own, for at most `bound_s` virtual seconds. Returns the
    verdict. Raises TaskError and Diverged."""
    world = World(toy_task_of(scenario), scenario)
    _, wrong = run_and_judge(world, within_s=bound_s(scenario))
    network, reached = world.network, world.log.reached + world.network.happened
    last = story(scenario, world.log.entries, wrong) if wrong else ()
    return Verdict(scenario, wrong, network.digest, network.delivered, reached, last)
