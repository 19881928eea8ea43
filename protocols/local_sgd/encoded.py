"""The part of a contribution that a codec encodes, and the event of that, for the checkers of a simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...aggregation.codecs.partly import change
from ..testpoints import witness, witnessed
from ..transfer.chunks import AttemptId
from .rounds import Contribution


@dataclass(frozen=True, slots=True)
class Encoded:
    """Event for a simulation's checkers: a peer has encoded its contribution to an attempt. `change` [n]: the
    contribution's difference from the last agreed model, before the codec; `owed` [n]: the peer's compression residual
    before; `sent` [n]: the decoded value of the encoding of ``change + owed``; `left` [n]: the residual after the
    attempt, if it is committed. A contribution without weight sends nothing, and `change` and `sent` are 0. `grown`:
    see `State.grown`."""

    attempt: AttemptId
    grown: tuple[str, ...]
    change: Tensor
    owed: Tensor
    sent: Tensor
    left: Tensor


def change_of(contribution: Contribution, anchor: Tensor) -> Tensor:
    """A contribution's change [n] of the parameters since `anchor` [n], and behind it the statistics as they are."""
    return change(anchor, contribution.vector, contribution.statistics)


def tell_encoded(
    attempt: AttemptId,
    contribution: Contribution,
    anchor: Tensor,
    *,
    owed: Tensor,
    sent: Callable[[], Tensor],
    left: Tensor,
) -> None:
    """In a simulation, report that `contribution` was encoded as its difference from `anchor` [n]. The other arguments
    are the fields of `Encoded`, with statistics as in `change_of`; `sent` is called only where the report is made."""
    if witnessed():
        weighs, nothing = contribution.weight > 0, torch.zeros_like(anchor)
        changed, there = (contribution.vector - anchor, sent()) if weighs else (nothing, nothing)
        trained = anchor.numel() - contribution.statistics
        there = torch.cat((there[:trained], changed[trained:]))  # statistics are sent as they are
        witness(Encoded(attempt, contribution.grown, changed, owed, there, left))
