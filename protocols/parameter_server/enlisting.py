"""Enlisting: the clock, which is the number of its last push, from which a worker takes part in a range."""

from __future__ import annotations

from ...aggregation.consistency import Consistency
from ..transport import PeerId
from .messages import FOREVER
from .store import Copy


def first_clock(copy: Copy, worker: PeerId, asked: int, reached: int, resumed: Consistency | None) -> int:
    """The clock from which `worker` takes part: the highest of the clock that it has `asked` for, the number of its
    last push (unless that was its end, FOREVER), and a least clock. The least clock is that of the slowest other worker
    that takes part, because the others would have to wait for a slower one; but not above the number of the copy's
    entries, because a clock beyond that was only claimed, perhaps by a liar. Where no other takes part now, it is the
    highest clock of any worker, also in the runs before this one (`reached`), because those that come back would be
    ahead of a lower one by more than the bound; but not above the number of updates, perhaps after a liar that is gone.
    A clock beyond these numbers was no lie where this copy is of an older checkpoint than the worker's, and in
    `softsync`, where an update has several pushes: the newcomer then takes more steps. The least clock is 0 before the
    first update, and for a worker that takes part already: it asks again, for the clock that another range has given
    it. `resumed`: the consistency of a resumed run, in which the least clock is lower, so that a worker goes on from
    its own one as far as the consistency allows; None: the worker is a new one."""
    known = copy.clocks.get(worker, 0)
    others = [clock for one, clock in copy.counted().items() if one != worker]
    furthest = max((clock for clock in copy.clocks.values() if clock < FOREVER), default=0)
    slowest = min(*others, copy.version) if others else min(max(furthest, reached), copy.updates)
    least = slowest if copy.updates and worker not in copy.enlisted else 0
    if resumed is not None:
        least = min(least, resumed.least_resumed(furthest))
    return max(asked, known if known < FOREVER else 0, least)
