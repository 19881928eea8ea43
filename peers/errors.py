"""Errors that a user can mend, and how an error is told: in one line."""

from __future__ import annotations

import contextlib
import errno
import traceback
from pathlib import Path

from ..protocols.link.link import PeerLost
from ..protocols.local_sgd.catch_up import CatchUpFailed
from ..protocols.members.membership import JoinRefused, MembershipError
from .machine.open_files import files_hint
from .machine.process_memory import memory_hint, ran_out

MODULE_PREFIX = "samovar_task_"
"""By the name of its module a task's code is known in a traceback."""
_LIBRARY = __name__.partition(".")[0]
_CUT_OFF = (MembershipError, PeerLost, CatchUpFailed)
_PLAIN = (ValueError, OSError, *_CUT_OFF)


class EvaluationFailed(ValueError):
    """A task's evaluate() cannot be used: whichever peer judges the model, it fails. One line, with the place."""


def is_plain(error: BaseException) -> bool:
    """Whether `error` says by itself what to mend. Anything else is a defect, here or in the user's own functions, and
    is told with its kind, and a user's own with the place."""
    return isinstance(error, _PLAIN) and users_line(error) is None and bool(str(error).strip())


def is_cut_off(error: BaseException) -> bool:
    """Whether it is others that were lost, without whom this peer cannot go on."""
    return isinstance(error, _CUT_OFF) and not isinstance(error, JoinRefused)


def users_line(error: BaseException) -> str | None:
    """Where in a task's function or a script the call that failed was made, maybe inside torch; None: it was this
    library that made it."""
    place = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        module, package = (str(frame.f_globals.get(name) or "") for name in ("__name__", "__package__"))
        if package.partition(".")[0] == _LIBRARY:
            place = None
        elif module == "__main__" or module.startswith(MODULE_PREFIX):
            place = f"{_as_seen_from_here(Path(frame.f_code.co_filename))}, line {line}"
    return place


def _as_seen_from_here(file: Path) -> str:
    """Others are told of it, too: where else a script lies is nobody's business."""
    with contextlib.suppress(OSError, ValueError):  # the working folder is gone, or another one
        return str(file.relative_to(Path.cwd()))
    return file.name


def one_line(error: BaseException) -> str:
    """What to tell a user of `error`."""
    text, place = " ".join(str(error).split()), users_line(error)
    told = text if is_plain(error) else f"{type(error).__name__}: {text}".rstrip(": ")
    if isinstance(error, OSError) and error.errno == errno.EMFILE:
        told += f": {files_hint()}"
    if ran_out(error):
        told += memory_hint()
    if place is not None and error.__cause__ is not None:
        told += f" (from {type(error.__cause__).__name__}: {' '.join(str(error.__cause__).split())})"
    return told if place is None else f"{place}: {told}"
