"""The limit on open files of this process. Every link takes a few file descriptors, and some systems allow few."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from typing import Final

FILES_WISHED: Final = 1024
"""A number of file descriptors that is enough for runs of usual size."""
_FILES_OF_A_PEER: Final = 20
"""File descriptors that a peer needs at least. An endpoint opens about 13 before any connection; the others are for the
first links."""


def raise_file_limit() -> None:
    """Raise the soft limit to the hard one, because many systems set it too low for a peer with many links. Where the
    system does not allow that, nothing changes."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def require_files() -> None:
    """Raises OSError, with one line of text, unless this process can open 20 more files, which a peer needs. With
    fewer, ZeroMQ would abort the process, or hang silently."""
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
    """The limit and the way to raise it, as text for an error."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return f"at most {limit} files can be open in this process; raise the limit (ulimit -n {FILES_WISHED})"
