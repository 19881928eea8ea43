"""Control variates: local steps corrected for a peer's own data, without any more bytes on the wire.

Source: SCAFFOLD (Karimireddy et al., "SCAFFOLD: stochastic controlled averaging for federated learning", ICML 2020,
arXiv 1910.06378), algorithm 1 with option II, all peers in every round and a global step of 1:

    y_i <- y_i - eta (g_i(y_i) - c_i + c)       tau_i times, from y_i = x
    c_i <- the mean of peer i's g_i in this round
    x   <- x - eta tau_eff mean_i c_i,    c <- mean_i c_i

    paper                  here
    x                      the agreed model
    eta (c_i - c)          what `ControlVariate.step` adds to the parameters after each local step
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

from collections.abc import Iterable

import torch
from torch import Tensor


class ControlVariate:
    """The control variate of one peer, updated from round to round."""

    def __init__(self, parameters: int | None) -> None:
        """`parameters`: how many elements of the vector, its first, are changed by local steps; None: all."""
        self._parameters = parameters
        self._added: Tensor | None = None
        self._by_parameter: list[Tensor] = []
        self._steps = 0

    def begin(self, mean: Tensor | None, brought: Tensor, steps: float) -> None:
        """Begin a round. In the previous one this peer contributed the vector `brought` [n], which represents `steps`
        local steps (tau_eff). `mean` [n]: the mean of all contributions; None: this peer's was not in it."""
        self._steps, self._by_parameter = 0, []
        self._added = None if mean is None else (mean - brought)[: self._parameters] / steps

    def step(self, parameters: Iterable[Tensor]) -> None:
        """After a local step, add the correction to the parameters, which are in the vector's order."""
        if self._added is None:
            return
        if not self._by_parameter:
            shaped, start = list(parameters), 0
            for parameter in shaped:
                part = self._added[start : start + parameter.numel()].view(parameter.shape)
                self._by_parameter.append(part.to(parameter.device, parameter.dtype))
                start += parameter.numel()
            parameters = shaped
        self._steps += 1
        with torch.no_grad():
            for parameter, part in zip(parameters, self._by_parameter, strict=True):
                parameter.add_(part)

    def without(self, vector: Tensor) -> Tensor:
        """`vector` [n] after the local steps, with the added corrections subtracted. Changes it."""
        if self._added is not None and self._steps:
            vector[: self._parameters].sub_(self._added, alpha=self._steps)
        return vector
