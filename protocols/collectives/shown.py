"""Showing: after a sum that cannot be right, each member sends its contribution again, to a few others that examine it,
to find the peer at fault (`inquest`).

Part r of every member's message goes to rank r, then to the ranks after it (`aggregation.evidence`). These ranks keep
only the part's norm, its largest magnitude and the weight; then each tells all members what it has seen.
Cost, each rank: (p-1) 3/p n bytes in 3(p-1) messages, one and a half times a sum's, and p-1 small messages.
On failure: as for an allreduce.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...aggregation.evidence import FIELDS, Brought, brought, shifts
from ...aggregation.schedules.relayed import Pair
from ...aggregation.schedules.schedule import Step, adds, sends
from ..channel import Channel
from ..group import Group
from ..transfer.chunks import AttemptId, Inbox
from .all_gather import gather
from .allreduce import Allreduce, Array
from .plan import Run

Statement = npt.NDArray[np.float64]
"""The statements of one rank about the parts that it got from all senders in one shift (`aggregation.evidence`),
float64 [sender, `FIELDS`]: squared norm, largest magnitude, weight."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """Part r goes from all ranks to rank r + `shift`, except from those that are `apart` from it."""

    shift: int
    apart: tuple[Pair, ...]
    name: ClassVar[str] = "shown"

    def parts(self, world: int) -> int:
        return world

    def steps(self, rank: int, world: int) -> tuple[Step, ...]:
        onward = [(rank + distance) % world for distance in range(1, world)]
        onward = [peer for peer in onward if (min(rank, peer), max(rank, peer)) not in self.apart]
        send = tuple(transfer for peer in onward for transfer in sends(peer, [(peer - self.shift) % world]))
        back = onward[::-1]
        return (Step(send, tuple(receipt for peer in back for receipt in adds(peer, [(rank - self.shift) % world]))),)


class _Looking(Allreduce):
    """Sums nothing: records each arriving chunk's norm and peak in `seen`. `tail`: signals and weight at the end."""

    def __init__(self, *args: Any, seen: Statement, tail: int) -> None:
        super().__init__(*args)
        self._seen, self._tail = seen, tail

    def _put(self, values: Array, run: Run, at: int) -> None:
        until, size = at + len(values), len(self._own)
        with np.errstate(over="ignore", invalid="ignore"):
            body = values[: max(0, size - self._tail - at)].astype(np.float64)
            square, peak = float(body.dot(body)), float(np.abs(values).max())
        whole = [number if math.isfinite(number) else math.inf for number in (square, peak)]
        one = self._seen[run.peer]
        one[0] = whole[0] if math.isnan(one[0]) else one[0] + whole[0]
        one[1] = max(one[1], whole[1])
        if until == size:
            one[2] = values[-1]


async def shown(
    channel: Channel,
    inbox: Inbox,
    group: Group,
    message: Tensor,
    *,
    attempt: AttemptId,
    stage: int,
    tail: int,
) -> list[Brought]:
    """The norm, largest magnitude and weight of every member's contribution, in rank order, as the ranks that were
    shown its parts report them (`aggregation.evidence`): the same list on all members. `message` [n + tail]: this
    peer's contribution, the model times its weight, and `tail` elements that are not of the model, the last of them the
    weight; `stage`: the first of the stages of the round that this uses, at most four. Ranks that cannot reach each
    other see nothing of each other. Raises PeerLost."""
    world = len(group.ids)
    statements: Statement = np.zeros((shifts(world), world, FIELDS))
    statements[:, :, 0] = statements[:, :, 2] = math.nan
    for shift, seen in enumerate(statements):
        stage_id = (*attempt, stage + shift)
        await _Looking(channel, inbox, group, _Shown(shift, group.apart), stage_id, seen=seen, tail=tail).run(message)
    payload = torch.from_numpy(statements).view(-1).view(torch.uint8)
    told = await gather(channel, inbox, group, payload, stage_id=(*attempt, stage + len(statements)))
    return brought(torch.stack([one.clone().view(torch.float64).view(statements.shape) for _, one in told]))
