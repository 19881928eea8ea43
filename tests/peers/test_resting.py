"""A model that lies in the vector of its last update while its peer waits for others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_models import Model, Running, trainer
from torch import Tensor, nn

from samovar.peers.errors import EvaluationFailed
from samovar.peers.training.trainer import Trainer
from samovar.protocols.conversation import Position
from samovar.protocols.work import Evaluate, Keep, Load, Steps, Work


class Tied(nn.Module):
    """Two parameters that lie in one memory, which no view of a vector may part."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.other.weight.data = self.one.weight.data

    def forward(self, x: Tensor) -> Tensor:
        return self.other(self.one(x))


class Cached(nn.Module):
    """A buffer outside the state_dict is a view of a parameter, and the loss depends on it."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 4, bias=False)
        self.register_buffer("cache", self.one.weight.data, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.one(x) + x @ self.cache


def storages(one: Trainer) -> set[int]:
    return {parameter.untyped_storage().data_ptr() for parameter in one.model.parameters() if parameter.requires_grad}


def resting(model: type[nn.Module], *, rests: bool) -> Trainer:
    one = trainer(model)
    one.copy.resting.wished = rests
    return one


@pytest.mark.parametrize("model", [Model, Running, Tied, Cached])
def test_a_model_that_rests_takes_the_same_steps_and_never_changes_what_it_brought(model: type[nn.Module]) -> None:
    """The begins of gossip: a mix, the same model after a checkpoint, and another mix."""
    resting_one, usual = (resting(model, rests=rests) for rests in (True, False))
    start = usual.vector
    begins = [Load(start), Keep(), Load(start + 1), Load(start - 1)]
    brought = list[tuple[Tensor, Tensor]]()
    for begin in begins:
        one, other = (of.do(Work(begin, Steps(3, total=3, only_read=True))) for of in (resting_one, usual))
        assert one is not None
        assert other is not None
        assert torch.equal(one.vector, other.vector)
        for name, tensor in usual.snapshot().tensors.items():
            assert torch.equal(resting_one.snapshot().tensors[name], tensor)
        brought.append((one.vector, one.vector.clone()))
        with resting_one.copy.being(start):
            assert torch.equal(resting_one.vector, start)
        assert torch.equal(resting_one.vector, one.vector)
        assert all(torch.equal(vector, before) for vector, before in brought)


def test_a_model_at_rest_takes_no_memory_and_one_that_is_trained_has_its_own() -> None:
    one = resting(Model, rests=True)
    own = storages(one)
    begin = Keep()
    update = one.do(Work(begin, Steps(1, total=1, only_read=True)))
    assert update is not None
    one.save(Position(0, update.vector, {}, {}, begin), lambda snapshot: None, failed=False)
    assert storages(one) == {update.vector.untyped_storage().data_ptr()}
    one.begin(Load(update.vector))
    assert len(storages(one)) == len(own)
    assert update.vector.untyped_storage().data_ptr() not in storages(one)


def evaluating(one: Trainer, evaluate: Callable[[nn.Module], float]) -> Tensor:
    """The vector of the conversation in which `one` lies when its task evaluates next."""
    update = one.do(Work(Keep(), Steps(1, total=1, only_read=True)))
    assert update is not None
    one.task = replace(one.task, metrics=None, evaluate=evaluate)
    return update.vector + 1


def test_a_model_lies_in_the_vector_of_the_conversation_while_it_is_evaluated() -> None:
    one, found = resting(Model, rests=True), list[set[int]]()
    own = storages(one)
    vector = evaluating(one, lambda model: found.append(storages(one)) or 0.5)
    before, begin = vector.clone(), Load(vector)
    one.rehearse()
    one.do(Work(begin, Evaluate(vector)))
    assert len(found[0]) == len(own)
    assert found[1:] == [{vector.untyped_storage().data_ptr()}]
    one.do(Work(begin, Steps(1, total=1, only_read=True)))
    assert torch.equal(vector, before)
    assert len(own) > 1


Written = Callable[[nn.Module, Tensor], object]
WRITES: dict[str, Written] = {
    "in place": lambda model, one: one.mul_(2),
    "data": lambda model, one: one.data.copy_(torch.ones_like(one)),
    "an element": lambda model, one: one.data.view(-1).__setitem__(0, 9.0),
    "load_state_dict": lambda model, one: model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()}),
    "several": lambda model, one: torch._foreach_add_([one], 1.0),
    "out": lambda model, one: torch.add(one, 1, out=one),
    "numpy": lambda model, one: one.detach().numpy().fill(3),
    "asarray": lambda model, one: np.asarray(one.data).fill(3),
    "dlpack": lambda model, one: np.from_dlpack(one.data),
    "to_dlpack": lambda model, one: torch.from_dlpack(torch.utils.dlpack.to_dlpack(one.data)).zero_(),
    "storage": lambda model, one: one.untyped_storage().fill_(0),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_an_evaluation_that_writes_to_parameters_has_its_own(write: Written) -> None:
    one, kept, seen = resting(Model, rests=True), dict[str, Tensor](), list[bool]()

    def evaluate(model: nn.Module) -> float:
        for parameter in model.parameters():
            before = parameter.detach().clone()
            write(model, parameter)
            seen.append("vector" not in kept or torch.equal(kept["vector"], kept["before"]))
            parameter.data.copy_(before)
        return 0.5

    vector = evaluating(one, evaluate)
    one.rehearse()
    kept |= {"vector": vector, "before": vector.clone()}
    one.do(Work(Load(vector), Evaluate(vector)))
    assert len(seen) > 2
    assert all(seen)


@pytest.mark.parametrize("caught", [False, True])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_later_evaluation_that_is_the_first_to_write_fails_before_it_does(write: Written, caught: bool) -> None:
    one, calls = resting(Model, rests=True), list[int]()

    def evaluate(model: nn.Module) -> float:
        calls.append(1)
        if len(calls) > 1:
            with suppress(ValueError) if caught else nullcontext():
                write(model, next(parameter for parameter in model.parameters() if parameter.requires_grad))
        return 0.5

    vector = evaluating(one, evaluate)
    before = vector.clone()
    one.rehearse()
    with pytest.raises(EvaluationFailed, match="writes to the model's parameters, and did not in its first call"):
        one.do(Work(Load(vector), Evaluate(vector)))
    assert torch.equal(vector, before)


def test_a_parameter_that_an_evaluation_gives_other_memory_writes_to_none_and_rests_again() -> None:
    one, found = resting(Model, rests=True), list[set[int]]()

    def evaluate(model: nn.Module) -> float:
        found.append(storages(one))
        usual = [(parameter, parameter.data) for parameter in model.parameters()]
        for parameter, data in usual:
            parameter.data = torch.zeros_like(data)
        for parameter, data in usual:
            parameter.data = data
        return 0.5

    vector = evaluating(one, evaluate)
    before = vector.clone()
    one.rehearse()
    one.do(Work(Load(vector), Evaluate(vector)))
    assert found[1:] == [{vector.untyped_storage().data_ptr()}]
    assert torch.equal(vector, before)
    assert torch.equal(one.vector, before)


def test_an_evaluation_has_memory_of_its_own_where_none_was_tried_before() -> None:
    one, found = resting(Model, rests=True), list[set[int]]()
    vector = evaluating(one, lambda model: found.append(storages(one)) or 0.5)
    one.do(Work(Load(vector), Evaluate(vector)))
    assert vector.untyped_storage().data_ptr() not in found[0]


@pytest.mark.parametrize(("rests", "only_read"), [(True, False), (False, True)])
def test_a_model_does_not_rest_in_a_vector_that_others_may_write_to(rests: bool, only_read: bool) -> None:
    one = resting(Model, rests=rests)
    own = storages(one)
    one.do(Work(Keep(), Steps(1, total=1, only_read=only_read)))
    assert storages(one) == own


def test_parameters_that_lie_in_one_memory_do_not_rest() -> None:
    one = resting(Tied, rests=True)
    own = storages(one)
    one.do(Work(Keep(), Steps(1, total=1, only_read=True)))
    assert storages(one) == own
