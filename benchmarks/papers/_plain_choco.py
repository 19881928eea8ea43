"""CHOCO-gossip as plainly as its paper tells it (Koloskova et al., arXiv 1902.00340, Algorithm 1), without peers."""

from __future__ import annotations

from _mixing import begun
from torch import Tensor, stack, zeros_like


def on_a_ring(peers: int, rounds: int, size: int, share: float, step: float) -> list[float]:
    """The squared distance of the vectors from their mean after each round, over the one before the first, which is 1.
    They begin as in `_mixing`; the largest `share` of the elements is sent, and `step` is the consensus step."""
    x = stack([begun(part, size) for part in range(peers)])
    known, found = zeros_like(x), [_square(x)]
    for _ in range(rounds):
        largest = (x - known).abs().topk(round(share * size)).indices
        known = known.scatter_add(1, largest, (x - known).gather(1, largest))
        x = x + step * ((known.roll(1, 0) + known + known.roll(-1, 0)) / 3 - known)
        found.append(_square(x))
    return [one / found[0] for one in found]


def _square(x: Tensor) -> float:
    return float((x - x.mean(0)).square().sum())
