"""The folder of a run that never began, because its start was refused: it is removed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ..records.run import COMMAND_FILE, SETTINGS_FILE
from ..run_settings.settings import Settings
from .run_folder import TASK_FILE, WAYS_IN_FILE

_WRITTEN = {COMMAND_FILE, SETTINGS_FILE, TASK_FILE, WAYS_IN_FILE}
"""The files with which a start begins."""


def remove_unbegun(folder: Path, settings: Settings) -> bool:
    """Remove the folder of a new run with these `settings` that never began, with the logs of its peers, and return
    True. Where the user chose its name, or it holds more than the files with which a start begins, such as a record,
    nothing is removed. Returns False then, and when a file cannot be removed."""
    if settings.run is not None:
        return False
    try:
        files = [*folder.iterdir()]
        logs = {*folder.glob("peer-*.log")}
        if any(
            file.is_dir() or file.stat().st_size for file in files if file.name not in _WRITTEN and file not in logs
        ):
            return False
        for file in files:
            file.unlink()
        folder.rmdir()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def removed_if_refused(folder: Path, settings: Settings) -> Iterator[None]:
    """While in this context, an error removes the folder of a new run (`remove_unbegun`)."""
    try:
        yield
    except BaseException:
        remove_unbegun(folder, settings)
        raise
