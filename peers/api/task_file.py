"""The task of `samovar.train` and `samovar.simulate` as a file. Peers get a task in no other form."""

from __future__ import annotations

import ast
import contextlib
import os
import shlex
import sys
import tempfile
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType, SimpleNamespace

from ..cli.notebook import in_notebook
from ..errors import MODULE_PREFIX
from ..launch.control import CONTROL_VARIABLE
from ..launch.run_folder import TASK_FILE
from ..launch.script_target import JOIN_VARIABLE
from ..reasons import article
from ..settings.fields import SettingsError
from ..settings.keywords import PathText
from ..settings.validators import shown
from ..task.task import NAMES, REQUIRED, TaskError, load_task
from .source import Source, sendable

TaskLike = PathText | ModuleType | type | SimpleNamespace | None
_MAIN = "__main__"


@dataclass(frozen=True, slots=True)
class TaskFile:
    """A task as a file. `text`: the collected source, which is to be written to the run's folder; None: `path` is the
    user's own file. `named`: the task in the words of the user's call, for messages."""

    path: Path
    text: str | None
    named: str

    def within(self, folder: Path) -> Path:
        """The path of the task file for the peers of the run in `folder`. Collected source is written to that folder
        first, which may raise OSError."""
        if self.text is None:
            return self.path
        file = folder / TASK_FILE
        file.write_text(self.text, encoding="utf-8")
        return file


@contextlib.contextmanager
def task_file(task: TaskLike, call: str, asked: Callable[[], Collection[str]] = tuple) -> Iterator[TaskFile]:
    """While in this context, `task` is in a file, which the yielded `TaskFile` describes. `task`: a path, a module, a
    class or namespace with the task's functions, or None for the functions of the main module. A path, or a module that
    has a file, is used as it is. A class, a namespace or a notebook is collected as source in a temporary file, which
    is imported once to check it. `call`: the function that the user called, for messages. `asked`: returns the names of
    further definitions of a notebook to collect, if they are there. Raises TaskError, and the errors of `asked`."""
    refuse_within_import(call)
    if isinstance(task, str | os.PathLike):
        yield TaskFile(Path(task), None, repr(os.fspath(task)))
    elif task is None or isinstance(task, ModuleType):
        module = sys.modules[_MAIN] if task is None else task
        main = module.__name__ == _MAIN
        named = "" if main else module.__name__
        if (file := getattr(module, "__file__", None)) is not None and not (main and in_notebook()):
            if main:
                refuse_unguarded(call)
            if task is None and not main_is_task():
                raise TaskError(f"{_from_here(Path(file))}: it has no {_wanted()}: name the task, {call}('task.py')")
            yield TaskFile(_from_here(Path(file)), None, named)
        else:
            with _checked(_of_main(module, asked()), "notebook", named) as found:
                yield found
    elif isinstance(task, type | SimpleNamespace):
        name = task.__name__ if isinstance(task, type) else "namespace"
        with _checked(_of_namespace(task), name.lower(), name) as found:
            yield found
    else:
        kind = article(type(task).__name__)
        raise TaskError(f"a task is a path, a module, or a class with {_wanted()}, got {kind}")


def main_is_task() -> bool:
    """Whether the running script or notebook has a function that a task must have."""
    return any(hasattr(sys.modules[_MAIN], name) for name in REQUIRED)


def own_words(arguments: Sequence[str]) -> list[str]:
    """The `arguments` of a task or script, each as text. Raises SettingsError for a text, whose letters would be the
    words, and for a value that is no sequence."""
    if isinstance(arguments, str | bytes) or not isinstance(arguments, Sequence):
        example = shlex.split(arguments) if isinstance(arguments, str) and arguments else ["--width", "64"]
        said = f"must be a list of the words, such as {example!r:.80}, got {shown(arguments)}"
        raise SettingsError(said, "arguments")
    return [str(word) for word in arguments]


def refuse_within_import(call: str) -> None:
    """Raises TaskError when samovar is called from a file that a peer is importing, or from a script that is itself a
    peer: each peer would start peers, without end. `call`: the name of the function called, for the error."""
    if CONTROL_VARIABLE in os.environ or JOIN_VARIABLE in os.environ:
        raise TaskError(f"{call}() is called in a script that is itself a peer of a run")
    for frame in _modules():
        if frame.f_globals["__name__"].startswith((MODULE_PREFIX, "__mp_main__")):
            raise TaskError(_unguarded(Path(frame.f_code.co_filename), frame.f_lineno, call))


def refuse_unguarded(call: str) -> None:
    """Raises TaskError when the running script calls samovar outside of ``if __name__ == "__main__":``, because other
    processes are going to import it."""
    file = getattr(sys.modules[_MAIN], "__file__", None)
    for frame in _modules():
        if file is not None and frame.f_globals.get("__name__") == _MAIN and frame.f_code.co_filename == file:
            tree = ast.parse(Path(file).read_bytes(), file)
            running = [one for one in tree.body if one.lineno <= frame.f_lineno <= (one.end_lineno or 0)]
            if not any(isinstance(one, ast.If) and "__name__" in ast.unparse(one.test) for one in running):
                raise TaskError(_unguarded(_from_here(Path(file)), frame.f_lineno, call))


def _modules() -> Iterator[FrameType]:
    """The frames of module-level code that is running."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            yield frame
        frame = frame.f_back  # type: ignore[assignment]


def _unguarded(file: Path, line: int, call: str) -> str:
    return (
        f'{file}, line {line}: each peer imports this file: put the call of {call}() under if __name__ == "__main__":'
    )


def _from_here(file: Path) -> Path:
    """The path as short as it can be typed in the working folder."""
    whole = file.resolve()
    return whole.relative_to(Path.cwd()) if whole.is_relative_to(Path.cwd()) else whole


def _wanted() -> str:
    return ", ".join(f"{name}()" for name in REQUIRED)


def _of_main(module: ModuleType, asked: Collection[str]) -> str:
    source, names = Source(vars(module)), [name for name in NAMES if name in vars(module)]
    if missing := [name for name in REQUIRED if name not in names]:
        raise TaskError(f"a task needs {_wanted()}; nothing here is called {missing[0]}")
    for name in names:
        if name not in REQUIRED and not sendable(vars(module)[name]):
            kind = type(vars(module)[name]).__name__
            raise TaskError(f"a task may have {name}, which is a {kind} here: give one of the two another name")
        source.add(name, vars(module)[name], "the task")
    for name in asked:
        if name in vars(module):
            source.add(name, vars(module)[name], "the settings")
    return source.text("The task, collected from a notebook.")


def _of_namespace(task: type | SimpleNamespace) -> str:
    """The source of a class or a namespace. Each of its public names becomes a global name of the task. Functions of a
    class that take `self` are called on one object of it."""
    name = task.__name__ if isinstance(task, type) else "a namespace"
    if missing := [one for one in REQUIRED if not hasattr(task, one)]:
        raise TaskError(f"{name}: a task needs {_wanted()}; it has no {missing[0]}")
    source, title = Source(vars(sys.modules[_MAIN])), f"The task, collected from {name}."
    if isinstance(task, SimpleNamespace):
        for one, value in vars(task).items():
            source.add(one, value, name)
        return source.text(title)
    source.add(name, task, "the task")
    public = [one for one in dir(task) if not one.startswith("_")]
    methods = [vars(kind)[one] for kind in task.__mro__ for one in public if one in vars(kind)]
    bound = any(isinstance(one, types.FunctionType) and "self" in one.__code__.co_varnames[:1] for one in methods)
    made = f"_task = {name}()" if bound else f"_task = {name}"
    return source.text(title, made, *(f"{one} = _task.{one}" for one in public))


@contextlib.contextmanager
def _checked(text: str, stem: str, named: str) -> Iterator[TaskFile]:
    """Collected source in a file of its own, which could be imported."""
    with tempfile.TemporaryDirectory(prefix="samovar-") as folder:
        file, path = Path(folder) / f"{stem}.py", list(sys.path)
        file.write_text(text, encoding="utf-8")
        try:
            load_task(file)
        except TaskError as error:
            told = str(error).replace(str(file), "the task's collected source")
            raise TaskError(told) from error.__cause__
        finally:
            sys.path[:] = path
        yield TaskFile(file, text, named)
