"""How many files this process may have open: every link takes a few descriptors, and some machines allow few."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from typing import Final

FILES_WISHED: Final = 1024
"""What a run of any usual size goes by with."""
_FILES_OF_A_PEER: Final = 20
"""An endpoint opens about 13 before anybody calls, and a peer's first links as many as are left."""


def raise_file_limit() -> None:
    """As far as this process may by itself: the soft limit of many systems is made for other programs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def require_files() -> None:
    """Raises OSError in one line when a peer could not open what it needs: ZeroMQ would abort the process, or fall
    silent."""
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
