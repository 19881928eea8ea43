"""Python files of a user's own: a task, a conversation. Each peer imports its own copy."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from traceback import walk_tb
from types import ModuleType

from .errors import MODULE_PREFIX


def imported(path: Path, refused: type[ValueError], kind: str = "") -> ModuleType:
    """Import the file `path` and return its module. `kind` is a prefix of the module's name, so that a task file and a
    conversation file of equal name do not collide. Raises `refused`, with one line of text, when the import fails."""
    spec = importlib.util.spec_from_file_location(f"{MODULE_PREFIX}{kind}{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
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
        why = " ".join(str(error).split())
        raise refused(f"{place}: cannot be imported: {type(error).__name__}: {why}{mend}") from error
    return module
