"""Errors that a user can mend, and how an error is told: in one line."""

from __future__ import annotations

import traceback

from ..protocols.catch_up import CatchUpFailed
from ..protocols.link import PeerLost
from ..protocols.membership import MembershipError
from .task import MODULE_PREFIX

_PLAIN = (ValueError, OSError, MembershipError, PeerLost, CatchUpFailed)


def is_plain(error: BaseException) -> bool:
    """Whether `error` says by itself what to mend. Anything else is a defect, here or in the user's own functions, and
    is told with its kind and its traceback."""
    frames = traceback.walk_tb(error.__traceback__)
    own = any(str(frame.f_globals.get("__name__")).startswith(MODULE_PREFIX) for frame, _ in frames)
    return isinstance(error, _PLAIN) and not own and bool(str(error).strip())


def one_line(error: BaseException) -> str:
    """What to tell a user of `error`."""
    text = " ".join(str(error).split())
    return text if is_plain(error) else f"{type(error).__name__}: {text}".rstrip(": ")
