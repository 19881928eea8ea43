"""The choice of local SGD's allreduce schedule from the settings and the measured links."""

from __future__ import annotations

from ...aggregation.schedules.choice import LinkCosts, fastest
from ...aggregation.schedules.registry import SCHEDULES
from ...aggregation.schedules.schedule import Schedule
from ...aggregation.vector import Layout
from ...protocols.collectives.reducer import ONE_HOP_BYTES, takes_one_hop
from ...protocols.group import Group
from .local_sgd_settings import LocalSGDSettings

SMALL_MODEL_BYTES = 256 * 1024
"""While link costs have not been measured yet, vectors up to this size use halving-doubling, longer ones ring: for
small vectors a schedule of few messages beats one of few bytes on all but the fastest links."""

CODED_BYTES = 32 * 1024
"""On one machine, encoded vectors up to this size use the naive schedule: peers share the cores, so the schedule of the
fewest messages wins. Longer vectors are encoded in cells (`chunks.CELL`): the naive schedule saves hardly any messages
of cells, and one peer would handle them all."""


def schedule_for(wished: LocalSGDSettings, size_bytes: int, group: Group, costs: LinkCosts) -> Schedule:
    """The schedule of ``--schedule`` for a sum of `size_bytes` over `group`.

    ``auto`` chooses. On one machine it is the sharded schedule, in shared memory, or the naive one for small vectors
    that a codec encodes at each hop. Between machines it is the sharded one for a vector so small that each peer sends
    it whole to all others (`takes_one_hop`), otherwise the fastest by `costs`, the link measurements that the peers
    have agreed on, and without measurements, or in a group too large for this choice (`fastest`), halving-doubling or
    the ring (`SMALL_MODEL_BYTES`).
    """
    if wished.schedule.value is not None:
        return wished.schedule.value
    if group.one_machine:
        return SCHEDULES["naive" if _encodes_hops(wished) and size_bytes <= CODED_BYTES else "sharded"]
    if takes_one_hop(size_bytes, len(group.ids)):
        return SCHEDULES["sharded"]
    usual = "halving_doubling" if size_bytes <= SMALL_MODEL_BYTES else "ring"
    others = [name for name in SCHEDULES if name != usual]
    known = [SCHEDULES[name] for name in (usual, *others)]
    return fastest(known, costs, len(group.ids), size_bytes, group.levels_Bps)


def _encodes_hops(wished: LocalSGDSettings) -> bool:
    return wished.codec.value is not None and wished.codec.value.family == "hop"


def uneven(wished: LocalSGDSettings, layout: Layout) -> bool:
    """Whether the sharded schedule cuts the vector into parts by the peers' bandwidths, and not into equal ones.

    True if `wished` allows the sharded schedule, the vector is too long for one hop, and there is no codec, or one that
    encodes at each hop. Other codecs would forget their residuals whenever the parts change, which is with each new
    view. With them uneven parts would save little, because each peer sends to all others, or sends few bytes.
    """
    kept = wished.codec.value is None or _encodes_hops(wished)
    return wished.schedule.text in ("auto", "sharded") and layout.nbytes > ONE_HOP_BYTES and kept
