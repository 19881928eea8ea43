"""Lag: when the others continue from a version of the state that this peer does not hold, this peer fetches it.

The fetched state is checked against the fingerprint that the members agreed on, never against its donor's own claim.
After a round in which this peer's own result differed from the others' it knows only the number of the round, and first
asks the members for the fingerprint (`fingerprints`). A new view with the same version does not interrupt the fetch.
Parts of a snapshot that have arrived are kept between tries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from ...aggregation.vector import Layout
from ..channel import Channel
from ..members.errors import Expelled
from ..members.membership import Membership
from ..members.roster import TRY_FOR
from ..members.view import Version
from ..testpoints import sometimes, witness
from ..transfer.snapshot_transfer import CatchUpFailed
from ..transport import PeerId
from .catch_up import Wanted, fetch_state
from .fingerprints import Fingerprints
from .rounds import Fetches, FetchFailed
from .state import State


class Behind(NamedTuple):
    """The version that this peer has to fetch (its fingerprint is 0 where only the round is known), and the peers
    (donors) that are known to hold it, if any."""

    version: Version
    donors: tuple[PeerId, ...]


class Lag:
    """Fetches the state for one peer when the others continue from a version that this peer does not hold. `behind`:
    the version to fetch; None: this peer is not behind. `adopt` is called with the fetched state."""

    def __init__(
        self,
        channel: Channel,
        membership: Membership,
        layout: Layout,
        outer: int,
        adopt: Callable[[State], None],
        version: Callable[[], Version],
    ) -> None:
        """`outer`: number of tensors of the outer step. `version` returns that of this peer's state."""
        self.behind: Behind | None = None
        self._channel, self._membership, self._layout, self._adopt = channel, membership, layout, adopt
        self._outer, self._fingerprints = outer, Fingerprints(channel, membership, version)
        self._since: tuple[Version, float] | None = None
        self._kept: dict[bytes, bytes] = {}

    def wants(self, version: Version) -> bool:
        """Whether this peer has to fetch `version` now."""
        return self.behind is not None and self.behind.version == version

    async def catch_up(self) -> None:
        """Try once to fetch the state that the others continue from, while it is still the one needed. After a failed
        try wait for a heartbeat interval and return, so that the caller tries again. A member that has failed for 4
        times (`TRY_FOR`) the endpoint's patience raises Expelled, to join anew, because all members wait for it. Raises
        MembershipError as `Membership.until`. To be called only while `behind` is not None."""
        assert self.behind is not None
        version, donors = self.behind
        others = dict.fromkeys((*donors, *self._membership.view.ids))
        now, endpoint = asyncio.get_running_loop().time, self._channel.endpoint
        if self._since is None or self._since[0] != version:
            self._since = (version, now())
        try:
            async with self._membership.only_while(lambda: self.wants(version)):
                view = self._membership.view
                whom = [peer for peer in others if peer != endpoint.id and not view.are_apart(peer, endpoint.id)]
                wanted = Wanted(await self._agreed(version), version.number, exact=True)
                witness(Fetches(version.number, wanted.version.fingerprint, version.number, lags=True))
                fetched = await fetch_state(
                    self._channel, whom, self._layout, outer=self._outer, wanted=wanted, kept=self._kept
                )
                self._kept.clear()
                self._adopt(fetched)
        except CatchUpFailed:
            sometimes("no donor had the state")
            witness(FetchFailed())
            if whom and self._membership.settled and now() - self._since[1] > TRY_FOR * endpoint.patience_s:
                raise Expelled(whom[0]) from None
            await asyncio.sleep(endpoint.interval_s)  # by then a lost donor is replaced, and a busy one has time

    async def _agreed(self, version: Version) -> Version:
        """`version` with its fingerprint. Raises CatchUpFailed when too few members have told it yet."""
        fingerprint = version.fingerprint or await self._fingerprints.of_most(version.number)
        if fingerprint is None:
            raise CatchUpFailed(f"too few members have told the fingerprint of round {version.number}")
        return Version(version.number, fingerprint)
