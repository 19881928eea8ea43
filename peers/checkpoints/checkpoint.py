"""Checkpoints: tensors and numbers in one hashed file. A file is always complete: a save that fails leaves the previous
one.

The new file is written beside the old one, flushed to the disk and then renamed. So the name always stands for a
complete checkpoint, the previous or the new one. One process at a time may save to a path. Cost: saving takes memory
for one tensor if that is on a device or not contiguous; loading takes memory for one more copy of all tensors. Other
threads run during both.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ..reasons import article, reason
from ..whole_file import replaced
from .file import read_file, read_numbers, write_file
from .pytree import from_plain, to_plain

_TRIES, _PAUSE_S = 20, 0.1
# What tensors and JSON raise on values that they cannot hold.
_UNFIT = (ValueError, TypeError, KeyError, RuntimeError, AssertionError, MemoryError)


class CheckpointError(ValueError):
    """A checkpoint could not be saved or loaded. The text is one line for a user."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The contents of a checkpoint. `numbers`: any nesting of None, bools, ints, floats, text, lists, tuples and
    dicts."""

    tensors: Mapping[str, Tensor]
    numbers: Mapping[str, Any]


def save(path: Path, snapshot: Snapshot) -> None:
    """Write `snapshot` to `path`, and make its folder if there is none. The tensors may be views and on any device;
    they must not change meanwhile. Raises CheckpointError when that fails: the previous file at `path` is then
    untouched, and no temporary file is left. Raises it also when the new file is in place, but may not outlive a power
    failure."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _once_files_are_free(lambda: _write(path, snapshot))
    except (OSError, *_UNFIT) as error:
        before = "the previous checkpoint is untouched" if os.path.lexists(path) else "there is no previous one"
        raise CheckpointError(f"cannot save checkpoint {path}: {reason(error)}; {before}") from None
    try:
        _once_files_are_free(lambda: _flush_folder(path.parent))
    except OSError as error:
        raise CheckpointError(f"checkpoint {path} may not outlive a power failure: {reason(error)}") from None


def _write(path: Path, snapshot: Snapshot) -> None:
    with replaced(path) as beside:
        write_file(beside, snapshot.tensors, snapshot.numbers)


def _once_files_are_free(write: Callable[[], None]) -> None:
    """Call `write`, and again for 2 s while this process has no file descriptor left: where connections of strangers
    took them, some are free within a quarter of a second (`protocols/zeromq/gate.py`). Blocks the calling thread."""
    for _ in range(_TRIES):
        try:
            write()
            return
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
        time.sleep(_PAUSE_S)
    write()


def load(path: Path) -> Snapshot:
    """The snapshot at `path`, its tensors on the CPU. Raises CheckpointError unless every bit is as saved."""
    with _loading(path):
        return Snapshot(*read_file(path))


def numbers_of(path: Path) -> Mapping[str, Any]:
    """The numbers of the snapshot at `path`. Its tensors are not read, so that the hash is not checked. Raises
    CheckpointError."""
    with _loading(path):
        return read_numbers(path)


@contextlib.contextmanager
def _loading(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint {path}") from None
    except (OSError, *_UNFIT) as error:
        raise CheckpointError(f"cannot load checkpoint {path}: {reason(error)}") from None


def optimizer_to_plain(state_dict: Mapping[str, Any]) -> tuple[dict[str, Tensor], Any]:
    """Split an optimizer's state into tensors and JSON values. Raises CheckpointError for a value that is neither."""
    try:
        return to_plain(dict(state_dict))
    except ValueError as error:
        raise CheckpointError(f"this optimizer's state cannot be saved: {error}") from None


def optimizer_from_plain(tensors: Mapping[str, Tensor], plain: Any) -> dict[str, Any]:
    """The optimizer state that `optimizer_to_plain` split into `tensors` and `plain`. Raises CheckpointError when the
    two are not of one state."""
    try:
        state = from_plain(tensors, plain)
    except ValueError as error:
        raise CheckpointError(f"this is no optimizer's state: {error}") from None
    if not isinstance(state, dict):
        raise CheckpointError(f"this is no optimizer's state: it is {article(type(state).__name__)}")
    return state


def _flush_folder(folder: Path) -> None:
    """Flush the folder, so that the rename outlives a power failure."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that cannot flush folders
            raise
    finally:
        os.close(file)
