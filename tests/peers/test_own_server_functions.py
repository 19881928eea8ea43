"""Server functions of a task file: a function or a class becomes one, and a wrong one is told before the run."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from samovar.aggregation.options import OptionError
from samovar.aggregation.server.registry import parse_server_function
from samovar.peers.conversations.own_server_functions import OfTask, chosen_server_function

VALUES, PUSHES = torch.linspace(-2, 3, 10), torch.randn(4, 10, generator=torch.Generator().manual_seed(1))


def scaled(values: Tensor, gradient: Tensor, rate: float = 0.1) -> Tensor:
    return values - rate * gradient


class Heavy:
    """`momentum`, as a user would write it."""

    takes = "gradient"

    def __init__(self, rate: float = 0.1, beta: float = 0.9) -> None:
        self.rate, self.beta = rate, beta

    def start(self, values: Tensor) -> dict[str, Tensor]:
        return {"momentum": torch.zeros_like(values)}

    def step(self, values: Tensor, pushed: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        moved = self.beta * state["momentum"] + pushed
        return values - self.rate * moved, {"momentum": moved}


@pytest.mark.parametrize(
    ("text", "found", "same"),
    [("scaled", scaled, "sgd"), ("scaled:0.5", scaled, "sgd:0.5"), ("Heavy:0.2:0.5", Heavy, "momentum:0.2:0.5")],
)
def test_a_function_or_a_class_of_the_task_is_a_server_function(text: str, found: object, same: str) -> None:
    chosen, library = chosen_server_function(text), parse_server_function(same)
    assert isinstance(chosen, OfTask)
    own = chosen.made(found)
    assert own.takes == library.takes
    ends = []
    for function in (own, library):
        values, state = VALUES, function.start(VALUES)
        for pushed in PUSHES:
            values, state = function.step(values, pushed, state)
        ends.append((values, state))
    assert torch.equal(ends[0][0], ends[1][0])
    assert ends[0][1].keys() == ends[1][1].keys()


def test_the_second_argument_of_a_function_says_what_workers_push() -> None:
    assert OfTask("one").made(lambda values, change: values + change).takes == "change"
    assert OfTask("one").made(lambda values, gradient: values - gradient).takes == "gradient"


def test_a_name_of_the_library_is_never_one_of_the_task() -> None:
    assert chosen_server_function("adagrad:0.1") == parse_server_function("adagrad:0.1")
    with pytest.raises(OptionError, match="'x' is no number"):
        chosen_server_function("scaled:x")
    with pytest.raises(ValueError, match="there is no server function"):
        chosen_server_function("two words")


class Kept(Heavy):
    """Its pushes and states stay as they are."""

    def step(self, values: Tensor, pushed: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return values, {"momentum": pushed}


def test_a_state_that_is_the_push_is_a_copy_of_it() -> None:
    function, pushed = OfTask("Kept").made(Kept), torch.ones(10)
    _, state = function.step(VALUES, pushed, function.start(VALUES))
    pushed.zero_()
    assert state["momentum"].tolist() == [1.0] * 10


def of_class(**members: Any) -> type:
    return type("Bad", (Heavy,), members)


Step = Callable[..., Any]
BAD: list[tuple[str, object]] = [
    ("neither a function nor a class", 0.1),
    ("must be bad.values, gradient. or bad.values, change.", lambda values, pushed: values),
    ('needs takes = "gradient" or "change", got None', of_class(takes=None)),
    ("needs a method step", of_class(step=None)),
    ("must make new tensors; it writes", lambda values, change: values.add_(change)),
    ("must make new tensors; it writes", lambda values, change: values + change.mul_(2)),
    ("must act on each element by itself", lambda values, change: values + change.mean()),
    ("must act on each element by itself", lambda values, change: values + change.flip(0)),
    ("must return finite numbers", lambda values, change: values / 0),
    ("must return a tensor, .* got a float", lambda values, change: 0.5),
    ("type and shape that it is given, .* got torch.float64", lambda values, change: values.double()),
    ("type and shape that it is given", lambda values, change: values[..., :1]),
    ("must return a tensor, .* got a Tensor", of_class(step=lambda self, values, pushed, state: values)),
    ("state of tensors by name; got a NoneType", of_class(step=lambda self, values, pushed, state: (values, None))),
    ("keep the tensors of its state, momentum; got nothing", of_class(step=lambda self, values, *_: (values, {}))),
    ("'n' is none", of_class(start=lambda self, values: {"n": 0})),
    ("'n' has .7,.", of_class(start=lambda self, values: {"n": torch.zeros(7)})),
]


@pytest.mark.parametrize(("said", "found"), BAD)
def test_what_is_no_server_function_is_refused_in_one_line(said: str, found: object) -> None:
    with pytest.raises(ValueError, match=f"^server function bad .*{said}") as raised:
        OfTask("bad").made(found)
    assert "\n" not in str(raised.value)
