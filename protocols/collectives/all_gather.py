"""All-gather: everybody's payload to everybody, each straight from its owner, or by a third one that reaches both.

Cost, each rank: (p-1) messages and (p-1) n bytes, of payloads of n bytes; all at once. For two that cannot reach each
other a third sends two payloads more, a hop later. On loss, lateness or death of a
peer: as for an allreduce.
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
from ..transfer.chunks import Inbox, Turn
from ..transport import PeerId
from .allreduce import Allreduce


@dataclass(frozen=True, slots=True)
class _ToAll:
    """Part r is rank r's own, and goes to all others: what the sharded schedule ends with, its latter half."""

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
    turn: Turn,
) -> list[tuple[PeerId, Tensor]]:
    """Every member's `payload` ([n], uint8, n the same for all), by member, in rank order. Raises PeerLost."""
    size, rank = payload.numel(), group.rank
    own = torch.empty(size * len(group.ids), dtype=torch.uint8)
    own[size * rank : size * (rank + 1)] = payload
    everything = await Allreduce(channel, inbox, group, _ToAll(group.apart), turn).run(own)
    everything[size * rank : size * (rank + 1)] = payload
    return list(zip(group.ids, everything.view(len(group.ids), size), strict=True))
