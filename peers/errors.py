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
"""Prefix of the module name of a task's code, by which a traceback is recognised as the task's."""
_LIBRARY = __name__.partition(".")[0]
_CUT_OFF = (MembershipError, PeerLost, CatchUpFailed)
_PLAIN = (ValueError, OSError, *_CUT_OFF)


class EvaluationFailed(ValueError):
    """A task's evaluate() fails, and would fail on any peer. One line, with the place."""


def is_plain(error: BaseException) -> bool:
    """Whether the text of `error` alone says what to mend. Any other error is a defect, in the library or in the user's
    code; it is reported with its type, and one in the user's code with its place."""
    return isinstance(error, _PLAIN) and users_line(error) is None and bool(str(error).strip())


def is_cut_off(error: BaseException) -> bool:
    """Whether `error` says that this peer has lost others without whom it cannot continue."""
    return isinstance(error, _CUT_OFF) and not isinstance(error, JoinRefused)


def users_line(error: BaseException) -> str | None:
    """The place in a task's function or a script from which the failing call was made, perhaps through torch; None when
    the library made it."""
    place = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        module, package = (str(frame.f_globals.get(name) or "") for name in ("__name__", "__package__"))
        if package.partition(".")[0] == _LIBRARY:
            place = None
        elif module == "__main__" or module.startswith(MODULE_PREFIX):
            place = f"{_as_seen_from_here(Path(frame.f_code.co_filename))}, line {line}"
    return place


def _as_seen_from_here(file: Path) -> str:
    """The path relative to the working folder, else only the name: other peers see it, and need not know the user's
    paths."""
    with contextlib.suppress(OSError, ValueError):  # the working folder is gone, or another one
        return str(file.relative_to(Path.cwd()))
    return file.name


def one_line(error: BaseException) -> str:
    """`error` as one line for the user."""
    text, place = " ".join(str(error).split()), users_line(error)
    told = text if is_plain(error) else f"{type(error).__name__}: {text}".rstrip(": ")
    if isinstance(error, OSError) and error.errno == errno.EMFILE:
        told += f": {files_hint()}"
    if ran_out(error):
        told += memory_hint()
    if place is not None and error.__cause__ is not None:
        told += f" (from {type(error.__cause__).__name__}: {' '.join(str(error.__cause__).split())})"
    return told if place is None else f"{place}: {told}"
