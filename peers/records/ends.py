"""Why a run is over where no setting has ended it, in words for its user (`Result.ended_why`)."""

from __future__ import annotations

from typing import Final

BY_USER: Final = "stopped by its user"
SCRIPT_DONE: Final = "its script is done"
SCRIPTS_ENDED: Final = "its scripts have ended"
WORKERS_FINISHED: Final = "its workers have finished"
USUAL: Final = (SCRIPT_DONE, SCRIPTS_ENDED, WORKERS_FINISHED)
"""The ends that a run is meant to have: a line of a few phrases leaves them out."""


def why_over(*, finished: bool, script: bool, role: str) -> str:
    """Why a run is over for the peers of one machine, whose conversation reports no setting that has ended it; "":
    unknown. `finished`: they were not stopped; `script`: they run a script; `role`: of them all, "" for peers that
    train."""
    if not finished:
        return BY_USER
    return SCRIPTS_ENDED if script else WORKERS_FINISHED if role else ""
