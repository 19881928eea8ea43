"""A group: the peers of one collective, such as a sum, in the order of their ranks. The members of a view are a group,
and so are the members of a site."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

from ..aggregation.schedules.relayed import Pair
from ..aggregation.schedules.shares import by_bandwidth, coarse
from .transport import PeerId
from .wire.frames import PeerMisbehaved

_AHEAD_MAX = 1 << 36
"""The most epochs that one honest peer may be ahead of another in a run."""


def may_follow(epoch: int, present: int) -> bool:
    """Whether `epoch`, which another peer has named, is later than `present`, this peer's own, and by no more than an
    honest peer may be ahead: 2^36."""
    return 0 < epoch - present <= _AHEAD_MAX


def check_sense(epoch: int, present: int, name: str = "epoch") -> None:
    """Raises PeerMisbehaved when `epoch`, which another peer has named, is more than 2^36 ahead of this peer's own,
    `present`; an earlier one passes. `name`: the conversation's word for its epochs, for the error's text."""
    if epoch > present and not may_follow(epoch, present):
        raise PeerMisbehaved(f"spoke of {name} {epoch}, this is {present}")


@dataclass(frozen=True)
class Group:
    """The peers of one collective. All members have equal groups, except for `rank`. `ids`: in rank order; `rank`: this
    peer's, -1 if it is no member. `epoch`: number of the group among those of its conversation; messages of one epoch
    are not used in another. `apart`: pairs of ranks that cannot reach each other, the lower rank first.
    `bandwidths_Bps`: measured, by rank; 0: unknown; empty: all are. `machines`: by rank, equal for ranks that can share
    memory, "" for a rank that cannot; empty: no rank can. `expected`: peers outside the group that may be in the next
    one; None: any peer may."""

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
        """Raises PeerMisbehaved when `epoch`, which a peer has named, is too far ahead of this group's."""
        check_sense(epoch, self.epoch)

    def among(self, members: Collection[PeerId]) -> Group:
        """The group of those of its members that are in `members`, in the same order, in the same epoch. Their ranks
        are counted anew from 0; this peer's is -1 if it is not among them."""
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
    def digest(self) -> int:
        """A hash of the ids in rank order: 63 bits."""
        return int.from_bytes(blake2b("\n".join(self.ids).encode(), digest_size=8).digest(), "big") >> 1

    @cached_property
    def one_machine(self) -> bool:
        """Whether all members can share memory with each other; False without members."""
        return len({*self.machines}) == 1 and self.machines[0] != ""

    @cached_property
    def levels_Bps(self) -> tuple[float, ...] | None:
        """The bandwidth of each rank in bytes a second, with small differences removed and unknown ones estimated
        (`aggregation.schedules.shares.coarse`); None: none was measured."""
        return coarse(self.bandwidths_Bps) if any(self.bandwidths_Bps) else None

    @cached_property
    def shares(self) -> tuple[float, ...] | None:
        """The share of a vector, by rank, that each member sums in a sharded allreduce: larger for faster members by
        `levels_Bps`, but not in proportion, and perhaps 0; together 1. None: equal shares, also where no bandwidth is
        known."""
        return None if self.levels_Bps is None else by_bandwidth(self.levels_Bps)


NO_GROUP = Group((), 0, -1, expected=None)
"""The group before the first one: it has no members, and any peer may be in the next one."""
