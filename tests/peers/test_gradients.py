"""Gradients on their way while backward goes on: every one of them, in time, and as the mean when it ends."""

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from samovar.aggregation.buckets import buckets
from samovar.peers.task import gradients as gradients_module
from samovar.peers.task.gradients import Gradients


class Told:
    """Hears of a model's gradients, and answers with their double."""

    def __init__(self, model: nn.Module, *, alone: bool = False) -> None:
        self.events: list[object] = []
        self.alone = alone
        self.gradients = Gradients(
            model,
            guarded=nullcontext,
            begin=lambda: self.events.append("begin"),
            full=self.events.append,
            mean=self._mean,
        )

    def _mean(self) -> Tensor | None:
        self.events.append("end")
        return None if self.alone else 2 * self.gradients.vector


def network(monkeypatch) -> nn.Sequential:
    """Three layers, each a bucket of its own."""
    monkeypatch.setattr(gradients_module, "buckets", lambda layout: buckets(layout, first_bytes=16, each_bytes=72))
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 1))


def grads(model: nn.Module) -> list[Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters()]


def test_buckets_are_told_of_in_order_and_the_mean_is_in_every_gradient(monkeypatch) -> None:
    model, batch = network(monkeypatch), torch.randn(8, 4)
    model(batch).sum().backward()
    alone = grads(model)
    told = Told(model)
    model.zero_grad()
    model(batch).sum().backward()
    assert told.events == ["begin", 0, 1, 2, "end"]
    for mean, own in zip(grads(model), alone, strict=True):
        assert torch.equal(mean, 2 * own)


def test_a_bucket_goes_out_before_backward_has_come_to_the_first_layer(monkeypatch) -> None:
    model = network(monkeypatch)
    told = Told(model)
    hidden = model[0](torch.randn(8, 4))
    hidden.register_hook(lambda _: told.events.append("first layer"))
    model[1:](hidden).sum().backward()
    assert told.events.index(0) < told.events.index("first layer")


def test_accumulated_gradients_go_out_once_as_a_whole(monkeypatch) -> None:
    model, batches = network(monkeypatch), [torch.randn(8, 4) for _ in range(3)]
    sum(model(batch).sum() for batch in batches).backward()
    whole = grads(model)
    model.zero_grad()
    told = Told(model)
    told.gradients.accumulating = True
    for batch in batches[:2]:
        model(batch).sum().backward()
    assert told.events == []
    told.gradients.accumulating = False
    model(batches[2]).sum().backward()
    assert told.events == ["begin", 0, 1, 2, "end"]
    for mean, own in zip(grads(model), whole, strict=True):
        assert torch.allclose(mean, 2 * own, rtol=1e-5)


def test_a_layer_without_gradients_is_brought_as_zeros(monkeypatch) -> None:
    """Every element is covered, though a layer was not used; and the others' gradient for it is taken."""
    model = network(monkeypatch)
    told = Told(model)
    told.gradients.vector.fill_(7.0)  # what an earlier step left there
    model[4](torch.randn(8, 3)).sum().backward()
    assert told.events == ["begin", 0, 1, 2, "end"]
    slots = {slot.name: told.gradients.vector[slot.start : slot.stop] for slot in told.gradients.layout.slots}
    assert not any(slots[f"{layer}.{name}"].any() for layer in (0, 2) for name in ("weight", "bias"))
    assert all(gradient.any() for gradient in grads(model[4]))


def test_a_parameter_gets_another_peers_gradient_and_none_if_no_peer_has_one(monkeypatch) -> None:
    model = network(monkeypatch)
    told = Told(model)

    def mean() -> Tensor:
        """Of two, the other of which has used the second layer too."""
        theirs = torch.ones_like(told.gradients.vector)
        (had,) = (slot for slot in told.gradients.layout.slots if slot.name == gradients_module.HAD)
        theirs[had.start : had.stop] = torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0, 1.0])
        return (told.gradients.vector + theirs) / 2

    told.gradients._mean = mean
    model[4](torch.randn(8, 3)).sum().backward()
    assert [parameter.grad is None for parameter in model.parameters()] == [True, True, False, False, False, False]
    assert all((gradient == 0.5).all() for gradient in grads(model[2]))


def test_frozen_and_empty_parameters_have_no_part_in_it() -> None:
    model = nn.Linear(4, 2)
    model.register_parameter("empty", nn.Parameter(torch.zeros(0)))
    model.bias.requires_grad_(False)
    told = Told(model, alone=True)
    model(torch.randn(8, 4)).sum().backward()
    assert told.events == ["begin", 0, "end"]
    assert model.bias.grad is None
    assert told.gradients.layout.size == 8 + 2, "one element a parameter says whether it has a gradient"


def test_without_its_hooks_a_model_is_as_before(monkeypatch) -> None:
    model = network(monkeypatch)
    told = Told(model)
    told.gradients.unhook()
    model(torch.randn(8, 4)).sum().backward()
    assert told.events == []


def test_a_backward_that_failed_is_not_gone_on_with(monkeypatch) -> None:
    """Else this peer would bring gradients of two batches, and none of the mean would come back."""
    model = network(monkeypatch)
    told = Told(model)
    hidden = model[0](torch.randn(8, 4))
    hidden.register_hook(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model[1:](hidden).sum().backward()
    with pytest.raises(ValueError, match="outside of the backward that is under way: that failed"):
        model(torch.randn(8, 4)).sum().backward()
    assert "end" not in told.events


def test_a_backward_within_a_backward_is_refused(monkeypatch) -> None:
    model = network(monkeypatch)
    Told(model)
    inputs = torch.randn(8, 4, requires_grad=True)
    hidden = torch.utils.checkpoint.checkpoint(model[:3], inputs, use_reentrant=True)
    with pytest.raises(ValueError, match="use_reentrant=True"):
        model[3:](hidden).sum().backward()


def test_a_parameter_that_is_unfrozen_later_is_told_of(monkeypatch) -> None:
    model = network(monkeypatch)
    model[0].requires_grad_(False)
    Told(model)
    model[0].requires_grad_(True)
    with pytest.raises(ValueError, match=r"other parameters have gradients now.*: 0\.bias, 0\.weight"):
        model(torch.randn(8, 4)).sum().backward()


@pytest.mark.filterwarnings("ignore:Using backward\\(\\) with create_graph=True")
def test_gradients_of_gradients_keep_no_graph(monkeypatch) -> None:
    model = network(monkeypatch)
    told = Told(model, alone=True)
    model(torch.randn(8, 4)).sum().backward(create_graph=True)
    assert not told.gradients.vector.requires_grad
    model.zero_grad()


def test_sparse_gradients_are_brought_whole() -> None:
    model = nn.Embedding(5, 3, sparse=True)
    told = Told(model, alone=True)
    model(torch.tensor([1, 1, 4])).sum().backward()
    assert told.events == ["begin", 0, "end"]
    assert told.gradients.vector[:15].view(5, 3)[:, 0].tolist() == [0, 2, 0, 0, 1]
