"""Ctrl-C in a script that is its own peer, without a launcher: the same end as under `samovar train SCRIPT`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import NoReturn

from ..cli.command_line import STOPPED
from ..launch.session import Session
from ..records.ends import BY_USER
from ..training.stop import Stopped
from .loop_thread import Background
from .main_script import is_script

Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]
_LOADER, _WAITS = "torch.utils.data.dataloader", "_get_data"
"""The module of DataLoader, and the method that waits for a batch of its workers."""
_LINE = b"samovar: stopping after this local step; Ctrl-C again ends the script at once\n"


def stopped(session: Session) -> Stopped:
    """The exception that tells a script that the user has stopped its peer. A launcher, which ends with its own exit
    code, would take a script that ends with another one than 0 for failed."""
    return Stopped(f"{BY_USER}: this script has left the run", STOPPED if session.control is None else 0)


def heeding(session: Session, background: Background, stop: Callable[[], NoReturn]) -> Callable[[], None]:
    """From now on have the first Ctrl-C stop the peer of `session` at its next local step, and print a line on stderr;
    the second one raises KeyboardInterrupt as usual. A forked child ignores the first one. A spawned one ends by it, so
    the script may not get its next batch: `stop`, which leaves the run and raises Stopped, is called at once while the
    script waits for a batch of a DataLoader's workers, and in place of an uncaught error of a DataLoader afterwards.
    Returns a function that ends this, from any thread. Does nothing in a process that has a launcher, in a notebook or
    a session in which a user types, in another thread than the main one, and where the script has a handler of its own,
    or ignores the signal."""
    main = session.control is None and threading.current_thread() is threading.main_thread()
    if not main or not is_script() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return lambda: None

    process, over = os.getpid(), False

    def heed(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if over:
            signal.default_int_handler(number, frame)
        if os.getpid() != process:  # a DataLoader's worker: the step that goes on may need its batch
            return
        session.stop.flag = True  # for the next local step, which may come before the loop's turn
        background.soon(session.stop.set)
        with contextlib.suppress(OSError):  # Ctrl-C has also ended the reader of a pipe, such as tee
            os.write(2, _LINE)  # sys.stderr may be in the middle of a write
        if any(_is_of(one, _WAITS) for one, _ in traceback.walk_stack(frame)):
            stop()
        sys.excepthook = _without_batches(sys.excepthook, stop)

    def end() -> None:
        nonlocal over
        over = True
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is heed:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, heed)
    return end


def _without_batches(before: Hook, stop: Callable[[], NoReturn]) -> Hook:
    """A hook for uncaught errors that calls `stop` for those of a DataLoader, and `before` for others."""

    def uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if any(_is_of(frame) for frame, _ in traceback.walk_tb(trace)):
            stop()
        before(kind, error, trace)

    return uncaught


def _is_of(frame: FrameType, function: str | None = None) -> bool:
    """Whether a frame is of a DataLoader, and of this `function` (None: any)."""
    return frame.f_globals.get("__name__") == _LOADER and function in (None, frame.f_code.co_name)
