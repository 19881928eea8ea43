"""Control variates: local steps corrected for a peer's own data, without any more bytes on the wire.

Source: SCAFFOLD (Karimireddy et al., "SCAFFOLD: stochastic controlled averaging for federated learning", ICML 2020,
arXiv 1910.06378), algorithm 1 with option II, all peers in every round and a global step of 1:

    y_i <- y_i - eta (g_i(y_i) - c_i + c)       tau_i times, from y_i = x
    c_i <- the mean of peer i's g_i in this round
    x   <- x - eta tau_eff mean_i c_i,    c <- mean_i c_i

    paper                  here
    x                      the agreed model
    eta (c_i - c)          `ControlVariate.added`, added to the parameters after each local step
    x - eta tau_eff c_i    the contribution of peer i (`fednova` where the tau_i differ)

The paper sends c beside x: twice the traffic. Nothing more is sent here, because each peer derives c from the peers'
mean: ``mean - brought`` is eta tau_eff (c_i - c), by which its own steps miss those of the mean.

A peer contributes only its own displacement, with the corrections subtracted (`without`). In the paper the corrections
cancel in the mean, as the c_i sum up to n c; but that sum would have to be preserved whenever peers come, go, or miss a
round. Here a correction may be old or missing: its peer then drifts as without one, and no bias remains. Training
converges to sum_i p_i g_i(y_i) = 0, with all y_i next to x; without corrections they are apart by tau_i times the
difference of the gradients.

The correction is stored as a displacement, not as a gradient. So it needs no learning rate, and includes the effect of
momentum.
"""

from torch import Tensor


class ControlVariate:
    """The control variate of one peer, updated from round to round; where vectors are [..., n], those of peers
    as rows."""

    def __init__(self, parameters: int | None) -> None:
        """`parameters`: number of elements that local steps change, the first of the vector; None: all."""
        self._parameters = parameters
        self.added: Tensor | None = None
        """The correction [..., parameters] to add to the parameters after each local step; None: there is none yet."""

    def begin(self, mean: Tensor | None, brought: Tensor, steps: float) -> None:
        """Begin a round: compute the correction for its local steps from the previous round. `brought` [..., n]: this
        peer's contribution to that round; `steps`: the local steps that it stands for (tau_eff). `mean` ([n] or [...,
        n]): the mean of all contributions. None: this peer's contribution was not in it, and there is no correction."""
        self.added = None if mean is None else (mean - brought)[..., : self._parameters] / steps

    def without(self, vector: Tensor, steps: int) -> Tensor:
        """The model `vector` [..., n] after `steps` local steps, with their corrections subtracted: a new tensor, or
        `vector` itself where there were none."""
        if self.added is None or not steps:
            return vector
        vector = vector.clone()
        vector[..., : self._parameters].sub_(self.added, alpha=steps)
        return vector
