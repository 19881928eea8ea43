"""Errors that a user can mend, and how an error is told: in one line."""

from __future__ import annotations

import traceback

from ..protocols.catch_up import CatchUpFailed
from ..protocols.delivery.link import PeerLost
from ..protocols.members.membership import MembershipError
from .task import MODULE_PREFIX

_LIBRARY = __name__.partition(".")[0]
_PLAIN = (ValueError, OSError, MembershipError, PeerLost, CatchUpFailed)


def is_plain(error: BaseException) -> bool:
    """Whether `error` says by itself what to mend. Anything else is a defect, here or in the user's own functions, and
    is told with its kind and its traceback."""
    return isinstance(error, _PLAIN) and not _comes_of_the_users_code(error) and bool(str(error).strip())


def _comes_of_the_users_code(error: BaseException) -> bool:
    """Whether a task's function or a script, and not this library, made the call that failed, maybe inside torch."""
    theirs = False
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module, package = (str(frame.f_globals.get(name) or "") for name in ("__name__", "__package__"))
        if package.partition(".")[0] == _LIBRARY:
            theirs = False
        elif module == "__main__" or module.startswith(MODULE_PREFIX):
            theirs = True
    return theirs


def one_line(error: BaseException) -> str:
    """What to tell a user of `error`."""
    text = " ".join(str(error).split())
    return text if is_plain(error) else f"{type(error).__name__}: {text}".rstrip(": ")
