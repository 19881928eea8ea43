"""The departure of a peer beside a user's own loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from ...protocols.members.membership import Expelled, MembershipError
from ..launch.control import LEAVE_S
from ..launch.session import Opening
from ..peer import Peer


async def part(opening: Opening, peer: Peer | None, why: str, *, done: bool, error: BaseException | None) -> None:
    """Tell the others, and close everything. `peer`: None when it never took part; `done`: it holds the last round's
    result and waits until the others have it."""
    if peer is None:
        opening.endpoint.abort()
        error = error or ValueError("its script ended without run.wrap(optimizer, model)")
    else:
        patience_s = opening.settings.patience_s
        if done:
            await _within(patience_s, peer.farewell())
        await _within(patience_s if done else LEAVE_S, peer.leave(why))
        peer.close()
        opening.ended({"finished": done, "accuracy": None, "forgot": opening.forgot})
    if error is not None:
        opening.failed(error)
    await opening.close()


async def _within(limit_s: float, farewell: Coroutine[Any, Any, None]) -> None:
    """Await `farewell` for at most `limit_s`. Membership errors are ignored: this peer is leaving anyway."""
    with contextlib.suppress(TimeoutError, MembershipError, Expelled):
        async with asyncio.timeout(limit_s):
            await farewell
