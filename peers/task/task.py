"""A task file: plain functions that define what to train. The same file serves `train`, `join` and `simulate`.

model() -> nn.Module                     data(part, parts) -> iterable of batches, restarted after each epoch
loss(model, batch) -> scalar tensor

Optional functions:

optimizer(model) or (parameters) -> Optimizer       by the argument's name; default: SGD with a learning rate of 0.1
lr_schedule(optimizer, steps) -> LRScheduler        stepped after each local step; `steps`: local steps of the run
evaluate(model) -> accuracy, or dict of metrics     on one peer, every so many rounds; in gossip on each
query(rows) or (rows, model) -> tensor(s)           sums over the rows of a batch, for --algorithm statistical_query
samples(batch) -> number                            the weight of a batch; default: the length of its first tensor
clip(model)                                         changes the gradients between backward and the optimizer's step
setup(run)                                          once on each peer, before the first batch: see `TaskRun`
on_round(record) or (record, run)                   on each peer after each exchange, with the model that this gave
seed_everything(seed)                               seeds generators beside those of torch, NumPy and Python
rows(batch) -> {"name": int64 tensor}               the rows of sparse embeddings that a batch needs: see `row_tables`

Optional constants:

clip = 1.0                                          the greatest norm of all gradients together
accumulate = 4                                      batches to one local step, whose gradients are averaged
METRICS = {"perplexity": "lower"}                   the names of what evaluate() returns: see `records.metrics`
precision = "bf16"                                  of loss() and evaluate(), by torch.autocast; "fp16": with GradScaler
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from ..reasons import article
from ..records.metrics import fault
from ..user_code import called_with, imported
from .definitions import Definition, defined
from .syntax import TaskError as TaskError
from .syntax import calls_join, functions, imports_samovar, literals, parsed, starred, top_level_names

REQUIRED = ("model", "data", "loss")
_CALLS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "model": ((),),
    "data": (("part", "parts"),),
    "loss": (("model", "batch"),),
    "evaluate": (("model",),),
    "optimizer": (("parameters",),),
    "lr_schedule": (("optimizer", "steps"),),
    "samples": (("batch",),),
    "query": (("rows",), ("rows", "model")),
    "clip": (("model",),),
    "setup": (("run",),),
    "on_round": (("record",), ("record", "run")),
    "seed_everything": (("seed",),),
    "rows": (("batch",),),
}
"""The arguments that each function is called with; several: one of these."""
Precision = Literal["bf16", "fp16"]


T = TypeVar("T")
_NONE: Mapping[str, str] = {}
OptimizerMaker = (
    Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer] | Callable[[nn.Module], torch.optim.Optimizer]
)


def _sgd(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


@dataclass(frozen=True, slots=True)
class Task:
    """The functions and constants of a task file, and its `path`. None: the file does not define that one. A file
    without `optimizer` gets SGD with a learning rate of 0.1."""

    path: Path
    model: Callable[[], nn.Module]
    data: Callable[[int, int], Iterable[Any]]
    loss: Callable[[nn.Module, Any], Tensor]
    evaluate: Callable[[nn.Module], Any] | None = None
    optimizer: OptimizerMaker = _sgd
    lr_schedule: Callable[[torch.optim.Optimizer, int], torch.optim.lr_scheduler.LRScheduler] | None = None
    samples: Callable[[Any], float] | None = None
    query: Callable[..., Any] | None = None
    clip: float | Callable[[nn.Module], object] | None = None
    accumulate: int = 1
    precision: Precision | None = None
    setup: Callable[[Any], object] | None = None
    on_round: Callable[..., object] | None = None
    seed_everything: Callable[[int], object] | None = None
    metrics: Mapping[str, str] | None = None
    rows: Callable[[Any], Any] | None = None
    defined: Mapping[str, Definition] = field(default_factory=dict)
    """By name, other definitions of the file, which the run's settings ask for."""

    def optimizer_of(self, model: nn.Module) -> torch.optim.Optimizer:
        """A new optimizer of `model`, as the task's function makes it. Raises TaskError when the function returns no
        optimizer, or has attached a learning-rate schedule to it, which would never be stepped; and the function's own
        errors."""
        makes: Callable[[Any], object] = self.optimizer
        made = made_by(
            self, "optimizer", torch.optim.Optimizer, makes(model if _takes_model(makes) else model.parameters())
        )
        if hasattr(made.step, "_wrapped_by_lr_sched"):
            raise TaskError(
                f"{self.path}: optimizer() hooks a learning-rate schedule onto the optimizer, and nothing steps it: "
                "return it from lr_schedule(optimizer, steps)"
            )
        return made


def kind_of(path: Path) -> Literal["task", "script"]:
    """Whether the file `path` is a task ("task") or a training script ("script"), by its source, without running it. A
    script names `samovar.join`, or imports samovar and has none of a task's functions. Raises TaskError when the file
    is neither, or cannot be read or parsed."""
    tree = parsed(path)
    names = top_level_names(tree)
    if calls_join(tree):  # a script may well have variables that are called model, data and loss
        return "script"
    if names.intersection(REQUIRED):
        if missing := [name for name in REQUIRED if name not in names]:
            if functions(tree).intersection(REQUIRED):
                script = "and a training script calls samovar.join()"
                raise TaskError(f"{path}: a task needs {_listed(REQUIRED)}; it has no {_listed(missing)} ({script})")
            add = "add run = samovar.join() and optimizer = run.wrap(optimizer, model) before its loop"
            instead = f"a task would have functions {_listed(REQUIRED)}"
            raise TaskError(f"{path}: this training script does not call samovar.join(): {add} ({instead})")
        return "task"
    if module := starred(tree):
        named = ", ".join(REQUIRED)
        raise TaskError(
            f"{path}: from {module} import * hides the names of a task: write from {module} import {named}, and so on "
            "(a training script calls samovar.join() itself)"
        )
    if imports_samovar(tree):
        return "script"
    raise TaskError(f"{path}: neither a task (it has no {_listed(REQUIRED)}) nor a script that calls samovar.join()")


def check_trainable(path: Path, scripts_only: str) -> None:
    """Raises TaskError when the run's settings need a script's own loop, which the task file `path` has not.
    `scripts_only`: the reason, from `OwnSettings.scripts_only`; "": there is none."""
    if scripts_only:
        raise TaskError(f"{path}: {scripts_only}")


def check_constants(path: Path) -> None:
    """Raises TaskError when a constant of the task file `path` cannot be used, as far as can be seen without running
    the file."""
    for name, value in literals(parsed(path)).items():
        if name in NAMES and value is not None and (why := _fault(name, value)) is not None:
            raise TaskError(f"{path}: {name} {why}")


def load_task(path: Path, arguments: str = "", asked: Mapping[str, str] = _NONE) -> Task:
    """Import a task file. `arguments`: the words of its `sys.argv` during the import, as in a shell; `asked`: by name,
    why the run's settings ask for another definition of the file (`OwnSettings.asks_of_task`). Raises TaskError when
    the file is a script, cannot be imported, lacks a definition, or has a function that takes other arguments than it
    is called with."""
    if kind_of(path) != "task":
        raise TaskError(f"{path}: this is a training script, and here a task is due, with {_listed(REQUIRED)}")
    with called_with(path, arguments):
        module = imported(path, TaskError)
    task = task_of({name: getattr(module, name) for name in NAMES if hasattr(module, name)}, path)
    return replace(task, defined=defined(path, vars(module), asked))


def task_of(given: Mapping[str, Any], path: Path) -> Task:
    """The task of these functions and constants, by their names in a task file (`NAMES`); a value None counts as
    missing. `path`: the file that has them, for error messages. Raises TaskError when a required one is missing, or one
    cannot be used."""
    if missing := [name for name in REQUIRED if given.get(name) is None]:
        raise TaskError(f"{path}: a task needs {_listed(REQUIRED)}; it has no {_listed(missing)}")
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():
        if (why := _fault(name, value)) is not None:
            raise TaskError(f"{path}: {name} {why}")
    for name in given.keys() & _CALLS.keys():
        if callable(given[name]):
            _check_call(path, name, given[name])
    return Task(path, **{_FIELDS.get(name, name): value for name, value in given.items()})


def _fault(name: str, value: object) -> str | None:
    """The fault in a value of this name; None: there is none."""
    if name in _CALLS and callable(value):
        return None
    if name not in _CONSTANTS:
        seeded = f"; a run is seeded by --seed {value!r:.20}" if name == "seed_everything" else ""
        return f"is not a function {name}({', '.join(_CALLS[name][-1])}){seeded}"
    why = _CONSTANTS[name](value)
    return f"must be {why}, got {value!r:.60}" if why else None


def _clip_fault(value: object) -> str:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
    return "" if good else "a norm above 0, or a function clip(model)"


def _accumulate_fault(value: object) -> str:
    return "" if type(value) is int and value >= 1 else "a whole number of batches, 1 or more"


def _precision_fault(value: object) -> str:
    return "" if value in ("bf16", "fp16") else '"bf16" or "fp16"'


_CONSTANTS: Mapping[str, Callable[[object], str]] = {
    "clip": _clip_fault,
    "accumulate": _accumulate_fault,
    "precision": _precision_fault,
    "METRICS": fault,
}
"""By name, a function that returns the fault in a constant's value, as the words that follow "must be"; "": there is
none."""
_FIELDS = {"METRICS": "metrics"}
"""Name in a file -> name in `Task`, where the two differ."""
NAMES = tuple(dict.fromkeys((*_CALLS, *_CONSTANTS)))
"""The names of a task file's functions and constants, the required ones first."""


def _check_call(path: Path, name: str, function: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions in C have no signature
        return
    if not any(_binds(signature, arguments) for arguments in _CALLS[name]):
        wanted = f"({', '.join(_CALLS[name][0])})"
        raise TaskError(f"{path}: {name}() must take {wanted}, got {name}{signature}")


def _binds(signature: inspect.Signature, arguments: tuple[str, ...]) -> bool:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


def takes(function: Callable[..., Any], arguments: int) -> bool:
    """Whether `function` can be called with this number of positional arguments; False where that is unknown, as of
    some functions in C."""
    try:
        return _binds(inspect.signature(function), ("",) * arguments)
    except ValueError:
        return False


def _takes_model(function: Callable[..., Any]) -> bool:
    """Whether a task's optimizer() is written for the model, and not for its parameters."""
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
    except ValueError:
        return False
    return first is not None and (
        first.name == "model" or first.annotation in (nn.Module, "nn.Module", "torch.nn.Module")
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"{name}()" for name in names)


def made_by(task: Task, function: str, kind: type[T], made: object) -> T:
    """Returns `made`, the result of a function of `task`, if it is a `kind`; raises TaskError otherwise. `function`:
    its name, for the error."""
    if not isinstance(made, kind):
        raise TaskError(f"{task.path}: {function}() must return {article(kind.__name__)}, got {shown(made)}")
    return made


def shown(made: object) -> str:
    """A description of a value that a task's function returned, for an error message: its type, or a tensor's shape;
    with advice for None, and for a tensor that is no scalar."""
    if isinstance(made, Tensor):
        return f"a tensor of shape {tuple(made.shape)}; take its mean()" if made.dim() else "a tensor"
    return "None: is its return missing?" if made is None else article(type(made).__name__)
