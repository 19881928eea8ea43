"""L-BFGS from dot products: the two-loop recursion, and the minimum that scipy finds."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from samovar.aggregation.lbfgs import BASIS, HISTORY, Order, Search, decide, two_loop
from samovar.aggregation.server.lbfgs import KeepBasis, gram, last_order, obeyed

Judged = tuple[float, Tensor]


def logistic(rows: int, n: int, seed: int) -> Callable[[Tensor], Judged]:
    """The loss and the gradient of logistic regression with a small ridge."""
    chance = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, n, generator=chance, dtype=torch.float64) * torch.linspace(0.1, 3, n, dtype=torch.float64)
    y = (x.sum(1) + torch.randn(rows, generator=chance, dtype=torch.float64) > 0).double()

    def at(theta: Tensor) -> Judged:
        z = x @ theta
        loss = torch.nn.functional.binary_cross_entropy_with_logits(z, y) + 5e-4 * theta @ theta
        return float(loss), x.T @ (torch.sigmoid(z) - y) / rows + 1e-3 * theta

    return at


def minimised(at: Callable[[Tensor], Judged], n: int, trials: int, ranges: int = 1) -> Tensor:
    """The point after so many trials, with the vector in `ranges` ranges."""
    function, search = KeepBasis(), Search()
    values = [one.clone() for one in torch.zeros(n, dtype=torch.float64).tensor_split(ranges)]
    states = [function.start(one) for one in values]
    for trial in range(trials):
        loss, gradient = at(torch.cat(values))
        for number, part in enumerate(gradient.tensor_split(ranges)):
            values[number], states[number] = function.step(values[number], part, states[number])
        order = decide(sum(map(gram, states), torch.zeros(BASIS, BASIS)), loss, search, last=trial == trials - 1)
        order = Order.from_plain(order.to_plain())
        made = [obeyed(one, state, order) for one, state in zip(values, states, strict=True)]
        values, states, search = [one for one, _ in made], [state for _, state in made], order.search
    return torch.cat(values)


@pytest.mark.parametrize("ranges", [1, 4])
def test_the_loss_is_that_of_scipys_l_bfgs(ranges: int) -> None:
    at, n = logistic(400, 12, seed=0), 12
    found = minimize(lambda theta: [float(at(torch.from_numpy(theta))[0]), at(torch.from_numpy(theta))[1].numpy()],
                     np.zeros(n), jac=True, method="L-BFGS-B", options={"maxiter": 200, "ftol": 1e-14})  # fmt: skip
    assert at(minimised(at, n, 60, ranges))[0] == pytest.approx(found.fun, abs=1e-8)


def test_ranges_change_nothing_but_the_rounding() -> None:
    at = logistic(100, 9, seed=1)
    assert float((minimised(at, 9, 15, 1) - minimised(at, 9, 15, 3)).abs().max()) < 1e-10


def test_the_recursion_is_the_inverse_of_a_dense_bfgs() -> None:
    """H of BFGS from the same pairs and the same first scale, as a dense matrix."""
    chance = torch.Generator().manual_seed(2)
    n, pairs = 7, 4
    a = torch.randn(n, n, generator=chance, dtype=torch.float64)
    a = a @ a.T + torch.eye(n, dtype=torch.float64)
    steps = torch.randn(pairs, n, generator=chance, dtype=torch.float64)
    changes, g = steps @ a, torch.randn(n, generator=chance, dtype=torch.float64)
    basis = torch.zeros(BASIS, n, dtype=torch.float64)
    basis[HISTORY - pairs : HISTORY], basis[2 * HISTORY - pairs : 2 * HISTORY], basis[-1] = steps, changes, g
    h = torch.eye(n, dtype=torch.float64) * (steps[-1] @ changes[-1]) / (changes[-1] @ changes[-1])
    for s, y in zip(steps, changes, strict=True):
        left = torch.eye(n, dtype=torch.float64) - torch.outer(s, y) / (s @ y)
        h = left @ h @ left.T + torch.outer(s, s) / (s @ y)
    assert torch.allclose(two_loop(basis @ basis.T) @ basis, -h @ g, atol=1e-10)


def test_a_trial_that_is_worse_or_not_finite_is_shortened_and_one_that_falls_steeply_is_lengthened() -> None:
    search = Search(alpha=1.0, loss0=1.0, slope0=-1.0, begun=True)
    flat = torch.zeros(BASIS, BASIS, dtype=torch.float64)
    for loss in (2.0, math.nan, math.inf):
        order = decide(flat, loss, search)
        assert (order.accept, order.search.alpha, order.search.high) == (False, 0.5, 1.0)
    steep = flat.clone()
    steep[-3, -1] = steep[-1, -3] = -0.95
    order = decide(steep, 0.5, search)
    assert (order.accept, order.search.alpha, order.search.low) == (False, 2.0, 1.0)
    assert decide(flat, 2.0, search, last=True).search.alpha == 0, "the last point is the best one"


@pytest.mark.parametrize("size", [1e-200, 1e30, 1e200])
def test_an_order_is_of_finite_numbers_whatever_the_gradient(size: float) -> None:
    """A pushed gradient may be anything finite; the order after it is sent, and kept by ranges of float32."""
    function, values, search = KeepBasis(), torch.zeros(3), Search()
    state = function.start(values)
    for gradient in (torch.full((3,), 1e30), torch.full((3,), -1e30), torch.full((3,), 1.0)):
        values, state = function.step(values, gradient, state)
        order = decide(gram(state), 1.0, search)
        (values, state), search = obeyed(values, state, order), order.search
        assert all(map(math.isfinite, order.to_plain()))
        assert last_order(state) == order
    huge = torch.full((BASIS, BASIS), size, dtype=torch.float64)
    order = decide(huge, 1.0, Search(begun=True, loss0=2.0, alpha=size))
    assert all(map(math.isfinite, order.to_plain()))


def test_another_number_of_numbers_is_no_order() -> None:
    with pytest.raises(ValueError, match="numbers"):
        Order.from_plain((1.0, 2.0))
