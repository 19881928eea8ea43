"""Building local SGD over allreduce from the settings: its first state, its outer step, and the conditions of its
end."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

from torch import Tensor

from ...aggregation.buckets import buckets
from ...aggregation.codecs.codec import allreduce_bytes
from ...aggregation.growth import grown
from ...aggregation.outer import OfParameters, OuterStep, Plain
from ...aggregation.periods.adacomm import AdaComm, telling
from ...aggregation.periods.fixed import Fixed
from ...protocols.channel import Channel
from ...protocols.local_sgd.checkpoint import state_of
from ...protocols.local_sgd.conversation import LocalSGDConversation
from ...protocols.local_sgd.ends import Ends
from ...protocols.local_sgd.local_sgd import LocalSGD
from ...protocols.local_sgd.options import Options
from ...protocols.local_sgd.rounds import LOCAL_SGD
from ...protocols.local_sgd.state import State
from ...protocols.members.membership import Membership
from ..records.metrics import scale_of
from ..task.facts import Facts
from .local_sgd_schedules import schedule_for, uneven
from .local_sgd_settings import LocalSGDSettings
from .registry import Setup


def build(setup: Setup) -> LocalSGDConversation:
    """The local SGD conversation of one peer. Raises ValueError when its checkpoint was made with an outer step that
    has another number of tensors, or has more local steps than the run is to take, and when the run is to end by a
    metric and the task cannot evaluate."""
    settings, wished = setup.settings, LocalSGDSettings.of(setup.settings)
    assert isinstance(setup.membership, Membership), "its members agree on views"
    facts, steps = setup.facts, setup.steps
    state, residual = first_state(wished, facts.vector), None
    if setup.resumed is not None:
        state, residual = state_of(setup.resumed.tensors, setup.resumed.numbers)
    ends = ends_of(wished, facts, steps)
    state = replace(state, counts=ends.begun(state.counts, state.step))
    if steps is not None and state.step > steps:
        gone = f"this run has gone {state.step} local steps"
        raise ValueError(f"{gone}, and is to end after {steps}: give more --steps")

    @cache
    def size_bytes(world: int, unfrozen: tuple[str, ...]) -> int:
        return allreduce_bytes(wished.codec.value, grown(facts.layout, unfrozen), wished.fragments, world)

    averaging = LocalSGD(
        Channel(setup.endpoint, LOCAL_SGD),
        setup.membership,
        setup.stalls,
        layout=facts.layout,
        schedule=lambda group: schedule_for(
            wished, size_bytes(len(group.ids), averaging.state.grown), group, averaging.state.links
        ),
        period=wished.period.value,
        outer=outer_step(wished, facts, state),
        state=state,
        ends=ends,
        codec=wished.codec.value,
        residual=residual,
        buckets=buckets(facts.layout) if wished.brings_gradients() else (),
        fragments=wished.fragments,
        seed=settings.seed,
        uneven=uneven(wished, facts.layout),
        norm_limit=wished.norm_limit,
    )
    options = Options(
        parameters=facts.parameters,
        evaluate_every=settings.evaluate_every if "evaluation" in facts.can else 0,
        gradients=wished.brings_gradients(),
        fresh_optimizer=wished.inner == "reset",
        site_period=wished.site_period,
        meanwhile=_meanwhile(wished),
        overlap_share=wished.overlap_share,
        own_pace=wished.pace == "own",
        corrected=wished.drift == "corrected",
        period_stays=partial(why_period_stays, wished),
        leaves_within_s=settings.patience_s,
        grows=wished.drift == "left" and facts.layout.later is not None,
    )
    return LocalSGDConversation(averaging, setup.clock, options, resumed=setup.resumed is not None)


def ends_of(wished: LocalSGDSettings, facts: Facts, steps: int | None) -> Ends:
    """The conditions on which the run ends. `steps`: local steps of the run; None: there is no such end, or a script
    decides. Raises ValueError when it is to end by a metric, and the replica cannot evaluate."""
    goal, headline = None if wished.stop is None else wished.stop.value, facts.headline
    if headline is None and (goal is not None or wished.stop_patience is not None):
        flag = "--stop-patience" if goal is None else "--stop"
        raise ValueError(f"{flag} needs evaluate(model), and the task has none")
    judged = [*([] if goal is None else [goal.metric]), *([] if headline is None else [headline.name])]
    return Ends(
        steps=steps,
        samples=wished.samples,
        epochs=wished.epochs,
        goal=goal,
        patience=wished.stop_patience,
        headline="" if headline is None else headline.name,
        higher=headline is None or headline.higher,
        shares=frozenset(name for name in judged if scale_of(name, facts.scales).unit == "%"),
        own_pace=wished.pace == "own",
    )


def _meanwhile(wished: LocalSGDSettings) -> int | None:
    """Number of local steps that are taken while a round is averaged; None: peers wait for the average."""
    policy = wished.period.value
    return policy.steps if wished.overlap and isinstance(policy, Fixed) else None


def why_period_stays(wished: LocalSGDSettings, loss: float, learning_rate: float) -> str:
    """The message for the user when the period policy cannot use a round's `loss` or `learning_rate`, and the period
    therefore stays as it is; "" when the policy can use them, or does not go by them."""
    if not isinstance(wished.period.value, AdaComm) or telling(loss, learning_rate):
        return ""
    what = f"the loss is {loss:.3g}" if loss < 0 else f"the learning rate is {learning_rate:.3g}"
    return f"it stays, as {what} and adaptive goes by what is not below 0; --period auto looks at no loss"


def outer_step(wished: LocalSGDSettings, facts: Facts, state: State) -> OuterStep:
    """The outer step of ``--outer`` for the model's vector. It acts on the parameters at the vector's beginning;
    averaged buffers get their mean. Raises ValueError when `state` has another number of outer tensors than that
    step."""
    step = wished.outer.value
    if len(state.outer) != step.tensors:
        raise ValueError(f"this run began with another outer step than {wished.outer.text}: go on with that one")
    if facts.parameters is None or isinstance(step, Plain):
        return step
    return OfParameters(step, facts.layout.size - facts.parameters)


def first_state(wished: LocalSGDSettings, vector: Tensor) -> State:
    """The state in which a run begins: round 0 and step 0, with `vector` [n] as the model, and the first states of the
    outer step and the period policy."""
    return State(0, 0, vector, wished.outer.value.start(vector), wished.period.value.start())
