"""Catch-up: a late or returning peer fetches the last committed state from one of its donors (`snapshot_transfer`).

When a donor dies during the transfer, the next donor is asked, and the parts of the snapshot that have arrived are
kept.
On failure: when no donor is left, CatchUpFailed, and the caller's state is untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ...aggregation.growth import grown, whole
from ...aggregation.vector import Layout
from ..channel import Channel
from ..link.link import PeerLost
from ..members.joining import Fetch
from ..members.view import Version
from ..offload import off_loop
from ..testpoints import sometimes
from ..transfer.snapshot import bytes_max, extra_of, unpack
from ..transfer.snapshot_transfer import CatchUpFailed, fetch
from ..transport import PeerId
from ..wire.frames import PeerMisbehaved
from .state import State, expected, from_snapshot, grown_in, state_fingerprint

_MANIFESTS_MAX = 4
"""How often one donor may go on to a later round during the transfer, so that it begins anew, before the next donor is
asked."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The state that a peer needs: preferably that of `version`, but none of a round before `least`. With `exact`: that
    of `version` only. A version with the fingerprint 0 has a known round and an unknown fingerprint. `least`: the
    number of a round."""

    version: Version
    least: int
    exact: bool = False

    def check(self, round: int) -> None:
        """Raises PeerMisbehaved if a donor offers a state of a `round` before `least`, or, with `exact`, of any round
        but that of `version`."""
        if round < self.least or (self.exact and round != self.version.number):
            raise PeerMisbehaved(f"it has round {round}, round {self.version.number} is wanted")


async def fetch_state(
    channel: Channel,
    donors: Sequence[PeerId],
    layout: Layout,
    *,
    outer: int,
    wanted: Wanted,
    kept: dict[bytes, bytes] | None = None,
) -> State:
    """Fetch a state that `wanted` allows from one of `donors`, asked one after another; it may be of a later round than
    `wanted.version`. Its fingerprint is checked if it is of that version and the fingerprint is known. `layout`: the
    one with which the run began. `outer`: number of tensors of the outer step. `kept`: parts of snapshots by hash, so
    that the caller passes the same dictionary at each try; None: nothing is kept after a failure. Raises CatchUpFailed
    when no donor gave a state."""
    kept, failures = {} if kept is None else kept, list[str]()
    version, size_max = wanted.version.number, bytes_max(expected(whole(layout), outer))
    for donor in donors:
        try:
            for _ in range(_MANIFESTS_MAX):
                blob = await fetch(channel, donor, version=version, check=wanted.check, size_max=size_max, kept=kept)
                if blob is not None:
                    return await off_loop(len(blob), partial(_state, blob, layout, outer, wanted))
            failures.append(f"{donor:.12}: it went on to a later round {_MANIFESTS_MAX} times before one had come over")
        except (PeerLost, PeerMisbehaved) as error:
            sometimes("a donor was lost")
            failures.append(f"{donor:.12}: {error}")
    raise CatchUpFailed("no donor gave a state: " + ("; ".join(failures) or "there is no other peer"))


def fetching(channel: Channel, layout: Layout, outer: int, adopt: Callable[[State], None]) -> Fetch:
    """The function by which a peer that joins fetches the state of a version, or of a later one; it passes that state
    to `adopt`. It raises CatchUpFailed."""

    async def fetch_and_adopt(donors: Sequence[PeerId], version: Version) -> None:
        adopt(await fetch_state(channel, donors, layout, outer=outer, wanted=Wanted(version, version.number)))

    return fetch_and_adopt


def _state(blob: bytes, layout: Layout, outer: int, wanted: Wanted) -> State:
    """Unpack a state. Raises PeerMisbehaved when it is no state of this model, or not what the members agreed on."""
    names = grown_in(extra_of(blob), layout)
    state = from_snapshot(unpack(blob, expected(grown(layout, names), outer)), names)
    wanted.check(state.round)
    told = wanted.version.fingerprint != 0 and state.round == wanted.version.number
    if told and state_fingerprint(state) != wanted.version.fingerprint:
        raise PeerMisbehaved(f"its state of round {state.round} is not what the members agreed on")
    return state
