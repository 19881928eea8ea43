"""What is imported early, before it is needed."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path

import torch


def import_all_of_torch() -> None:
    """Have it import now what it would with a process's first optimizer: that takes 1.5 s of a core (PyTorch 2.13), in
    which an event loop in another thread hardly gets to answer anybody."""
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])


def import_what(task: Path) -> bool:
    """Import the installed modules that a task file imports. What cannot be is left to whoever loads the file, who
    tells. Returns whether this process can be forked still."""
    for name in _modules_of(task):
        with contextlib.suppress(Exception, SystemExit):
            if _is_installed(name):
                importlib.import_module(name)
    return threading.active_count() == 1 and not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]


def _modules_of(task: Path) -> Iterator[str]:
    try:
        statements = ast.parse(task.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            yield statement.module


def _is_installed(name: str) -> bool:
    """The user's own modules may do more than to define things."""
    found = importlib.util.find_spec(name.partition(".")[0])
    installed = [Path(sysconfig.get_path(kind)) for kind in ("stdlib", "purelib", "platlib")]
    return found is not None and any(Path(found.origin or "").is_relative_to(folder) for folder in installed)
