"""A run of real processes that does not end: its processes say what they wait for, and are ended."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

import psutil

_TOLD_WITHIN_S = 30.0


def tell_when_asked() -> None:
    """On SIGUSR2 this process prints its threads and its tasks to stderr, which is the log of a peer."""
    signal.signal(signal.SIGUSR2, _tell)


def _tell(_: int, frame: FrameType | None) -> None:
    faulthandler.dump_traceback(sys.stderr, all_threads=True)
    with contextlib.suppress(RuntimeError):  # no event loop
        for task in asyncio.all_tasks():
            print(f"task {task.get_name()}:", *_waits(task.get_coro()), sep="\n    ", file=sys.stderr)
    print("told", file=sys.stderr, flush=True)


def _waits(coroutine: object) -> Iterator[str]:
    """Where a coroutine waits, from the outermost call to the innermost."""
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        yield f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
        coroutine = getattr(coroutine, "cr_await", None)
    yield f"waits for {coroutine}"


def told(processes: Sequence[psutil.Process], folder: Path) -> None:
    """Have these processes say what they wait for, and kill them. All logs in `folder` are printed then, which pytest
    shows of a test that fails."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGUSR2)
    until = time.monotonic() + _TOLD_WITHIN_S
    while time.monotonic() < until and sum(log.count("told\n") for log in _logs(folder).values()) < len(processes):
        time.sleep(0.05)
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            print(f"process {process.pid} is {process.status()}, after {process.cpu_times().user:g} s of work")
            process.kill()
    for file, log in _logs(folder).items():
        print(f"==== {file.relative_to(folder)}", log, sep="\n")


def _logs(folder: Path) -> dict[Path, str]:
    return {file: file.read_text("utf-8", "replace") for file in sorted(folder.rglob("*.log"))}


@contextlib.contextmanager
def ended_within(limit_s: float, folder: Path, children: Callable[[], list[psutil.Process]]) -> Iterator[None]:
    """If the body takes longer than `limit_s`, have `children` say what they wait for, and kill them (`told`), so that
    the body ends."""
    over = threading.Event()

    def end() -> None:
        over.set()
        told(children(), folder)

    timer = threading.Timer(limit_s, end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if over.is_set():
            print(f"not over after {limit_s:g} s, and killed")
