"""Server functions of a user's own: a function or a class of the task file, by its name there.

    def signed(values, gradient, rate=0.01):            # --server-update signed, or signed:0.001
        return values - rate * gradient.sign()

    class Lion:                                         # --server-update Lion:0.001
        takes = "gradient"                              # or "change"
        def __init__(self, rate=0.01): self.rate = rate
        def start(self, values): return {"mean": torch.zeros_like(values)}
        def step(self, values, pushed, state): return values - ..., {"mean": ...}

A function's second argument is called `gradient` or `change`, which says what workers push. Options after the name are
numbers: further arguments of the function, or those of the class. A class has the methods of `function.ServerFunction`;
one without state may leave out start().
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from ...aggregation.options import TEXT_MAX, OptionError, number, spelled
from ...aggregation.server.function import ServerFunction, State, Takes
from ...aggregation.server.registry import SERVER_FUNCTIONS, parse_server_function
from ..reasons import article


@dataclass(frozen=True, slots=True)
class OfTask:
    """The server function that the task file has under `name`, with the `options` that the user gives it."""

    name: str
    options: tuple[float, ...] = ()

    def made(self, found: object) -> ServerFunction:
        """The server function that `found`, the task's function or class, defines. It takes two steps on a few numbers
        to be tried. Raises ValueError when it has not the form that this module describes, writes into its arguments,
        or does not act on each element by itself; and the errors of the user's code."""
        if isinstance(found, type):
            function = self._of_class(found(*self.options))
        elif callable(found):
            function = self._of_function(found)
        else:
            raise ValueError(f"server function {self.name} is neither a function nor a class, but {found!r:.60}")
        _try(function)
        return function

    def _of_class(self, one: Any) -> _Own:
        takes, step = getattr(one, "takes", None), getattr(one, "step", None)
        if takes != "gradient" and takes != "change":
            raise ValueError(f'server function {self.name} needs takes = "gradient" or "change", got {takes!r:.60}')
        if not callable(step):
            raise ValueError(f"server function {self.name} needs a method step(values, pushed, state)")
        return _Own(self.name, takes, getattr(one, "start", _stateless), step)

    def _of_function(self, found: Callable[..., Any]) -> _Own:
        names, options = [*inspect.signature(found).parameters], self.options
        if len(names) < 2 or names[1] not in get_args(Takes):
            due = f"{self.name}(values, gradient) or {self.name}(values, change)"
            raise ValueError(f"server function {self.name} must be {due}, got {self.name}{inspect.signature(found)}")
        takes: Takes = "gradient" if names[1] == "gradient" else "change"
        return _Own(
            self.name, takes, lambda values: {}, lambda values, pushed, _: (found(values, pushed, *options), {})
        )


def chosen_server_function(text: str) -> ServerFunction | OfTask:
    """The server function that `text`, ``NAME`` or ``NAME:NUMBER:...``, chooses: one of the library's, or by any other
    name an `OfTask`, which the task file has to define. Raises ValueError for a text that is no name, and OptionError
    for options that are no numbers, or that the library's function refuses."""
    name, *options = spelled(text.strip()).split(":")
    if name in SERVER_FUNCTIONS or not name.isidentifier() or len(text) > TEXT_MAX:
        return parse_server_function(text)
    try:
        return OfTask(name, tuple(map(number, options)))
    except ValueError as error:
        raise OptionError(f"the options of {name} are numbers, and {error}") from None


@dataclass(frozen=True, slots=True)
class _Own:
    """A user's server function, of which each result is checked. A wrong one ends the server by an error."""

    name: str
    takes: Takes
    first: Callable[[Tensor], Any]
    after: Callable[[Tensor, Tensor, State], Any]

    def start(self, values: Tensor) -> State:
        state = self._checked(values, self.first(values))
        return {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in state.items()}

    def step(self, values: Tensor, pushed: Tensor, state: State) -> tuple[Tensor, State]:
        made = self.after(values, pushed, state)
        if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[0], Tensor):
            got = article(type(made[0] if isinstance(made, tuple) and made else made).__name__)
            raise self.wrong(f"return a tensor, and that of a class the state too; got {got}")
        after, changed = made[0], self._checked(values, made[1])
        if after.shape != values.shape or after.dtype != values.dtype:
            got, due = f"{after.dtype} of {tuple(after.shape)}", f"{values.dtype} of {tuple(values.shape)}"
            raise self.wrong(f"return values of the type and shape that it is given, {due}; got {got}")
        if {*changed} != {*state}:
            raise self.wrong(f"keep the tensors of its state, {_listed(state)}; got {_listed(changed)}")
        return _owned(after, pushed), {name: _owned(tensor, pushed) for name, tensor in changed.items()}

    def wrong(self, due: str) -> ValueError:
        return ValueError(f"server function {self.name} must {due}")

    def _checked(self, values: Tensor, state: object) -> State:
        if not isinstance(state, Mapping):
            raise self.wrong(f"have a state of tensors by name; got {article(type(state).__name__)}")
        for name, tensor in state.items():
            if not isinstance(tensor, Tensor) or tensor.dtype != values.dtype:
                raise self.wrong(f"have a state of tensors of {values.dtype}, as the values are; {name!r} is none")
            if tensor.shape not in (values.shape, values.shape[:-1]):
                due = f"{tuple(values.shape)} or {tuple(values.shape[:-1])}"
                raise self.wrong(
                    f"have a state of the shape [..., n] or [...], here {due}; {name!r} has {tuple(tensor.shape)}"
                )
        return state


def _stateless(values: Tensor) -> State:
    return {}


def _owned(made: Tensor, pushed: Tensor) -> Tensor:
    """`made` as a dense tensor that shares no memory with `pushed`, which is the server's."""
    made = made.detach()
    shared = made.untyped_storage().data_ptr() == pushed.untyped_storage().data_ptr()
    return made.clone(memory_format=torch.contiguous_format) if shared else made.contiguous()


def _listed(state: State) -> str:
    return ", ".join(sorted(state)) or "nothing"


def _try(function: _Own) -> None:
    """Take two steps on a few numbers. Raises ValueError when the function writes into its arguments, or does not act
    on each element by itself: the ranges of a vector would not become what the vector would."""
    values, pushes = torch.linspace(-1, 1, 12).view(2, 6), torch.linspace(0.7, -0.5, 24).view(2, 2, 6)
    whole = _stepped(function, values, pushes)
    if not torch.isfinite(whole).all():
        raise function.wrong("return finite numbers; after pushes between -0.5 and 0.7 it returned others")
    for part in ((..., slice(0, 2)), (..., slice(2, 6)), (slice(1, 2),)):
        alone = _stepped(function, values[part], torch.stack([pushed[part] for pushed in pushes]))
        if not torch.allclose(alone, whole[part], rtol=1e-4, atol=1e-6):
            raise function.wrong("act on each element by itself; it looks at others too")


def _stepped(function: _Own, values: Tensor, pushes: Tensor) -> Tensor:
    values = values.clone()
    state = function.start(values)
    for pushed in pushes.clone():
        given = (values, pushed, *state.values())
        before = [one.clone() for one in given]
        values, state = function.step(values, pushed, state)
        if not all(map(torch.equal, given, before)):
            raise function.wrong("make new tensors; it writes into those that it is given")
    return values
