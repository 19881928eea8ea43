"""The departure of a script's peer from its run."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...protocols.members.errors import Expelled, MembershipError
from ..errors import one_line
from ..launch.control import LEAVE_S
from ..launch.run_folder import conclude, keep_result, spent
from ..launch.session import Session
from ..launch.unbegun import remove_unbegun
from ..peer import Peer
from ..reasons import reason
from ..records.ends import BY_USER
from ..records.tally import Tally


def why_left(error: BaseException | None) -> str:
    """The reason, for the other peers' users, why a peer leaves: its user stopped the script, or its script ended by
    `error`, or, if that is None or SystemExit, without a call of `leave`."""
    if isinstance(error, KeyboardInterrupt):
        return BY_USER
    return (
        "its script ended"
        if error is None or isinstance(error, SystemExit)
        else f"its script failed: {one_line(error)}"
    )


async def part_from(session: Session, peer: Peer, why: str, *, done: bool) -> None:
    """Tell the other peers why this one leaves; they wait for it no more. A second call does nothing. `done`: as in
    `shut_down`."""
    with contextlib.suppress(TimeoutError, MembershipError, Expelled):  # it is leaving anyway
        async with asyncio.timeout(session.settings.patience_s if done else LEAVE_S):
            await peer.conversation.leave(why)


async def shut_down(
    session: Session,
    peer: Peer | None,
    why: str,
    *,
    done: bool,
    error: BaseException | None,
    measured: Mapping[str, Any],
    steps: int,
) -> None:
    """Tell the other peers and the launcher why this peer leaves, and close its endpoint and its session. Without a
    launcher, write the result to the run's folder. `peer`: None when the script ended before `wrap`, which the launcher
    is told as a failure; `done`: the script is done, and neither failed nor was stopped; `error`: the script's failure;
    None: it has not failed. `measured`: `metrics` and `scales` of its last model, which are in no record; `steps`: all
    local steps that it has taken."""
    if peer is None:
        session.endpoint.abort()
        error = error or ValueError("its script ended without run.wrap(optimizer, model)")
    else:
        if why == BY_USER:
            peer.stopped(steps)
        await part_from(session, peer, why, done=done)
        peer.close()
        session.ended({"finished": done, "forgot": session.forgot, **measured})
        if session.control is None and (error is None or peer.clock.started):
            _keep_result(Path(session.orders.folder), peer.name, measured, why)
    if error is not None:
        session.failed(error)
    await session.close()
    if session.control is None and error is not None and (peer is None or not peer.clock.started):
        remove_unbegun(Path(session.orders.folder), session.settings)


def _keep_result(folder: Path, name: str, measured: Mapping[str, Any], why: str) -> None:
    """Write `result.json` of this peer's records, and the trace, but no report, which takes seconds. If they cannot be
    written, print a line on stderr. `name`: the peer's; `why`: it has left the run."""
    told, scales = [(name, measured["metrics"])] if measured["metrics"] else [], measured["scales"]
    wall_s = spent(folder).wall_s
    result = conclude(folder, Tally(), wall_s=wall_s, measured=told, scales=scales, why=why, report=False)
    try:
        keep_result(result, Tally())
    except (OSError, ValueError) as error:
        print(f"samovar: {folder}: not all of the result could be written: {reason(error)}", file=sys.stderr)
