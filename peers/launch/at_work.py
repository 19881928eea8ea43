"""The lines by which a user learns for which processes a run waits: scripts that are still at work after others have
ended, and peers that take long to stop.

A launcher does not end a script that works on after its peer has left, e.g. evaluates for long, and cannot tell it from
one that hangs. So the user is told, and decides.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from ..records.units import MOST_NAMED, count_text
from .display import Display
from .spawned import Spawned
from .stop_request import QUIET_S, StopRequest

_LOOK_EVERY_S = 0.5
_WAIT_MOST_S = 3600.0
"""The most seconds between two lines."""


class AtWork:
    """Names the scripts that are still at work once another one of the run has ended: those from which nothing was
    heard for `quiet_s` seconds, and at each further line for twice as long as at the line before. Servers are not
    named, as they end with the others. `clock`: the present time in seconds, that of `Spawned.heard_s`."""

    def __init__(self, peers: Sequence[Spawned], quiet_s: float, clock: Callable[[], float]) -> None:
        self._peers, self._quiet_s, self._clock = [peer for peer in peers if not peer.orders.role], quiet_s, clock
        self._since_s = clock()
        """The time of the last line, or, before the first one, that at which no script had ended yet."""

    def line(self) -> str:
        """The line to print now; "": none. To be called repeatedly."""
        now = self._clock()
        if not any(peer.ended is not None or peer.exit_code is not None for peer in self._peers):
            self._since_s = now
            return ""
        silent = [peer for peer in self._peers if now - max(peer.heard_s, self._since_s) >= self._quiet_s]
        if not (working := [peer for peer in silent if peer.running]):
            return ""
        self._since_s, self._quiet_s = now, min(2 * self._quiet_s, _WAIT_MOST_S)
        return _text(working)


def _text(working: Sequence[Spawned]) -> str:
    named = [peer.name + " (has left the run)" * (peer.ended is not None) for peer in working[:MOST_NAMED]]
    if more := len(working[MOST_NAMED:]):
        named.append(count_text(more, "other"))
    scripts = "script" if len(working) == 1 else "scripts"
    return f"still at work: the {scripts} of peer {', '.join(named)}; the run ends with the last script, or by Ctrl-C"


async def tell_waits(stop: StopRequest, peers: Sequence[Spawned], display: Display, at_work: AtWork | None) -> None:
    """Tell the user, by lines on `display`, which scripts are `at_work` (None: the peers have a task), until `stop` is
    set; and if `peers` then take longer than a second to stop, for which ones the run waits."""
    while at_work is not None and not stop.is_set():
        if line := at_work.line():
            display.say(line)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _LOOK_EVERY_S)
    await stop.wait()
    await asyncio.sleep(QUIET_S)
    if running := [peer.name for peer in peers if peer.running]:
        named = ", ".join(running[:MOST_NAMED])
        display.say(f"stopping; waiting for peer {named} to end; Ctrl-C again kills what still runs")
