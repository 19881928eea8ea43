"""The limit of open files of this process: every link takes a few descriptors, and some machines allow few."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from typing import Final

FILES_WISHED: Final = 1024
"""Descriptors that are enough for runs of usual size."""
_FILES_OF_A_PEER: Final = 20
"""An endpoint opens about 13 before any connection; the others are for a peer's first links."""


def raise_file_limit() -> None:
    """Raise the soft limit as far as this process may: many systems set it for other kinds of programs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def require_files() -> None:
    """Raises OSError in one line when the limit is too low for a peer: ZeroMQ would abort the process, or hang
    silently."""
    opened: list[int] = []
    try:
        opened.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(_FILES_OF_A_PEER))
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        raise OSError(f"a peer needs {_FILES_OF_A_PEER} free file descriptors: {files_hint()}") from None
    finally:
        for descriptor in opened:
            os.close(descriptor)


def files_hint() -> str:
    """The limit, and how to raise it."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return f"at most {limit} files can be open in this process; raise the limit (ulimit -n {FILES_WISHED})"
