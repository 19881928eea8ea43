"""Catch-up: a late or returning peer fetches the last committed state from one of its donors (`snapshot_transfer`).

When a donor dies in the middle, the next one is asked, and the parts that have arrived are kept.
On loss of all donors: CatchUpFailed, and the caller's state is untouched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ...aggregation.vector import Layout
from ..channel import Channel
from ..link.link import PeerLost
from ..members.view import Version
from ..offload import off_loop
from ..testpoints import sometimes
from ..transfer.snapshot import bytes_max, unpack
from ..transfer.snapshot_transfer import fetch
from ..transport import PeerId
from ..wire.frames import PeerMisbehaved
from .state import State, expected, from_snapshot, state_fingerprint

_MANIFESTS_MAX = 4
"""How often a donor may move on to a later round while it is read, before the next donor is tried."""


class CatchUpFailed(Exception):
    """No donor could give a state. The message says what happened with each."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The state to fetch: preferably that of `version`, and none of a round before `least`; `exact`: only that of
    `version`. A fingerprint of 0 is unknown."""

    version: Version
    least: int
    exact: bool = False

    def check(self, round: int) -> None:
        """Raises PeerMisbehaved when a state of `round` is not wanted. Its donor may have begun anew."""
        if round < self.least or (self.exact and round != self.version.round):
            raise PeerMisbehaved(f"it has round {round}, round {self.version.round} is wanted")


async def fetch_state(
    channel: Channel,
    donors: Sequence[PeerId],
    layout: Layout,
    *,
    outer: int,
    wanted: Wanted,
    kept: dict[bytes, bytes] | None = None,
) -> State:
    """The state of one of `donors`, tried in turn. `outer`: how many tensors the outer step has. `kept`: parts by
    hash, kept between tries. Raises CatchUpFailed."""
    kept, failures = {} if kept is None else kept, list[str]()
    version, size_max = wanted.version.round, bytes_max(expected(layout, outer))
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


def _state(blob: bytes, layout: Layout, outer: int, wanted: Wanted) -> State:
    """Unpack a state. Raises PeerMisbehaved when it is no state of this model, or not what the members agreed on."""
    state = from_snapshot(unpack(blob, expected(layout, outer)))
    wanted.check(state.round)
    told = wanted.version.fingerprint != 0 and state.round == wanted.version.round
    if told and state_fingerprint(state) != wanted.version.fingerprint:
        raise PeerMisbehaved(f"its state of round {state.round} is not what the members agreed on")
    return state
