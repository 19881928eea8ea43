"""The period policy, the outer step and the first state of a run, from its settings."""

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
    """The message for the user when the period policy cannot use a round's loss or learning rate; "" when it can."""
    if settings.period != "adaptive" or telling(loss, learning_rate):
        return ""
    what = f"the loss is {loss:.3g}" if loss < 0 else f"the learning rate is {learning_rate:.3g}"
    return f"it stays, as {what} and adaptive goes by what is not below 0; --period auto looks at no loss"


def outer_step(settings: Settings, parameters: int | None, state: State) -> OuterStep:
    """The outer step of ``--outer``, for a vector whose first `parameters` elements are parameters; None: all are.
    Raises ValueError when `state` is of another outer step."""
    step = parse_outer(settings.outer)
    if len(state.outer) != step.tensors:
        raise ValueError(f"this run began with another outer step than {settings.outer}: go on with that one")
    return step if parameters is None or isinstance(step, Plain) else OfParameters(step, parameters)


def first_state(settings: Settings, vector: Tensor) -> State:
    """The state in which a run begins: round 0, with the model as the seed initialised it."""
    return State(0, 0, vector, parse_outer(settings.outer).start(vector), period_policy(settings).start())
