"""Normal equations: the sums of partitions give the least squares of all rows."""

import numpy as np
import pytest
import torch

from samovar.aggregation.normal_equations import packed, size_of, solution, unpacked


def rows(count: int, n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    chance = torch.Generator().manual_seed(seed)
    x = torch.randn(count, n, generator=chance, dtype=torch.float64)
    return x, x.sum(1) + torch.randn(count, generator=chance, dtype=torch.float64)


@pytest.mark.parametrize("partitions", [1, 3, 7])
def test_sums_of_partitions_give_the_least_squares_of_numpy(partitions: int) -> None:
    x, y = rows(300, 12, seed=0)
    cut = zip(x.tensor_split(partitions), y.tensor_split(partitions), strict=True)
    total = torch.stack([packed(one.T @ one, one.T @ targets) for one, targets in cut]).sum(0)
    theta = solution(*unpacked(total, 12))
    due = np.linalg.lstsq(x.numpy(), y.numpy(), rcond=None)[0]
    assert np.abs(theta.numpy() - due).max() < 1e-12


@pytest.mark.parametrize("n", [0, 1, 5])
def test_sums_are_unpacked_as_they_were_packed(n: int) -> None:
    x, y = rows(9, n, seed=1)
    vector = packed(x.T @ x, x.T @ y)
    assert vector.numel() == size_of(n)
    a, b = unpacked(vector, n)
    assert torch.equal(b, x.T @ y)
    assert torch.allclose(a, x.T @ x, atol=1e-12)
    assert torch.equal(a, a.T)


def test_a_ridge_shrinks_the_solution_and_mends_columns_that_depend_on_each_other() -> None:
    x, y = rows(50, 2, seed=2)
    twice = torch.cat([x, x], dim=1)
    a, b = twice.T @ twice, twice.T @ y
    with pytest.raises(ValueError, match="depend on each other"):
        solution(a - 1e-9 * torch.eye(4, dtype=torch.float64), b)
    assert torch.allclose((a + torch.eye(4, dtype=torch.float64)) @ solution(a, b, ridge=1.0), b)


def test_sums_of_other_shapes_are_refused() -> None:
    for a, b in ((torch.eye(3), torch.ones(2)), (torch.ones(2, 2).triu(), torch.ones(2))):
        with pytest.raises(ValueError, match=r"\[n, n\]|symmetric"):
            packed(a, b)
    with pytest.raises(ValueError, match="5 elements"):
        unpacked(torch.ones(6), 2)
