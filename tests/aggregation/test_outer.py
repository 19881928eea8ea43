"""The outer step decides what a round does to the model."""

import pytest
import torch

from samovar.aggregation.outer import Momentum, OfParameters, OuterStep, Plain, parse_outer


def run(outer: OuterStep, means: list[float]) -> list[float]:
    vector, path = torch.zeros(1), []
    state = outer.start(vector)
    for mean in means:
        vector, state = outer.step(vector, torch.tensor([mean]), state)
        path.append(vector.item())
    return path


def test_plain_makes_the_mean_the_model() -> None:
    assert run(Plain(), [1.0, -2.0, 5.0]) == [1, -2, 5]
    assert Plain().start(torch.ones(3)) == ()


def test_plain_leaves_anchor_and_mean_as_they_were() -> None:
    anchor, mean = torch.ones(3), torch.full((3,), 2.0)
    vector, state = Plain().step(anchor, mean, ())
    assert (vector.tolist(), state) == ([2, 2, 2], ())
    assert (anchor.tolist(), mean.tolist()) == ([1, 1, 1], [2, 2, 2])


def test_momentum_by_hand() -> None:
    assert run(Momentum(0.5), [1.0, 1.0, 1.0]) == [1, 1.5, 1.25]
    assert run(Momentum(0.5, 0.5), [1.0, 1.0]) == [0.5, 1]


def test_nesterov_by_hand() -> None:
    """D = -1, v = -1, x = 0.5 (1 + 0.5 1) = 0.75; then D = -0.25, v = -0.75, x = 0.75 + 0.5 (0.25 + 0.375)."""
    assert run(Momentum(0.5, 0.5, nesterov=True), [1.0, 1.0]) == [0.75, 1.0625]


def random_means(rounds: int) -> list[torch.Tensor]:
    return list(torch.randn(rounds, 1000, generator=torch.Generator().manual_seed(3)))


@pytest.mark.parametrize("outer", [Momentum(0.3), Momentum(0.9, 0.5), Momentum(0.9, 0.7, nesterov=True)])
def test_an_outer_step_equals_torch_sgd_on_the_difference(outer: Momentum) -> None:
    theirs = torch.nn.Parameter(torch.ones(1000))
    sgd = torch.optim.SGD([theirs], lr=outer.rate, momentum=outer.momentum, nesterov=outer.nesterov)
    ours, state = torch.ones(1000), outer.start(torch.ones(1000))
    for mean in random_means(20):
        theirs.grad = theirs.detach() - mean
        sgd.step()
        ours, state = outer.step(ours, mean, state)
        assert torch.allclose(ours, theirs.detach(), rtol=1e-4, atol=1e-4)


def test_server_momentum_with_the_papers_factor_is_momentum_with_another_rate() -> None:
    """m <- b m + (1 - b) D, x <- x - eta m."""
    momentum, eta = 0.75, 0.8
    outer = Momentum(momentum, eta * (1 - momentum))
    theirs, m, ours, state = torch.ones(1000), torch.zeros(1000), torch.ones(1000), outer.start(torch.ones(1000))
    for mean in random_means(20):
        m = momentum * m + (1 - momentum) * (theirs - mean)
        theirs = theirs - eta * m
        ours, state = outer.step(ours, mean, state)
        assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("nesterov", [False, True])
def test_a_step_gives_the_same_bits_for_any_length_and_place_in_the_vector(nesterov: bool) -> None:
    """A fused product and sum, in the body of a vector but not at its end, would not."""
    outer = Momentum(0.9, 0.7, nesterov=nesterov)
    anchor, mean, velocity = torch.randn(3, 1001, generator=torch.Generator().manual_seed(5))
    whole, (after,) = outer.step(anchor, mean, (velocity,))
    one_by_one = [outer.step(anchor[i : i + 1], mean[i : i + 1], (velocity[i : i + 1],)) for i in range(1001)]
    assert torch.equal(whole, torch.cat([vector for vector, _ in one_by_one]))
    assert torch.equal(after, torch.cat([state for _, (state,) in one_by_one]))


@pytest.mark.parametrize("outer", [Momentum(0.5), Momentum(0.5, nesterov=True), OfParameters(Momentum(0.5), 1)])
def test_a_step_leaves_anchor_mean_and_state_as_they_were(outer: OuterStep) -> None:
    anchor, mean, velocity = torch.ones(3), torch.full((3,), 2.0), torch.full((3,), 3.0)
    outer.step(anchor, mean, (velocity,))
    assert (anchor.tolist(), mean.tolist(), velocity.tolist()) == ([1] * 3, [2] * 3, [3] * 3)


def test_buffers_become_their_mean() -> None:
    """Two parameters and a running variance, which falls from 1 to 0.1 and must not become negative."""
    outer, anchor, mean = OfParameters(Momentum(0.9), 1), torch.tensor([1.0, 1.0, 1.0]), torch.tensor([1.0, 0.5, 0.1])
    vector, state = outer.step(anchor, mean, outer.start(anchor))
    vector, _ = outer.step(vector, mean, state)
    assert vector.tolist() == [1, pytest.approx(0.05), pytest.approx(0.1)]
    assert (outer.tensors, Plain().tensors) == (1, 0)


@pytest.mark.parametrize(
    ("text", "outer"),
    [
        ("plain", Plain()),
        ("momentum", Momentum(0.3)),
        ("momentum:0.5", Momentum(0.5)),
        ("server_momentum", Momentum(0.9, 1.0)),
        ("server_momentum:0.5", Momentum(0.9, 0.5)),
        ("server_momentum:1:0", Plain()),
        ("server_momentum:0.5:0", Momentum(0.0, 0.5)),
        ("nesterov", Momentum(0.9, 0.7, nesterov=True)),
        (" nesterov:0.4:0.8 ", Momentum(0.8, 0.4, nesterov=True)),
    ],
)
def test_an_outer_step_is_asked_for_by_name(text: str, outer: OuterStep) -> None:
    assert parse_outer(text) == outer


SILLY = """adam Plain plain:1 momentum: momentum:1 momentum:-0.1 momentum:nan momentum:0.3:1 momentum:x
    server_momentum:0 server_momentum:11 server_momentum:1:1 nesterov:inf nesterov:-1 nesterov:0.7:0.9:1"""


@pytest.mark.parametrize("text", ["", ":", "x" * 5000, "nesterov:" + "0" * 5000, *SILLY.split()])
def test_an_unknown_outer_step_and_silly_options_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]{10,250}$"):
        parse_outer(text)


@pytest.mark.parametrize("mean", [torch.ones(2), torch.ones(3, 1), torch.ones(3).double()])
def test_vectors_that_do_not_fit_are_refused(mean: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        Plain().step(torch.ones(3), mean, ())


def test_the_state_of_another_step_is_refused() -> None:
    with pytest.raises(ValueError, match="keeps 0 tensors of state, got 1"):
        Plain().step(torch.ones(3), torch.ones(3), (torch.ones(3),))
    with pytest.raises(ValueError, match="does not fit"):
        Momentum(0.5).step(torch.ones(3), torch.ones(3), (torch.ones(4),))
