"""The outer step decides what a round does to the model."""

import pytest
import torch

from samovar.aggregation.outer import OuterState, OuterStep, Plain, check_step


class HeavyBall:
    """Block momentum with one tensor of state: that it fits the interface is the promise."""

    def start(self, vector: torch.Tensor) -> OuterState:
        return (torch.zeros_like(vector),)

    def step(self, anchor: torch.Tensor, mean: torch.Tensor, state: OuterState) -> tuple[torch.Tensor, OuterState]:
        check_step(anchor, mean, state, tensors=1)
        velocity = 0.5 * state[0] + (anchor - mean)
        return anchor - velocity, (velocity,)


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


def test_a_step_with_state_is_one_more_class() -> None:
    assert run(HeavyBall(), [1.0, 1.0, 1.0]) == [1, 1.5, 1.25]


@pytest.mark.parametrize("mean", [torch.ones(2), torch.ones(3, 1), torch.ones(3).double()])
def test_vectors_that_do_not_fit_are_refused(mean: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        Plain().step(torch.ones(3), mean, ())


def test_the_state_of_another_step_is_refused() -> None:
    with pytest.raises(ValueError, match="keeps 0 tensors of state, got 1"):
        Plain().step(torch.ones(3), torch.ones(3), (torch.ones(3),))
    with pytest.raises(ValueError, match="does not fit"):
        HeavyBall().step(torch.ones(3), torch.ones(3), (torch.ones(4),))
