"""All-gather: everybody's payload to everybody, each straight from its owner.

Cost, each rank: (p-1) messages and (p-1) n bytes, of payloads of n bytes; all at once. On loss, lateness or death of a
peer: as for an allreduce.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ...aggregation.schedules.schedule import Step
from ...aggregation.schedules.sharded import Sharded
from ..endpoint import Endpoint
from ..transport import PeerId
from .allreduce import Allreduce
from .chunks import Inbox, Turn


@dataclass(frozen=True, slots=True)
class _ToAll:
    """Part r is rank r's own, and goes to all others: what the sharded schedule ends with."""

    name: ClassVar[str] = "to_all"

    def parts(self, world: int) -> int:
        return world

    def steps(self, rank: int, world: int) -> tuple[Step, ...]:
        return Sharded().steps(rank, world)[1:]


async def gather(
    endpoint: Endpoint, inbox: Inbox, members: Sequence[PeerId], payload: Tensor, *, turn: Turn
) -> list[tuple[PeerId, Tensor]]:
    """Every member's `payload` ([n], uint8, n the same for all), by member, in rank order. Raises PeerLost."""
    size, rank = payload.numel(), members.index(endpoint.id)
    own = torch.empty(size * len(members), dtype=torch.uint8)
    own[size * rank : size * (rank + 1)] = payload
    everything = await Allreduce(endpoint, inbox, members, _ToAll(), turn).run(own)
    everything[size * rank : size * (rank + 1)] = payload
    return list(zip(members, everything.view(len(members), size), strict=True))
