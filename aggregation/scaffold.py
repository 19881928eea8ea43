"""Local steps that do not follow a peer's own data alone: control variates, without a byte more on the way.

Source: SCAFFOLD (Karimireddy et al., "SCAFFOLD: stochastic controlled averaging for federated learning", ICML 2020,
arXiv 1910.06378), algorithm 1 with option II, all peers in every round and a global step of 1:

    y_i <- y_i - eta (g_i(y_i) - c_i + c)       tau_i times, from y_i = x
    c_i <- the mean of peer i's g_i in this round
    x   <- x - eta tau_eff mean_i c_i,    c <- mean_i c_i

    paper                  here
    x                      the agreed model
    eta (c_i - c)          what `ControlVariate.step` adds to the parameters after each local step
    x - eta tau_eff c_i    what peer i brings (`fednova` where the tau_i differ)

The paper sends c beside x: twice the traffic. Here nothing more is sent, as each peer sees c in what the peers' mean
has come to: ``mean - brought`` is eta tau_eff (c_i - c), what so many of its steps lack of the mean's.

What a peer brings is its own way alone, with what was added taken off (`without`). In the paper that cancels in the
mean, as the c_i sum up to n c; but then that sum had to be kept whoever comes, goes, or misses a round. Here a
correction may be old, or missing: its peer drifts as without one, and no bias stays. Training ends where
sum_i p_i g_i(y_i) = 0, with all y_i next to x; uncorrected they are apart by tau_i times what sets the gradients apart.

It is kept as a way, not as a gradient, so it needs no learning rate, and what momentum makes of a gradient is in it.
"""

from collections.abc import Iterable

import torch
from torch import Tensor


class ControlVariate:
    """One peer's, from one round to the next."""

    def __init__(self, parameters: int | None) -> None:
        """`parameters`: elements of the vector, its first, that steps move; None: all."""
        self._parameters = parameters
        self._added: Tensor | None = None
        self._by_parameter: list[Tensor] = []
        self._steps = 0

    def begin(self, mean: Tensor | None, brought: Tensor, steps: float) -> None:
        """A round begins. In the one before this peer brought a vector [n] that stands for so many steps (tau_eff), and
        `mean` [n] came of all; None: not of what it brought."""
        self._steps, self._by_parameter = 0, []
        self._added = None if mean is None else (mean - brought)[: self._parameters] / steps

    def step(self, parameters: Iterable[Tensor]) -> None:
        """A local step has been taken: add to the parameters, which are in the vector's order."""
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
        """`vector` [n] after the local steps, without what was added to them. Changes it."""
        if self._added is not None and self._steps:
            vector[: self._parameters].sub_(self._added, alpha=self._steps)
        return vector
