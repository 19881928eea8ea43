"""Files that are whole whenever somebody reads them: the new content takes the place of the old one by a rename."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A context that gives a path beside `path`, to which its body writes a file. At the end that file takes the place
    of the one at `path`. If the body or the rename fails, as on a full disk, the file at `path` is untouched, and none
    is left beside it. One process at a time may be in the context for a path. Raises OSError."""
    beside = path.parent / f"{path.name}.tmp"
    try:
        yield beside
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def write_whole(path: Path, text: str) -> None:
    """Write `text` as the content of the file at `path`, in UTF-8, with its line ends as they are. Raises OSError; the
    file is then as it was."""
    with replaced(path) as beside:
        beside.write_text(text, encoding="utf-8", newline="\n")
