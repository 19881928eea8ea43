"""Whatever nests tensors and plain values comes back exactly, an optimizer's state above all."""

import json
import struct
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from samovar.peers.checkpoints.checkpoint import (
    CheckpointError,
    Snapshot,
    load,
    optimizer_from_plain,
    optimizer_to_plain,
    save,
)
from samovar.peers.checkpoints.pytree import from_plain, to_plain


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "peer-0.safetensors"


def bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def assert_same(one: object, other: object) -> None:
    """Equal to the bit, in type too."""
    assert type(one) is type(other)
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert bits(one) == bits(other)
    elif isinstance(one, dict) and isinstance(other, dict):
        assert_same([*one.items()], [*other.items()])
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    elif isinstance(one, float) and isinstance(other, float):
        assert struct.pack(">d", one) == struct.pack(">d", other)
    else:
        assert one == other


INF, NAN = float("inf"), float("nan")
NUMBERS = {
    "floats": [0.0, -0.0, 5e-324, 1.7976931348623157e308, INF, -INF, NAN, -NAN, 0.1],
    "ints": [0, -1, 2**63, -(2**64), 10**100],
    "texts": ["", "\0", "\ud800", "𝒩", "$tuple", "a" * 10_000],
    "nested": {"$tuple": [1], "": {}, "a/b": (), "deep": ((((),),),)},
    "keys": {0: "int", 1.5: "float", "0": "text", None: "none", (1, (2,)): "tuple", "$": "mark"},
}


def test_numbers_come_back_exactly(path: Path) -> None:
    save(path, Snapshot({}, NUMBERS))
    assert_same(load(path).numbers, NUMBERS)


def test_a_nesting_of_anything_comes_back_exactly() -> None:
    value = {**NUMBERS, "a/b": torch.ones(2), "a": {"b": torch.zeros(1), 0: (torch.tensor(3), None)}, 0: torch.ones(0)}
    tensors, plain = optimizer_to_plain(value)
    assert len(tensors) == 4
    assert_same(optimizer_from_plain(tensors, plain), value)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
keys = st.recursive(scalars, lambda inner: st.tuples(inner, inner), max_leaves=3)
leaves = scalars | st.builds(torch.full, st.just((2,)), st.floats(width=32))
nestings = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys | st.sampled_from(["$tuple", "$tensor", "a/b", "a"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(nestings)
def test_any_nesting_survives_strict_json(value: object) -> None:
    tensors, plain = to_plain(value)
    read = json.loads(json.dumps(plain, allow_nan=False))
    assert_same(from_plain(tensors, read), value)
    assert_same(from_plain(tensors, plain), value)


def test_subclasses_of_plain_types_come_back_as_the_plain_types() -> None:
    value = {"a": OrderedDict(b=np.float32(0.1)), "n": np.int64(3), "f": np.float64(0.1), "s": torch.Size([1, 2])}
    tensors, plain = to_plain(value)
    assert_same(from_plain(tensors, plain), {"a": {"b": float(np.float32(0.1))}, "n": 3, "f": 0.1, "s": (1, 2)})


def test_tensors_are_named_by_their_place() -> None:
    tensors, plain = to_plain({"state": {0: {"step": torch.tensor(3.0)}}, "groups": [{"lr": torch.tensor(0.1)}]})
    assert list(tensors) == ["state/0/step", "groups/0/lr"]
    assert json.loads(json.dumps(plain)) == plain


def loop() -> dict[str, object]:
    ring: dict[str, object] = {}
    ring["ring"] = [ring]
    return ring


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a": {"b": {1, 2}}}, "a/b is a set"),
        ({"a": [1j]}, "a/0 is a complex"),
        ({"f": len}, "f is a builtin_function_or_method"),
        (loop(), "nested deeper"),
    ],
)
def test_an_optimizer_value_that_cannot_be_saved_is_named(path: Path, value: dict[str, object], said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        optimizer_to_plain(value)
    with pytest.raises(CheckpointError, match=f"cannot save checkpoint .*{said}.*; there is no previous one"):
        save(path, Snapshot({}, value))
    assert not list(path.parent.glob("*"))


@pytest.mark.parametrize(
    "plain",
    [
        [], 3, {"$tuple": 1}, {"$what": 1}, {"$tensor": "none"}, {"$tensor": []}, {"$dict": [[[], 1]]},
        {"$dict": [1]}, {"$dict": [["a"]]}, {"$float": "xy"}, {"$float": "00"}, {"$float": 1},
        {"$tuple": [], "$dict": []},
    ],
)  # fmt: skip
def test_a_state_that_no_optimizer_wrote_is_refused(plain: object) -> None:
    with pytest.raises(CheckpointError, match="no optimizer's state"):
        optimizer_from_plain({}, plain)


OPTIMIZERS: dict[str, Callable[[list[Tensor]], torch.optim.Optimizer]] = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "plain": lambda p: torch.optim.SGD([{"params": p[:1], "lr": 0.2}, {"params": p[1:]}], lr=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01), betas=(0.8, 0.9)),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True, foreach=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.5, max_iter=3, history_size=2, line_search_fn="strong_wolfe"),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
}


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int) -> None:
    x = torch.linspace(-1, 1, 24).reshape(6, 4)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (model(x).sum(1) - x.prod(1)).square().mean()
        loss.backward()
        return loss

    for _ in range(count):
        optimizer.step(closure)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_from_a_checkpoint_as_if_nothing_had_happened(path: Path, name: str) -> None:
    def fresh() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(7)
        model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
        return model, OPTIMIZERS[name](list(model.parameters()))

    model, optimizer = fresh()
    steps(model, optimizer, 3)
    tensors, plain = optimizer_to_plain(optimizer.state_dict())
    save(path, Snapshot({**model.state_dict(), **{f"optimizer/{k}": v for k, v in tensors.items()}}, {"rest": plain}))
    found = load(path)
    kept = {key[10:]: value for key, value in found.tensors.items() if key.startswith("optimizer/")}
    state = optimizer_from_plain(kept, found.numbers["rest"])
    assert_same(state, optimizer.state_dict())

    resumed, its_optimizer = fresh()
    resumed.load_state_dict({key: found.tensors[key] for key in resumed.state_dict()})
    its_optimizer.load_state_dict(state)
    steps(model, optimizer, 3)
    steps(resumed, its_optimizer, 3)
    assert_same(dict(resumed.state_dict()), dict(model.state_dict()))
