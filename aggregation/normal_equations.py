"""Normal equations: least squares from sums over rows, which partitions of the rows can compute by themselves.

Source: Chu et al., "Map-reduce for machine learning on multicore", NIPS 2006, section 4.1:

    A = sum over rows of w x x^T,   b = sum over rows of w x y,   theta = A^-1 b

The sums of several partitions add up to those of all rows, so theta does not depend on the partitions. A is symmetric,
hence its upper triangle [n (n + 1) / 2] is all that is sent.

Cost: O(n^3) for the solution. Its relative error is about the condition number of A times the precision of the dtype,
and that number is the square of the rows': use float64.
"""

from __future__ import annotations

import torch
from torch import Tensor


def size_of(n: int) -> int:
    """The number of elements of packed sums for `n` coefficients."""
    return n * (n + 1) // 2 + n


def packed(a: Tensor, b: Tensor) -> Tensor:
    """The upper triangle of `a` [n, n], row after row, and then `b` [n], as one vector. Raises ValueError when the
    shapes are others, or `a` is not symmetric up to rounding."""
    n = b.numel()
    if a.shape != (n, n) or b.dim() != 1:
        raise ValueError(f"the sums are A [n, n] and b [n], got {tuple(a.shape)} and {tuple(b.shape)}")
    if not torch.allclose(a, a.T, rtol=1e-3, atol=1e-6 * float(a.abs().max()) if n else 0.0):
        raise ValueError("A is the sum of x x^T and so symmetric, and this one is not")
    rows, columns = torch.triu_indices(n, n)
    return torch.cat([a[rows, columns], b])


def unpacked(vector: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """A [n, n] and b [n], which `packed` made into `vector`. Raises ValueError on another length."""
    if vector.shape != (size_of(n),):
        raise ValueError(f"packed sums of {n} coefficients have {size_of(n)} elements, got {tuple(vector.shape)}")
    rows, columns = torch.triu_indices(n, n)
    a = vector.new_zeros(n, n)
    a[rows, columns] = a[columns, rows] = vector[:-n] if n else vector
    return a, vector[vector.numel() - n :].clone()


def solution(a: Tensor, b: Tensor, ridge: float = 0.0) -> Tensor:
    """The solution theta [n] of (`a` + `ridge` I) theta = `b`, with `a` [n, n] and `b` [n], by Cholesky. Raises
    ValueError when that matrix is not positive definite, as with columns that depend on each other."""
    factor, failed = torch.linalg.cholesky_ex(a + ridge * torch.eye(b.numel(), dtype=a.dtype))
    if int(failed):
        raise ValueError("A is not positive definite: the rows' columns depend on each other; give a ridge above 0")
    return torch.cholesky_solve(b.unsqueeze(1), factor).squeeze(1)
