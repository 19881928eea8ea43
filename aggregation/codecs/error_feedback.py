"""Error feedback: a codec's error in a round is added to the next round's values, so that in the end nothing is lost.

Source: Karimireddy et al., "Error feedback fixes SignSGD and other gradient compression schemes" (ICML 2019, arXiv
1901.09847), Algorithm 2; the same as m_t of Stich et al. (NeurIPS 2018) and Algorithm 2 of PowerSGD.

    paper     here
    e_t       residual
    p_t       corrected = values + residual; the values are differences or gradients, already times the learning rate
    Delta_t   sent: the decoded payload of this peer's message, or `Sketch.own`

Always ``residual + sent = values + residual before``, so after any number of rounds ``sum of sent + residual = sum of
values``. In floating point there are two roundings, that of ``corrected`` and that of ``corrected - sent``; the second
is none for casts, int8 without overflow, top_k and random_k, as there ``sent`` is 0 or within a factor 2 of
``corrected``.

Cost: nothing on the wire; a vector of memory, two passes over it.

Vectors are [..., n]: leading axes are independent peers, each with its residual.

Failures: call `keep` only after the round has committed; a failed round has sent nothing. A peer's residual is lost
with the peer, so a checkpoint has the residual. When the membership changes, a peer that takes over a model which it
has not trained resets its residual.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..vector import all_finite


@dataclass(slots=True)
class ErrorFeedback:
    """The memory of one peer, or of peers as rows: ``residual`` [..., n], zero at first. Build it with `of`.

    A round: ``corrected = feedback.correct(values)``, encode that, exchange, and once the round has committed
    ``feedback.keep(corrected, sent)``.
    """

    residual: Tensor

    @classmethod
    def of(cls, vector: Tensor) -> "ErrorFeedback":
        """A memory for values like ``vector`` [..., n], with a residual of zeros."""
        return cls(torch.zeros_like(vector, requires_grad=False))

    def correct(self, values: Tensor) -> Tensor:
        """Returns the vector to encode [..., n], a new one: the values plus the residual. The residual is not changed.
        Raises ValueError when the values have another shape or dtype than the residual."""
        self._check(values)
        return values.detach() + self.residual

    def keep(self, corrected: Tensor, sent: Tensor) -> None:
        """Store the new residual, ``corrected - sent``; both are like the residual. Raises ValueError, and keeps the
        old residual, if a shape or dtype differs, or if the new residual is not finite in any row."""
        self._check(corrected)
        self._check(sent)
        residual = corrected.detach() - sent.detach()
        if not all_finite(residual):
            raise ValueError("what error feedback should remember is not finite")
        self.residual = residual

    def reset(self) -> None:
        """Set the residual to zero."""
        self.residual = torch.zeros_like(self.residual)

    def _check(self, vector: Tensor) -> None:
        if vector.shape != self.residual.shape or vector.dtype != self.residual.dtype:
            got, want = (f"{t.dtype} of shape {tuple(t.shape)}" for t in (vector, self.residual))
            raise ValueError(f"error feedback for {want} does not take {got}")
