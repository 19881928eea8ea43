"""What a run's settings ask for: the policy of its period, its outer step, and the state in which it begins."""

from __future__ import annotations

from torch import Tensor

from ...aggregation.outer import OfParameters, OuterStep, Plain, parse_outer
from ...aggregation.periods.adacomm import AdaComm, telling
from ...aggregation.periods.policy import PeriodPolicy
from ...aggregation.periods.registry import parse_period
from ...protocols.local_sgd.state import State
from ..settings.settings import Settings


def period_policy(settings: Settings) -> PeriodPolicy:
    """The policy of ``--period``."""
    if settings.period == "adaptive":
        return AdaComm(initial=settings.period_initial, block_s=settings.period_block_s)
    return parse_period(settings.period)


def why_period_stays(settings: Settings, loss: float, learning_rate: float) -> str:
    """What to tell the user after a round with which the policy can do nothing; empty: with this one it can."""
    if settings.period != "adaptive" or telling(loss, learning_rate):
        return ""
    what = f"the loss is {loss:.3g}" if loss < 0 else f"the learning rate is {learning_rate:.3g}"
    return f"it stays, as {what} and adaptive goes by what is not below 0; --period auto looks at no loss"


def outer_step(settings: Settings, parameters: int | None, state: State) -> OuterStep:
    """The outer step of ``--outer``, for a vector that begins with so many elements of parameters; None: all are.
    Raises ValueError when `state` is another step's."""
    step = parse_outer(settings.outer)
    if len(state.outer) != step.tensors:
        raise ValueError(f"this run began with another outer step than {settings.outer}: go on with that one")
    return step if parameters is None or isinstance(step, Plain) else OfParameters(step, parameters)


def first_state(settings: Settings, vector: Tensor) -> State:
    """Where a run begins: round 0, with the model as the seed made it."""
    return State(0, 0, vector, parse_outer(settings.outer).start(vector), period_policy(settings).start())
