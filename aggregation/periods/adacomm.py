"""AdaComm: average rarely while the loss is high, and often when the noise of local steps dominates."""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from .policy import PERIOD_LIMIT, Numbers, PeriodState, check_number, check_whole, recall

_SAME = 0.02
"""Learning rates within this relative difference count as equal: the mean of equal rates over peers, in the model's
dtype, has a rounding error that would otherwise count as a change in every round."""


class Block(NamedTuple):
    """The memory of `AdaComm`. A block is a stretch of rounds with one period. ``block``: number of closed blocks;
    ``rounds``: rounds so far; ``block_rounds``: those of the open block; ``block_lr`` and ``block_started_s``: learning
    rate and time when it began; ``initial_*``: loss and learning rate of the first round, 0 before it."""

    block: float
    rounds: float
    block_rounds: float
    initial_loss: float
    initial_lr: float
    block_lr: float
    block_started_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaComm:
    """Average rarely while the loss is high and progress is cheap, often when the noise of local steps dominates.

    Source: Wang and Joshi, "Adaptive communication strategies to achieve the best error-runtime trade-off in
    local-update SGD" (SysML 2019, arXiv 1810.08313), section 4. The infimum of the loss is taken to be 0. A loss below
    that, as of a log-likelihood or a policy gradient, carries no information: the period stays (`telling`).

        paper    here
        tau_0    initial
        T_0      block_s: the period changes only between blocks of this length
        gamma    decay
        F_0      initial_loss: of the first round
        F_l      loss of the round that closes block l
        eta_0    initial_lr; eta_l: learning rate of that round

    When a block closes, the candidate is ``ceil(sqrt(eta_0/eta_l * F_l/F_0) * tau_0)``. It is taken if it is below the
    present period, otherwise ``ceil(gamma * period)`` is, so the period falls even on a plateau. If the learning rate
    has changed since the block opened, the candidate is taken in any case. The result is held within 1 and
    ``period_max``.

    A block lasts ``block_s`` seconds and ``rounds_min`` rounds, whichever is longer. On a slow network one round can
    take longer than ``block_s``, and a single noisy loss for each block would halve the period down to 1 just where
    averaging is most expensive.

    Cost: one allreduce in ``period`` steps. Where an allreduce takes alpha times as long as a step, training takes
    (1 + alpha/period)/(1 + alpha) of the time of synchronous SGD for the same steps.

    Why the square root of eta_0/eta. With m peers, Y seconds a step and D a round, Lipschitz constant L and variance
    s^2, the error after T seconds is at most ``2 F/(eta T) (Y + D/tau) + eta L s^2/m + eta^2 L^2 s^2 (tau - 1)``. That
    is least at ``tau^2 = 2 F D/(eta^3 L^2 s^2 T)``: the root over F, but the power 3/2 over eta. The bound only holds
    for ``eta L + eta^2 L^2 tau (tau - 1) <= 1`` though, that is for eta tau bounded, while the power 3/2 lets eta tau
    grow like eta^(-1/2). And convergence needs ``sum eta tau`` infinite but ``sum eta^2 tau`` and ``sum eta^3 tau^2``
    finite: with tau ~ eta^-p the last sums eta^(3-2p), a constant for p = 3/2, which diverges however eta decays (F
    stays above a floor). With eta ~ 1/l all three hold for 0 <= p < 1. The paper's practice, p = 1/2, is the middle of
    that, and makes the rule sqrt(F/eta): the loss against the floor ``eta L s^2/m`` that this learning rate can reach.

    Two consequences. With a learning rate that changes all the time (cosine, warm-up) every block takes its candidate.
    And eta_0 is the first round's, so a warm-up that starts near 0 leads to short periods; a rate of 0 is left out of
    the ratio.

    Failures: the policy does not depend on which peers contributed. A failed round does not count: do not call
    `update` for it. Raises ValueError on a setting out of its range.
    """

    watches: ClassVar[bool] = False
    initial: int = 16
    """Period of the first block, local steps."""
    block_s: float = 2.0
    """Seconds a block lasts, at least; 7 to 10 % of the expected training time is a good choice."""
    decay: float = 0.5
    """Factor on a plateau, above 0, at most 1. Above 0.5, rounding up stops the fall below 1/(1 - decay)."""
    period_max: int = 256
    """Local steps, at most; a lower learning rate can raise the candidate above ``initial``."""
    rounds_min: int = 5
    """Averaging rounds in a block, at least."""

    def __post_init__(self) -> None:
        check_whole("period_max", self.period_max, 1, PERIOD_LIMIT)
        check_whole("the initial period", self.initial, 1, self.period_max)
        check_whole("rounds_min", self.rounds_min, 1, PERIOD_LIMIT)
        if not 0 < self.block_s < math.inf:
            raise ValueError(f"block_s must be a positive number of seconds, got {self.block_s}")
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay must be above 0 and at most 1, got {self.decay}")

    def start(self) -> PeriodState:
        return PeriodState(self.initial)

    def update(self, state: PeriodState, numbers: Numbers) -> PeriodState:
        """The state after an averaging round with these ``numbers`` (`PeriodPolicy.update`); it is ``state`` itself if
        the loss or the learning rate is below 0. Raises ValueError on a number that is not finite, and on a negative
        ``elapsed_s``.

        An ``elapsed_s`` from before the open block's start (a run resumed with a fresh clock) restarts the block's
        time.
        """
        loss, elapsed_s, learning_rate, _ = numbers
        check_number("the loss", loss, low=-math.inf)
        check_number("elapsed_s", elapsed_s)
        check_number("the learning rate", learning_rate, low=-math.inf)
        if not telling(loss, learning_rate):
            return state
        now = Block(*map(abs, recall(state, len(Block._fields))))
        if now.rounds == 0:
            now = now._replace(initial_loss=float(loss), initial_lr=learning_rate, block_lr=learning_rate)
        if elapsed_s < now.block_started_s:
            now = now._replace(block_started_s=elapsed_s)
        now = now._replace(rounds=now.rounds + 1, block_rounds=now.block_rounds + 1)
        if now.block_rounds < self.rounds_min or elapsed_s - now.block_started_s < self.block_s:
            return PeriodState(state.period, now)
        period = self._choose(state.period, now, loss, learning_rate)
        opened = now._replace(block=now.block + 1, block_rounds=0.0, block_lr=learning_rate, block_started_s=elapsed_s)
        return PeriodState(period, opened)

    def _choose(self, period: int, now: Block, loss: float, learning_rate: float) -> int:
        if now.initial_loss == 0:
            return period  # no peer reported a loss: progress is unknown
        loss_ratio = _ratio(loss, now.initial_loss)
        lr_ratio = _ratio(now.initial_lr, learning_rate) if min(now.initial_lr, learning_rate) > 0 else 1.0
        candidate = math.ceil(math.sqrt(lr_ratio * loss_ratio) * self.initial)
        if candidate >= period and math.isclose(learning_rate, now.block_lr, rel_tol=_SAME):
            candidate = math.ceil(self.decay * period)
        return min(max(candidate, 1), self.period_max)


def telling(loss: float, learning_rate: float) -> bool:
    """Whether AdaComm's rule can use a round with these numbers: whether neither is below 0, as it takes the square
    root of both. (A linear learning-rate schedule goes below 0 when it is stepped beyond its end.)"""
    return loss >= 0 and learning_rate >= 0


def _ratio(above: float, below: float) -> float:
    return min(above / below, 1e150)  # so that no product of two ratios leaves the range of floats
