"""CHOCO-SGD: as D-PSGD, over vectors that are sent as encoded differences, however coarse the codec.

Source: Koloskova et al., "Decentralized stochastic optimization and gossip algorithms with compressed communication",
ICML 2019, arXiv 1902.00340, Algorithm 2. With y_i the model after the local steps, and xhat_j the estimate that all
neighbours of peer j have of y_j (`differences`):

    x_i <- y_i + gamma sum_j W_ij (xhat_j - xhat_i)

As W is symmetric, and all holders of xhat_j have the same bits, the mean of all models is left as it is. gamma below 1
keeps the errors of the estimates from growing: the coarser the codec, the smaller. Values in the authors' code: 0.04
for the largest 1 % of the elements, 0.34 for 16 levels, 0.45 for signs. By default it follows from what the codec
leaves of a vector of random numbers (`step_for`), which is close to these.

Without a codec this is elastic averaging (EASGD; Zhang, Choromanska and LeCun, "Deep learning with elastic averaging
SGD", NeurIPS 2015, arXiv 1412.6651) between neighbours, x_i <- y_i - sum_j alpha_ij (y_i - y_j), with the elastic rates
alpha_ij = gamma W_ij. On a star the hub is the paper's centre variable, except that it trains too.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from ....aggregation.codecs.codec import seed_of
from ...work import Update
from .algorithm import Held, OfModels
from .differences import DifferenceCodec

_SAMPLE = 4096


def step_for(codec: DifferenceCodec | None) -> float:
    """The consensus step size gamma that suits `codec` (None: 1). 0: no step size suits it, because the codec's error
    is larger than the vector. With w = 1 - |Q(x) - x|^2 / |x|^2 for random x it is w / (1 + 1.4 (1 - w)): 0.04 for the
    largest 1 %."""
    if codec is None:
        return 1.0
    x = torch.randn(_SAMPLE, generator=torch.Generator().manual_seed(0))
    coded = codec.decode(codec.encode(x, seed_of((0,), "")), x.numel(), x.dtype)
    left = 1.0 - float((coded - x).square().sum() / x.square().sum())
    return max(0.0, left / (1 + 1.4 * (1 - left)))


class Choco(OfModels):
    """CHOCO-SGD with the consensus step size gamma = `step`, above 0 and at most 1. None: the one that suits the codec
    (`suited`), or 1 without a codec. Raises ValueError on another step size."""

    bears_codecs = True

    def __init__(self, step: float | None = None) -> None:
        if step is not None and not 0 < step <= 1:
            raise ValueError(f"the consensus step size is above 0 and at most 1, not {step:g}")
        self._given, self._step = step is not None, 1.0 if step is None else step

    def suited(self, codec: DifferenceCodec | None) -> Self:
        if self._given:
            return self
        if (step := step_for(codec)) <= 0:
            raise ValueError("makes errors larger than what it encodes")
        return type(self)(step)

    def mix(self, held: Held, update: Update, given: Tensor, mixed: Tensor) -> Held:
        # In place: each vector more is one more in memory. As a view, because it is no longer the mix.
        return Held(mixed.sub_(given).mul_(self._step).add_(update.vector).view(-1))
