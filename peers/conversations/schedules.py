"""The choice of the allreduce schedule."""

from __future__ import annotations

from functools import cache

from ...aggregation.codecs.registry import parse_codec
from ...aggregation.schedules.choice import LinkCosts, fastest
from ...aggregation.schedules.registry import SCHEDULES
from ...aggregation.schedules.schedule import Schedule
from ...aggregation.vector import Layout
from ...protocols.collectives.reducer import ONE_HOP_BYTES, takes_one_hop
from ...protocols.group import Group
from ..settings.settings import Settings

SMALL_MODEL_BYTES = 256 * 1024
"""Up to this size, and before link costs have been measured, a schedule of few messages beats one of few bytes on all
but the fastest links."""

CODED_BYTES = 32 * 1024
"""Up to this size, encoded vectors on one machine use the naive schedule: peers share the cores, so the fewest messages
win. Longer vectors go in cells (`chunks.CELL`): naive saves hardly any of those, and one peer would handle all."""


def schedule_for(settings: Settings, size_bytes: int, group: Group, costs: LinkCosts) -> Schedule:
    """The schedule of ``--schedule`` for a sum of `size_bytes`. ``auto`` chooses: on one machine the sharded schedule,
    done in shared memory, or naive for small vectors that a codec encodes at each hop; between machines the sharded one
    where a sum takes one hop, else the fastest by the agreed measurements of the links."""
    if settings.schedule != "auto":
        return SCHEDULES[settings.schedule]
    if group.one_machine:
        return SCHEDULES["naive" if _encodes_hops(settings.codec) and size_bytes <= CODED_BYTES else "sharded"]
    if takes_one_hop(size_bytes, len(group.ids)):
        return SCHEDULES["sharded"]
    usual = "halving_doubling" if size_bytes <= SMALL_MODEL_BYTES else "ring"
    others = [name for name in SCHEDULES if name != usual]
    known = [SCHEDULES[name] for name in (usual, *others)]
    return fastest(known, costs, len(group.ids), size_bytes, group.levels_Bps)


@cache
def _encodes_hops(codec: str) -> bool:
    return codec != "none" and parse_codec(codec).family == "hop"


def uneven(settings: Settings, layout: Layout) -> bool:
    """Whether the shares of the sharded schedule are sized by bandwidth: where sharing can happen at all, and where a
    new view costs nothing else. With the other codecs each peer sends to all, or sends so little that it does not pay
    for the residual that they then forget."""
    kept = settings.codec == "none" or _encodes_hops(settings.codec)
    return settings.schedule in ("auto", "sharded") and layout.nbytes > ONE_HOP_BYTES and kept
