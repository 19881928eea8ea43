"""A group: the peers of one collective, such as a sum, in the order of their ranks.

The members of a view are one, those of a site another; a shard of a parameter server or a stage of a pipeline will be.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from ..aggregation.schedules.relayed import Pair
from ..aggregation.schedules.shares import by_bandwidth, coarse
from .transport import PeerId
from .wire.frames import PeerMisbehaved

_AHEAD_MAX = 1 << 36
"""How many epochs somebody may be ahead of another in a run."""


def may_follow(epoch: int, present: int) -> bool:
    """Whether honest peers may have come to `epoch` while this one is in the `present` one. There has to be room above
    it for all others."""
    return 0 < epoch - present <= _AHEAD_MAX


def check_sense(epoch: int, present: int, name: str = "epoch") -> None:
    """Raises PeerMisbehaved when nobody can have come to `epoch` yet. `name`: what a conversation calls its epochs."""
    if epoch > present and not may_follow(epoch, present):
        raise PeerMisbehaved(f"spoke of {name} {epoch}, this is {present}")


@dataclass(frozen=True)
class Group:
    """All of its peers give the same, but for `rank`. `ids`: in rank order; `rank`: this peer's, -1 if it is none of
    them; `epoch`: numbers the memberships of a conversation: what is sent in one is not taken in another; `apart`:
    ranks that cannot reach each other, the lower one first; `bandwidths_Bps`: measured, of each, 0: not known;
    `machines`: what each has in common with those with whom it can share memory, "" where it cannot; `expected`: peers
    outside it that may be of the next one, None: anybody may."""

    ids: tuple[PeerId, ...]
    epoch: int
    rank: int
    apart: tuple[Pair, ...] = ()
    bandwidths_Bps: tuple[int, ...] = ()
    machines: tuple[str, ...] = ()
    expected: frozenset[PeerId] | None = frozenset()

    def may_be_of_next(self, peer: PeerId) -> bool:
        """Whether `peer` is in this group, or may be in the next one as far as this peer knows."""
        return self.expected is None or peer in self.expected or peer in self.ids

    def check_sense(self, epoch: int) -> None:
        """Raises PeerMisbehaved when nobody can have come to `epoch` yet."""
        check_sense(epoch, self.epoch)

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
            self.expected,
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


NO_GROUP = Group((), 0, -1, expected=None)
"""Before the first one."""
