"""A group: the peers of one collective, such as a sum, in the order of their ranks.

The members of a view are one, those of a site another; a shard of a parameter server or a stage of a pipeline will be.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from ..aggregation.schedules.relayed import Pair
from ..aggregation.shares import by_bandwidth, coarse
from .transport import PeerId


@dataclass(frozen=True)
class Group:
    """All of its peers give the same, but for `rank`. `ids`: in rank order; `rank`: this peer's, -1 if it is none of
    them; `epoch`: numbers the memberships of a conversation: what is sent in one is not taken in another; `apart`:
    ranks that cannot reach each other, the lower one first; `bandwidths_Bps`: measured, of each, 0: not known;
    `machines`: what each has in common with those with whom it can share memory, "" where it cannot."""

    ids: tuple[PeerId, ...]
    epoch: int
    rank: int
    apart: tuple[Pair, ...] = ()
    bandwidths_Bps: tuple[int, ...] = ()
    machines: tuple[str, ...] = ()

    def among(self, members: Collection[PeerId]) -> Group:
        """The same with these members alone."""
        kept = [rank for rank, peer in enumerate(self.ids) if peer in members]
        new = {rank: number for number, rank in enumerate(kept)}
        return Group(
            tuple(self.ids[rank] for rank in kept),
            self.epoch,
            new.get(self.rank, -1),
            tuple((new[low], new[high]) for low, high in self.apart if low in new and high in new),
            tuple(self.bandwidths_Bps[rank] for rank in kept) if self.bandwidths_Bps else (),
            tuple(self.machines[rank] for rank in kept) if self.machines else (),
        )

    @cached_property
    def one_machine(self) -> bool:
        """Whether all can share memory."""
        return len({*self.machines}) == 1 and self.machines[0] != ""

    @cached_property
    def levels_Bps(self) -> tuple[float, ...] | None:
        """The bandwidth of each as it counts, rounded to few levels; None: nothing is known of any."""
        return coarse(self.bandwidths_Bps) if any(self.bandwidths_Bps) else None

    @cached_property
    def shares(self) -> tuple[float, ...] | None:
        """Which share of a vector each sums up for the others in a sharded allreduce; None: as much as any."""
        return None if self.levels_Bps is None else by_bandwidth(self.levels_Bps)
