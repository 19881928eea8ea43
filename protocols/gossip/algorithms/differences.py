"""Vectors that are sent as encoded differences. Every peer that takes a vector in this way has the same estimate of it.

Source: Koloskova et al., "Decentralized stochastic optimization and gossip algorithms with compressed communication"
(CHOCO-SGD), ICML 2019, arXiv 1902.00340, Algorithm 2:

    q_i = Q(y_i - xhat_i),    xhat_i <- xhat_i + q_i        on peer i and on all that take from it

A taker that does not hold the estimate from which a difference leads gets the vector whole (`estimates`).
Only parameters are encoded. Statistics, such as the running variance of batch norm, come as they are: an estimate of a
variance may be below 0, and a model that is mixed by such estimates too.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ....aggregation.codecs.codec import GatherCodec, HopCodec, seed_of
from ....aggregation.codecs.partly import Partly, change
from ...transport import PeerId

DifferenceCodec = HopCodec | GatherCodec


@dataclass(frozen=True, slots=True)
class Differences:
    """The encoding of differences of vectors. The first `parameters` elements of each vector are encoded by `codec`,
    and the others sent as they are; None: all are encoded."""

    codec: DifferenceCodec
    parameters: int | None = None

    def nbytes(self, like: Tensor) -> int:
        """The exact number of bytes of the encoded difference of two vectors like `like` [n]."""
        return self._partly(like).encoded_bytes(like.numel())

    def encoded(self, before: Tensor, vector: Tensor, round: int, sender: PeerId) -> tuple[Tensor, Tensor]:
        """For the sender: the new estimate [n] of its `vector` [n] in `round`, and the encoded difference, uint8, that
        leads to it from the estimate `before` [n]. Raises ValueError for a vector that the codec does not take, for
        example one that is not finite."""
        partly = self._partly(vector)
        # Nothing else holds the change: each vector more, while the estimate is made, is one more in memory.
        difference = partly.encode(change(before, vector, partly.exact), seed_of((round,), sender))
        return self.decoded(before, difference), difference

    def decoded(self, before: Tensor, difference: Tensor) -> Tensor:
        """The new estimate [n], with the same bits on all peers: that of the round `before` [n] plus the decoded
        `difference`, and the statistics in it. Raises ValueError when the codec cannot decode it."""
        partly = self._partly(before)
        estimate = partly.decode(difference, before.numel(), before.dtype)
        trained = before.numel() - partly.exact
        estimate[:trained].add_(before[:trained])
        return estimate

    def _partly(self, like: Tensor) -> Partly:
        exact = 0 if self.parameters is None else like.numel() - self.parameters
        return Partly(self.codec, exact, like.dtype)
