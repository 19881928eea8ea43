"""Peers that take different numbers of local steps in a round: the number for each, and a mean without bias.

Source: FedNova (Wang et al., "Tackling the objective inconsistency problem in heterogeneous federated optimization",
NeurIPS 2020, arXiv 2007.07481), equation 6, with a_i = (1, ..., 1), that is plain local SGD:

    x <- x - tau_eff sum_i p_i (x - x_i)/tau_i

    paper      here
    x          anchor: what all had before the local steps
    x_i        vector: of peer i, after its steps
    tau_i      steps of peer i in the round
    p_i        proportional to the samples in a step of peer i, not to those it saw in the round
    tau_eff    `effective`: the paper's is sum_i p_i tau_i, and any will do, as where it ends does not depend on it

The plain mean weighted by the samples seen ends where sum_i p_i tau_i grad F_i = 0: a fast peer pulls harder. This ends
where sum_i p_i grad F_i = 0, whatever the tau_i, as far as a peer's way is tau_i times its gradient: peers that go far
between two averages still drift, each at its own rate, and that is left over.

As tau_eff is agreed on before the round, peer i brings ``x + (x_i - x) tau_eff/tau_i`` with weight ``p_i`` times the
period, and the weighted mean is the new x: any allreduce, codec and outer step carries it, and with equal steps it is
what it always was, to the bit.

tau_i = period v_i/v, with v_i the steps a second of peer i and v = sum_i p_i v_i: all need the same time for them, and
sum_i p_i tau_i = period. Where the v_i differ much, slow peers have tau_eff/tau_i far above 1: when each is at its own
end after its steps, x moves by s = tau_eff sum_i p_i/tau_i times what takes it to their mean, and swings for ever where
s > 2. So tau_eff is less than the period there, such that s = `FAR`; at s = 1 the new x is a mean of the x_i.

With momentum rho that begins anew in each round, step k counts (1 - rho^k)/(1 - rho) times, and the paper's
``a_i = (tau_i - rho (1 - rho^tau_i)/(1 - rho))/(1 - rho)`` takes the place of tau_i. Where each goes on with its own
momentum it is tau_i/(1 - rho), which is the rule as it stands.
"""

from typing import NamedTuple

from torch import Tensor

FAR = 1.5
"""Half way between the mean of the models and what swings for ever."""
HELD = 1.05
"""Nobody takes a step more that would make the others wait for longer than this much of their own time."""


class Speeds(NamedTuple):
    """Of local steps, means over the peers; 0 where nothing is known."""

    steps_per_s: float = 0.0
    step_s: float = 0.0


UNKNOWN_SPEEDS = Speeds()


def own_steps(period: int, steps_per_s: float, mean: Speeds) -> int:
    """tau_i of a peer that takes so many steps a second: the nearest whole number to what fits; one at least."""
    if not (period and steps_per_s and mean.steps_per_s):
        return period
    fits = period * steps_per_s / mean.steps_per_s
    nearest = round(fits)
    return max(1, nearest if nearest <= HELD * fits else nearest - 1)


def effective(period: int, mean: Speeds) -> float:
    """tau_eff."""
    swings = mean.steps_per_s * mean.step_s
    return period if swings <= FAR else period * FAR / swings


def normalised(vector: Tensor, anchor: Tensor, share: float, parameters: int | None = None) -> Tensor:
    """What a peer brings that has gone from ``anchor`` to ``vector``, with ``share = tau_eff/tau_i``. Only the first
    ``parameters`` elements have gone anywhere, None: all: what follows, buffers, is brought as it is."""
    if share == 1:
        return vector
    brought = vector.clone()
    brought[:parameters] -= anchor[:parameters]
    brought[:parameters] *= share
    brought[:parameters] += anchor[:parameters]
    return brought
