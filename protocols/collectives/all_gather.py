"""All-gather: each member's payload goes to all others, directly, or through a third member that reaches both ends.

Cost, each rank: (p-1) messages and (p-1) n bytes for payloads of n bytes, all concurrently. For two members that cannot
reach each other, a third sends two more payloads, one hop later.
On failure: as for an allreduce.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ...aggregation.schedules.around import around
from ...aggregation.schedules.relayed import Pair
from ...aggregation.schedules.schedule import Step
from ...aggregation.schedules.sharded import Sharded
from ..channel import Channel
from ..group import Group
from ..transfer.chunks import Inbox, StageId
from ..transport import PeerId
from .allreduce import Allreduce


@dataclass(frozen=True, slots=True)
class _ToAll:
    """Part r belongs to rank r and goes to all others: the second half of the sharded schedule, its all-gather."""

    name: ClassVar[str] = "to_all"
    apart: tuple[Pair, ...] = ()

    def parts(self, world: int) -> int:
        return world

    def steps(self, rank: int, world: int) -> tuple[Step, ...]:
        steps = around(Sharded(), self.apart, world).steps(rank, world)
        return steps[len(steps) // 2 :]


async def gather(
    channel: Channel,
    inbox: Inbox,
    group: Group,
    payload: Tensor,
    *,
    stage_id: StageId,
) -> list[tuple[PeerId, Tensor]]:
    """Send this member's `payload` ([n], uint8, the same n for all) to all, and return every member's payload [n], its
    own too, with its sender's id, in rank order. All give the same `stage_id`. Raises PeerLost as `allreduce`."""
    size, rank = payload.numel(), group.rank
    own = torch.empty(size * len(group.ids), dtype=torch.uint8)
    own[size * rank : size * (rank + 1)] = payload
    everything = await Allreduce(channel, inbox, group, _ToAll(group.apart), stage_id).run(own)
    everything[size * rank : size * (rank + 1)] = payload
    return list(zip(group.ids, everything.view(len(group.ids), size), strict=True))
