"""Errors that a user can mend, and the conversion of any error into one line of text for a user."""

from __future__ import annotations

import contextlib
import errno
import traceback
from pathlib import Path
from typing import Any

from ..protocols.link.link import PeerLost
from ..protocols.members.errors import JoinRefused, MembershipError
from ..protocols.transfer.snapshot_transfer import CatchUpFailed
from .machine.open_files import files_hint
from .machine.process_memory import memory_hint, ran_out

MODULE_PREFIX = "samovar_task_"
"""Prefix of the module name of a user's file, a task or a conversation, by which a traceback is recognised as the
user's."""
_LIBRARY = __name__.partition(".")[0]
_CUT_OFF = (MembershipError, PeerLost, CatchUpFailed)
_PLAIN = (ValueError, OSError, *_CUT_OFF)


class RunFailed(Exception):
    """A run that was begun on this machine has failed. The text is one line for the user. `result`: the
    `samovar.Result` of the run so far; None: there is none."""

    def __init__(self, why: str, result: Any = None) -> None:
        super().__init__(why)
        self.result = result


class EvaluationFailed(ValueError):
    """A task's evaluate() fails, and would fail on any peer. The text is one line, with the file and line in the user's
    code where these are known."""


def is_plain(error: BaseException) -> bool:
    """Whether the text of `error` alone tells a user what to mend: it is a ValueError, an OSError, or an error that
    ends this peer's membership or contact, has a text, and does not come from a call by the user's code (`users_line`
    is None). Any other error is a defect in the library or in the user's code: it is reported with its type, and a
    defect in the user's code also with file and line number."""
    return isinstance(error, _PLAIN) and users_line(error) is None and bool(str(error).strip())


def is_cut_off(error: BaseException) -> bool:
    """Whether `error` says that this peer has lost contact with peers that it needs to continue. A refusal to let it in
    does not count."""
    return isinstance(error, _CUT_OFF) and not isinstance(error, JoinRefused)


def users_line(error: BaseException) -> str | None:
    """File and line in a task file or script from which the failing call was made, directly or through torch. None when
    the library made the call, and for any error that ends this peer's membership or contact, which a user's own
    conversation may raise too."""
    if isinstance(error, _CUT_OFF):
        return None
    place = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        module, package = (str(frame.f_globals.get(name) or "") for name in ("__name__", "__package__"))
        if package.partition(".")[0] == _LIBRARY:
            place = None
        elif module == "__main__" or module.startswith(MODULE_PREFIX):
            place = f"{_as_seen_from_here(Path(frame.f_code.co_filename))}, line {line}"
    return place


def place_in_main(error: BaseException) -> str:
    """The place, "FILE, line N", in the running script (`__main__`) from which the failing call was made, the innermost
    one; "": no frame of `error` is in the script."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__") == "__main__":
            place = f"{_as_seen_from_here(Path(frame.f_code.co_filename))}, line {line}"
    return place


def _as_seen_from_here(file: Path) -> str:
    """The path relative to the working folder, or else the file name alone: the text is sent to other peers, which need
    not know the user's paths."""
    with contextlib.suppress(OSError, ValueError):  # the working folder is gone, or another one
        return str(file.relative_to(Path.cwd()))
    return file.name


def one_line(error: BaseException) -> str:
    """`error` as one line for the user: the place in the user's code, if it comes from there; its type, unless the text
    alone is enough (`is_plain`); its text; and a hint where files or memory ran out. With a place also the error's
    cause."""
    text, place = " ".join(str(error).split()), users_line(error)
    told = text if is_plain(error) else f"{type(error).__name__}: {text}".rstrip(": ")
    if isinstance(error, OSError) and error.errno == errno.EMFILE:
        told += f": {files_hint()}"
    if ran_out(error):
        told += memory_hint()
    if place is not None and error.__cause__ is not None:
        told += f" (from {type(error.__cause__).__name__}: {' '.join(str(error.__cause__).split())})"
    return told if place is None else f"{place}: {told}"
