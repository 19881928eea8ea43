"""Importing Python files of a user's own: a task or a conversation. Each peer imports its own copy."""

from __future__ import annotations

import contextlib
import importlib.util
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from traceback import walk_tb
from types import ModuleType

from .errors import MODULE_PREFIX


@contextlib.contextmanager
def called_with(path: Path, arguments: str) -> Iterator[None]:
    """While in this context, `sys.argv` is that of the script `path` with these `arguments`, words as in a shell. It
    changes for the whole process, so that the task's functions and the workers of its DataLoaders see it in any
    thread."""
    before, sys.argv = sys.argv, [str(path), *shlex.split(arguments)]
    try:
        yield
    finally:
        sys.argv = before


def quits(error: BaseException) -> str:
    """The reason why the user's code ended by `error`, e.g. SystemExit, as one line. For an error of usage that
    argparse found this is argparse's own message, which it prints and does not raise."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__) if frame.f_globals.get("__name__") == "argparse"]
    said = frames[-1].f_locals.get("message") if frames and isinstance(error, SystemExit) else None
    if said:
        return " ".join(str(said).partition("error: ")[2].split())
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def imported(path: Path, refused: type[ValueError], kind: str = "") -> ModuleType:
    """Import the file `path` and return its module. `kind` begins the module's name, so that a task file and a
    conversation file of equal name do not collide. The file's folder stays in `sys.path`, so that its functions can
    import neighbours later. Raises `refused`, with one line of text, when the name does not end in .py, or the import
    fails or exits."""
    spec = importlib.util.spec_from_file_location(f"{MODULE_PREFIX}{kind}{path.stem}", path)
    if spec is None or spec.loader is None:
        raise refused(f"{path}: its name has to end in .py, else Python does not import it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses, among others, look their module up there
    beside = str(path.resolve().parent)
    if beside not in sys.path:
        sys.path.append(beside)  # for good: a function may import a neighbour when it is called
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == spec.origin]
        place = f"{path}, line {lines[-1]}" if lines else f"{path}"
        mend = f"; install it for {sys.executable}" if isinstance(error, ModuleNotFoundError) else ""
        raise refused(f"{place}: cannot be imported: {quits(error)}{mend}") from error
    return module
