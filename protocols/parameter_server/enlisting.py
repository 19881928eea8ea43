"""Enlisting: the clock from which a worker takes part in a range."""

from __future__ import annotations

from ...aggregation.consistency import Consistency
from ..transport import PeerId
from .messages import FOREVER
from .store import Copy


def first_clock(copy: Copy, worker: PeerId, asked: int, reached: int, resumed: Consistency | None) -> int:
    """The clock from which `worker` takes part. It is not below that of the slowest other worker, because that one
    would have to wait for it, and not below that of the worker's last push. Where no other takes part now, it is
    not below any worker's, also in the runs before this one (`reached`): it goes on from there, and those that come
    back would be ahead of it by more than the bound. But it is not above the number of updates, because a clock
    beyond that was only claimed, perhaps by a liar that is gone. It was no lie where this copy is of an older
    checkpoint than the worker's, and in `softsync`, where an update has several pushes: the newcomer then takes
    more steps. A worker that asks again, for the clock that another range has given it, gets that clock. `resumed`:
    the consistency of a resumed run, in which a worker goes on from its own clock, as far as that allows; None: the
    worker is a new one."""
    known = copy.clocks.get(worker, 0)
    others = [clock for one, clock in copy.counted().items() if one != worker]
    furthest = max((clock for clock in copy.clocks.values() if clock < FOREVER), default=0)
    alone = min(max(furthest, reached), copy.updates)
    least = min(others, default=alone) if copy.updates and worker not in copy.enlisted else 0
    if resumed is not None:
        least = min(least, resumed.least_resumed(furthest))
    return max(asked, known if known < FOREVER else 0, least)
