"""A task file: plain functions that define what to train. The same file serves `train`, `join` and `simulate`.

model() -> nn.Module                      data(part, parts) -> iterable of batches, restarted after each epoch
loss(model, batch) -> scalar tensor       optional: evaluate(model) -> accuracy, optimizer(parameters) -> Optimizer
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from ..user_code import called_with, imported

REQUIRED = ("model", "data", "loss")
OPTIONAL = ("evaluate", "optimizer")
_TAKES = {
    "model": (),
    "data": ("part", "parts"),
    "loss": ("model", "batch"),
    "evaluate": ("model",),
    "optimizer": ("parameters",),
}
"""The arguments that each function is called with."""


class TaskError(ValueError):
    """The task file cannot be used. One line: which file, what is wrong, what to do."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Task:
    """The functions of a task file."""

    path: Path
    model: Callable[[], nn.Module]
    data: Callable[[int, int], Iterable[Any]]
    loss: Callable[[nn.Module, Any], Tensor]
    evaluate: Callable[[nn.Module], float] | None
    optimizer: Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]


def kind_of(path: Path) -> Literal["task", "script"]:
    """Whether `path` is a task file or a training script that calls `samovar.join`, without running it."""
    tree = _parsed(path)
    names = _top_level_names(tree)
    if _calls_join(tree):  # a script may well have variables that are called model, data and loss
        return "script"
    if names.intersection(REQUIRED):
        missing = [name for name in REQUIRED if name not in names]
        if missing:
            raise TaskError(
                f"{path}: a task needs {_listed(REQUIRED)}; it has no {_listed(missing)} "
                "(and a training script calls samovar.join())"
            )
        return "task"
    if _imports_samovar(tree):
        return "script"
    raise TaskError(f"{path}: neither a task (it has no {_listed(REQUIRED)}) nor a script that calls samovar.join()")


def check_trainable(path: Path, scripts_only: str) -> None:
    """Raises TaskError when the run's settings need a script's own loop. `scripts_only`: the reason, from
    `OwnSettings.scripts_only`; "": there is none."""
    if scripts_only:
        raise TaskError(f"{path}: {scripts_only}")


def load_task(path: Path, arguments: str = "") -> Task:
    """Import a task file. `arguments`: the words of its `sys.argv` meanwhile, as in a shell. Raises TaskError when it
    is a script, cannot be imported, or a function of it is missing or takes other arguments than it is called with."""
    if kind_of(path) != "task":
        raise TaskError(f"{path}: this is a training script, and here a task is due, with {_listed(REQUIRED)}")
    with called_with(path, arguments):
        module = imported(path, TaskError)
    given = {name: getattr(module, name, None) for name in (*REQUIRED, *OPTIONAL)}
    for name, function in given.items():
        if function is not None and not callable(function):
            raise TaskError(f"{path}: {name} is not a function")
    for name, function in given.items():
        if function is not None:
            _check_call(path, name, function)
    optimizer = given["optimizer"] or (lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    return Task(path, given["model"], given["data"], given["loss"], given["evaluate"], optimizer)  # type: ignore[arg-type]


def _check_call(path: Path, name: str, function: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions in C have no signature
        return
    try:
        signature.bind(*_TAKES[name])
    except TypeError:
        wanted = f"{name}({', '.join(_TAKES[name])})"
        raise TaskError(f"{path}: {wanted} is what is called, and it is {name}{signature}") from None


def _parsed(path: Path) -> ast.Module:
    if not path.exists():
        raise TaskError(f"{path}: no such file")
    if not path.is_file():
        raise TaskError(f"{path}: not a file")
    try:
        return ast.parse(path.read_bytes(), str(path))
    except SyntaxError as error:
        raise TaskError(f"{path}, line {error.lineno or 1}: not Python: {error.msg}") from None
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise TaskError(f"{path}: not Python: {' '.join(str(error).split()) or type(error).__name__}") from None


def _top_level_names(tree: ast.Module) -> set[str]:
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
    return names


def _imports_samovar(tree: ast.Module) -> bool:
    imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    imported += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level]
    return any(name.partition(".")[0] == "samovar" for name in imported)


def _calls_join(tree: ast.Module) -> bool:
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "samovar" and any(n.name == "join" for n in node.names):
            return True
        if isinstance(node, ast.Import):
            modules.update(name.asname or name.name for name in node.names if name.name == "samovar")
    joins = (node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "join")
    return any(isinstance(module, ast.Name) and module.id in modules for module in joins)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"{name}()" for name in names)


def made_by(task: Task, function: str, kind: type[T], made: object) -> T:
    """Returns `made`, the result of a function of `task`, if it is a `kind`. Raises TaskError."""
    if not isinstance(made, kind):
        raise TaskError(f"{task.path}: {function}() must return a {kind.__name__}, got {shown(made)}")
    return made


def shown(made: object) -> str:
    """A description of a value that a task's function returned, for an error message."""
    if isinstance(made, Tensor):
        return f"a tensor of shape {tuple(made.shape)}; take its mean()" if made.dim() else "a tensor"
    return "None: is its return missing?" if made is None else f"a {type(made).__name__}"
