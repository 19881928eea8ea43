"""Vectors that are sent as encoded differences. Every peer that takes a vector in this way has the same estimate of it.

Source: Koloskova et al., "Decentralized stochastic optimization and gossip algorithms with compressed communication"
(CHOCO-SGD), ICML 2019, arXiv 1902.00340, Algorithm 2:

    q_i = Q(y_i - xhat_i),    xhat_i <- xhat_i + q_i        on peer i and on all that take from it

A taker that does not hold the estimate from which a difference leads gets the vector whole (`estimates`).
"""

from __future__ import annotations

from torch import Tensor

from ....aggregation.codecs.codec import GatherCodec, HopCodec, seed_of
from ...transport import PeerId

DifferenceCodec = HopCodec | GatherCodec


def encoded(
    codec: DifferenceCodec, before: Tensor, vector: Tensor, round: int, sender: PeerId
) -> tuple[Tensor, Tensor]:
    """For the sender: the new estimate [n] of its `vector` [n] in `round`, and the encoded difference, uint8, that
    leads to it from the estimate `before` [n]. Raises ValueError for a vector that the codec does not take, for example
    one that is not finite."""
    difference = codec.encode(vector - before, seed_of((round,), sender))
    return decoded(codec, before, difference), difference


def decoded(codec: DifferenceCodec, before: Tensor, difference: Tensor) -> Tensor:
    """The new estimate [n]: that of the round `before` [n] plus the decoded `difference`, with the same bits on all
    peers. Raises ValueError when the codec cannot decode it."""
    return codec.decode(difference, before.numel(), before.dtype).add_(before)
