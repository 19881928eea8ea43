"""How many local steps a peer takes until the next average. A policy maps a state and a round's numbers to a state.

Every peer must be given identical numbers (`mean.combine` makes them so); then all peers choose the same period without
a word.
"""

import math
from dataclasses import astuple, dataclass, fields, replace
from typing import Protocol

PERIOD_LIMIT = 1_000_000
"""Local steps between two averages, at most: beyond it, it is a typing error."""
FLOAT_MAX = math.nextafter(math.inf, 0)


@dataclass(frozen=True, slots=True)
class PeriodState:
    """What a policy remembers. ``period`` (local steps, >= 1) is the answer; a fixed period uses nothing else.

    ``block`` counts the closed blocks, ``rounds`` the averaging rounds in all, ``block_rounds`` those of the open
    block. The open block began at ``block_started_s`` with learning rate ``block_lr``; ``initial_*`` are the first
    round's, 0 before it.
    """

    period: int
    block: int = 0
    rounds: int = 0
    block_rounds: int = 0
    initial_loss: float = 0.0
    initial_lr: float = 0.0
    block_lr: float = 0.0
    block_started_s: float = 0.0

    def __post_init__(self) -> None:
        _check_whole("period", self.period, 1, PERIOD_LIMIT)
        for name in ("block", "rounds", "block_rounds"):
            _check_whole(name, getattr(self, name), 0, 2**53)
        for name in ("initial_loss", "initial_lr", "block_lr", "block_started_s"):
            _check_number(name, getattr(self, name))

    def to_plain(self) -> list[float]:
        """The fields in order, as floats, for a snapshot."""
        return [float(value) for value in astuple(self)]

    @classmethod
    def from_plain(cls, plain: object) -> "PeriodState":
        """The state that `to_plain` wrote. Raises ValueError on anything else."""
        count = len(fields(cls))
        if not isinstance(plain, list | tuple) or len(plain) != count or not all(map(_is_number, plain)):
            raise ValueError(f"a period state must be a list of {count} finite numbers >= 0, got {plain!r:.200}")
        period, block, rounds, block_rounds = (int(value) if value == int(value) else value for value in plain[:4])
        return cls(period, block, rounds, block_rounds, *map(float, plain[4:]))


class PeriodPolicy(Protocol):
    """Decides after every averaging round how many local steps come before the next."""

    def start(self) -> PeriodState:
        """The state before the first round."""
        ...

    def update(self, state: PeriodState, *, loss: float, elapsed_s: float, learning_rate: float) -> PeriodState:
        """The state after an averaging round; call it once after each.

        ``loss``: mean training loss over the round's local steps of all peers. ``elapsed_s``: seconds since training
        began. ``learning_rate``: of the local optimizer, in the round's last step.
        """
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Average every ``steps`` local steps, 1 to `PERIOD_LIMIT`; 1 is synchronous SGD. Looks at no number."""

    steps: int

    def __post_init__(self) -> None:
        _check_whole("the period", self.steps, 1, PERIOD_LIMIT)

    def start(self) -> PeriodState:
        return PeriodState(self.steps)

    def update(self, state: PeriodState, *, loss: float, elapsed_s: float, learning_rate: float) -> PeriodState:
        return replace(state, period=self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaComm:
    """Average rarely while the loss is high and progress is cheap, often when the noise of local steps is what is left.

    Source: Wang and Joshi, "Adaptive communication strategies to achieve the best error-runtime trade-off in
    local-update SGD" (SysML 2019, arXiv 1810.08313), section 4. The infimum of the loss is taken to be 0, so losses
    must be >= 0.

        paper    here
        tau_0    initial
        T_0      block_s: the period changes between blocks of this length only
        gamma    decay
        F_0      initial_loss: of the first round
        F_l      loss of the round that closes block l
        eta_0    initial_lr; eta_l: learning rate of that round

    When a block closes, the candidate is ``ceil(sqrt(eta_0/eta_l * F_l/F_0) * tau_0)``. It is taken if it is below the
    present period, otherwise ``ceil(gamma * period)`` is: on a plateau the period falls all the same. If the learning
    rate is another one than when the block opened, the candidate is taken whatever it is. The result is held within 1
    and ``period_max``.

    A block lasts ``block_s`` seconds and ``rounds_min`` rounds, whichever is longer: on a slow network one round can
    take longer than ``block_s``, and a single noisy loss per block would halve the period down to 1 just where
    averaging is dearest.

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
    And eta_0 is the first round's, so a warm-up that starts near 0 makes for short periods; a rate of 0 is left out of
    the ratio.

    Loss, lateness, death: nothing here depends on who took part. A failed round is no round: do not call `update` for
    it.
    """

    initial: int = 16
    """Period of the first block, local steps."""
    block_s: float = 2.0
    """Seconds a block lasts, at least; 7 to 10 % of the expected training time is a good choice."""
    decay: float = 0.5
    """Factor on a plateau, above 0, at most 1. Above 0.5 the rounding up stops the fall below 1/(1 - decay)."""
    period_max: int = 256
    """Local steps, at most; a lower learning rate can raise the candidate above ``initial``."""
    rounds_min: int = 5
    """Averaging rounds in a block, at least."""

    def __post_init__(self) -> None:
        _check_whole("period_max", self.period_max, 1, PERIOD_LIMIT)
        _check_whole("the initial period", self.initial, 1, self.period_max)
        _check_whole("rounds_min", self.rounds_min, 1, PERIOD_LIMIT)
        if not 0 < self.block_s < math.inf:
            raise ValueError(f"block_s must be a positive number of seconds, got {self.block_s}")
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay must be above 0 and at most 1, got {self.decay}")

    def start(self) -> PeriodState:
        return PeriodState(self.initial)

    def update(self, state: PeriodState, *, loss: float, elapsed_s: float, learning_rate: float) -> PeriodState:
        """As the protocol says; raises ValueError on a number that is negative or not finite.

        An ``elapsed_s`` from before the open block's start (a run resumed with a fresh clock) starts the block's time
        anew.
        """
        _check_number("the loss of an adaptive period (a fixed one takes any)", loss)
        _check_number("elapsed_s", elapsed_s)
        _check_number("the learning rate", learning_rate)
        if state.rounds == 0:
            state = replace(state, initial_loss=float(loss), initial_lr=learning_rate, block_lr=learning_rate)
        if elapsed_s < state.block_started_s:
            state = replace(state, block_started_s=elapsed_s)
        state = replace(state, rounds=state.rounds + 1, block_rounds=state.block_rounds + 1)
        if state.block_rounds < self.rounds_min or elapsed_s - state.block_started_s < self.block_s:
            return state
        return replace(
            state,
            period=self._choose(state, loss, learning_rate),
            block=state.block + 1,
            block_rounds=0,
            block_lr=learning_rate,
            block_started_s=elapsed_s,
        )

    def _choose(self, state: PeriodState, loss: float, learning_rate: float) -> int:
        if state.initial_loss == 0:
            return state.period  # nobody told a loss: nothing is known of progress
        loss_ratio = _ratio(loss, state.initial_loss)
        lr_ratio = _ratio(state.initial_lr, learning_rate) if min(state.initial_lr, learning_rate) > 0 else 1.0
        candidate = math.ceil(math.sqrt(lr_ratio * loss_ratio) * self.initial)
        if candidate >= state.period and learning_rate == state.block_lr:
            candidate = math.ceil(self.decay * state.period)
        return min(max(candidate, 1), self.period_max)


def parse_period(text: str) -> PeriodPolicy:
    """The policy a user asks for: ``adaptive``, or a number of local steps. Raises ValueError on anything else."""
    word = text.strip()
    if word == "adaptive":
        return AdaComm()
    if word.isascii() and word.isdigit() and len(word) <= len(str(PERIOD_LIMIT)) and 1 <= int(word) <= PERIOD_LIMIT:
        return Fixed(int(word))
    allowed = f"'adaptive' or a whole number of local steps from 1 to {PERIOD_LIMIT}"
    raise ValueError(f"the period must be {allowed}, got {text!r:.60}")


def _ratio(above: float, below: float) -> float:
    return min(above / below, 1e150)  # so that no product of two ratios leaves the range of floats


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= FLOAT_MAX


def _check_whole(name: str, value: float, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}, got {value!r:.60}")


def _check_number(name: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} must be finite and not negative, got {value}")
