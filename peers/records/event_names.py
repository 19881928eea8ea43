"""The names of the events in the records of a run."""

from __future__ import annotations

from typing import Literal

EventName = Literal[
    "started",
    "joined",
    "present",
    "left",
    "lost",
    "back",
    "apart",
    "together",
    "asleep",
    "awake",
    "waiting",
    "silent",
    "stalled",
    "goes_on",
    "alone",
    "period",
    "checkpoint",
    "resumed",
    "stopped",
    "ended",
    "error",
    "restarted",
    "checkpoint_failed",
    "records_failed",
    "refused",
    "invite",
]
"""`started`: the run has started with this peer; `joined`: a newcomer is in the run; `resumed`: this peer goes on in a
resumed run. `left`, `lost`: a member has left, or was given up; of the recording peer itself `lost`: its process before
this one was; `back`: one that the recording peer had given up, and that has been in the run all the time, works with it
again. `apart`, `together`: two members can no longer reach each other, or can again. `asleep`, `awake`: this peer has
used up its budget of a day, and has left until it has enough again. `waiting`: too few members answer, and this peer
waits for more; `silent`: a member does not answer meanwhile. `stalled`: a live peer's contribution is missing because
its own work takes far longer than usual; `goes_on`: that is over. `alone`: all other members have gone. `period`: why
an adaptive period stays as it is. `checkpoint`: one was written; `checkpoint_failed`, `records_failed`: it, or a
record, could not be. `stopped`: this peer was stopped by its user. `ended`: the run is over, and not by its number of
local steps. `error`: this peer has failed. `restarted`: its process was started again. `refused`: this peer refused the
messages of another peer. `invite`: the run's invite was revoked or replaced."""
