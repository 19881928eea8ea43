"""Peers that take different numbers of local steps in a round: the number for each, and a mean without bias.

Source: FedNova (Wang et al., "Tackling the objective inconsistency problem in heterogeneous federated optimization",
NeurIPS 2020, arXiv 2007.07481), equation 6, with a_i = (1, ..., 1), that is plain local SGD:

    x <- x - tau_eff sum_i p_i (x - x_i)/tau_i

    paper      here
    x          anchor: the common model before the local steps
    x_i        vector: of peer i, after its steps
    tau_i      steps of peer i in the round
    p_i        proportional to the samples in one step of peer i, not to all that it saw in the round
    tau_eff    `effective`: in the paper sum_i p_i tau_i; any value converges to the same point

The plain mean weighted by the samples seen converges to sum_i p_i tau_i grad F_i = 0: a fast peer pulls harder. This
mean converges to sum_i p_i grad F_i = 0, whatever the tau_i, as far as the displacement of a peer is tau_i times its
gradient. Peers that move far between two averages still drift, each at its own rate; that bias remains.

As tau_eff is agreed on before the round, peer i contributes ``x + (x_i - x) tau_eff/tau_i`` with weight ``p_i`` times
the period, and the weighted mean is the new x. So any allreduce, codec and outer step carries it, and with equal steps
it equals the plain mean to the bit.

tau_i = period v_i/v, with v_i the steps a second of peer i and v = sum_i p_i v_i: all peers need the same time, and
sum_i p_i tau_i = period. Where the v_i differ much, slow peers have tau_eff/tau_i far above 1. If each peer reaches its
own minimum within its steps, x moves by s = tau_eff sum_i p_i/tau_i times the way to the mean of these minima, and
oscillates for ever where s > 2. There tau_eff is less than the period, such that s = `FAR`; at s = 1 the new x is a
mean of the x_i.

With momentum rho that is reset in each round, step k counts (1 - rho^k)/(1 - rho) times. The place of tau_i is then
taken by the paper's ``a_i = (tau_i - rho (1 - rho^tau_i)/(1 - rho))/(1 - rho)``. Where each peer keeps its own momentum
it is tau_i/(1 - rho), which gives the rule above unchanged.
"""

from typing import NamedTuple

import torch
from torch import Tensor

FAR = 1.5
"""Half way between s = 1, the mean of the models, and s = 2, where x oscillates for ever."""
HELD = 1.05
"""A peer takes no extra step that would make the others wait for more than this multiple of their own time."""


class Speeds(NamedTuple):
    """The peers' speeds, as means over the peers. ``steps_per_s``: of local steps a second; ``step_s``: of seconds a
    step, which is not the inverse of the other mean. 0: unknown."""

    steps_per_s: float = 0.0
    step_s: float = 0.0


UNKNOWN_SPEEDS = Speeds()


def own_steps(period: int, steps_per_s: float, mean: Speeds) -> int:
    """The number of local steps (tau_i) that a peer takes in a round of ``period`` steps, in proportion to its own
    ``steps_per_s`` over the ``mean`` of all. It is the nearest whole number, or one less where the others would wait
    for this peer more than 5 % longer (`HELD`); at least 1. Returns ``period`` itself where it is 0, or a speed is 0,
    that is unknown."""
    if not (period and steps_per_s and mean.steps_per_s):
        return period
    fits = period * steps_per_s / mean.steps_per_s
    nearest = round(fits)
    return max(1, nearest if nearest <= HELD * fits else nearest - 1)


def effective(period: int, mean: Speeds) -> float:
    """The effective number of steps (tau_eff) of a round of ``period`` steps: the period, or less where the peers'
    speeds differ so much that x would oscillate: where s = ``steps_per_s * step_s`` of the ``mean`` speeds is above
    `FAR`, it is period * FAR / s. With unknown speeds it is the period."""
    swings = mean.steps_per_s * mean.step_s
    return period if swings <= FAR else period * FAR / swings


def normalised(vector: Tensor, anchor: Tensor, share: float | Tensor, parameters: int | None = None) -> Tensor:
    """The contributions ``anchor + share * (vector - anchor)`` [..., n] of peers that have moved from ``anchor`` ([n]
    or [..., n]) to ``vector`` [..., n]. ``share``: tau_eff/tau_i, one number or one a row [...]. Only the first
    ``parameters`` elements are scaled, None: all; the buffers behind them are contributed unchanged. A row whose share
    is 1 is returned with the same bits, and ``vector`` itself is returned if all shares are 1."""
    shares = torch.as_tensor(share)
    same = shares == 1
    if bool(same.all()):
        return vector
    brought = vector.clone()
    brought[..., :parameters] -= anchor[..., :parameters]
    brought[..., :parameters] *= shares.to(vector.dtype)[..., None] if shares.ndim else share
    brought[..., :parameters] += anchor[..., :parameters]
    return brought.where(~same[..., None], vector) if bool(same.any()) else brought
