"""A model that lies in the vector of its last update while its peer waits for others."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from test_models import Model, Running, trainer
from torch import Tensor, nn

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
    one.copy.rests = rests
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


def test_a_model_lies_in_the_vector_of_the_conversation_while_it_is_evaluated() -> None:
    one = resting(Model, rests=True)
    own = storages(one)
    update = one.do(Work(Keep(), Steps(1, total=1, only_read=True)))
    assert update is not None
    found, vector = list[set[int]](), update.vector + 1
    before, begin = vector.clone(), Load(vector)
    one.task = replace(one.task, metrics=None, evaluate=lambda model: found.append(storages(one)) or 0.5)
    one.do(Work(begin, Evaluate(vector)))
    assert found == [{vector.untyped_storage().data_ptr()}]
    one.do(Work(begin, Steps(1, total=1, only_read=True)))
    assert torch.equal(vector, before)
    assert len(own) > 1


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
