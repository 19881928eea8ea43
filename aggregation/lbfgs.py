"""L-BFGS whose vectors stay where they are: one machine decides from dot products alone, and others keep the vectors.

Sources: Nocedal & Wright, "Numerical optimization", 2nd edition, Algorithm 7.4 (the two-loop recursion); Chen,
Wang & Zhou, "Large-scale L-BFGS using MapReduce", NIPS 2014 (the recursion on the dot products of its vectors); Lewis &
Overton, "Nonsmooth optimization via quasi-Newton methods", 2013, Algorithm 2.6 (bisection to weak Wolfe conditions).

A vector of n elements is cut into ranges. For each range a keeper holds the basis [2 m + 3, n]

    s_1 .. s_m, y_1 .. y_m    the last steps and the changes of the gradient along them, oldest first; zero: none yet
    d                         the direction of the search
    g0, g                     the gradients at the point x0 from which the search goes, and at the trial x0 + alpha d

and sends the dot products of all pairs; their sums over the ranges are the Gram matrix. `decide` makes an `Order` of
it: go on with another alpha, or accept the trial and search along -H g, as coefficients of the basis. A keeper obeys an
order by axpy alone. So (2 m + 3)^2 numbers are sent for a range, whatever n is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import torch
from torch import Tensor

HISTORY = 10
"""m: the pairs of a step and a change of the gradient that are kept."""
BASIS = 2 * HISTORY + 3
_D, _G0, _G = 2 * HISTORY, 2 * HISTORY + 1, 2 * HISTORY + 2
_C1, _C2 = 1e-4, 0.9
"""The weak Wolfe conditions: f <= f0 + c1 alpha slope0, and slope >= c2 slope0."""
_LEAST_CURVATURE = 1e-12
"""A pair is kept if s y > this * |s| |y|, so that H stays positive definite."""


@dataclass(frozen=True, slots=True)
class Search:
    """The state of the line search from x0 along d. `alpha`: the next trial point is x0 + `alpha` d; 0 once `begun`: no
    trial follows. `low`, `high`: the bounds of alpha; `high` 0: there is no upper bound yet. `loss0`, `slope0`: the
    loss at x0, and its derivative along d there. `begun`: False before the first trial, which is the initial point."""

    alpha: float = 0.0
    low: float = 0.0
    high: float = 0.0
    loss0: float = 0.0
    slope0: float = 0.0
    begun: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """The order that all keepers obey after a trial. `tried`: the alpha of that trial. `accept`: the trial point
    becomes x0; `pair`: its step and its change of the gradient are also added to the basis. `direction` [2 m + 3]: the
    coefficients of the next d in the new basis. `search`: the state for the next trial, at x0 + `search.alpha` d."""

    search: Search = Search()
    tried: float = 0.0
    accept: bool = False
    pair: bool = False
    direction: tuple[float, ...] = (0.0,) * BASIS

    def to_plain(self) -> tuple[float, ...]:
        """The order as `ORDER` floats, for a message: the fields of `search`, then `tried`, `accept`, `pair` and the
        numbers of `direction`."""
        return (*map(float, (*astuple(self.search), self.tried, self.accept, self.pair)), *self.direction)

    @classmethod
    def from_plain(cls, numbers: Sequence[float]) -> Order:
        """The order that `to_plain` returned. Raises ValueError when there are not exactly `ORDER` numbers."""
        if len(numbers) != ORDER:
            raise ValueError(f"an order has {ORDER} numbers, got {len(numbers)}")
        alpha, low, high, loss0, slope0, begun, tried, accept, pair, *direction = numbers
        search = Search(alpha, low, high, loss0, slope0, bool(begun))
        return cls(search, tried, bool(accept), bool(pair), tuple(direction))


ORDER = 9 + BASIS
"""The length of an order as numbers (`Order.to_plain`)."""


def decide(gram: Tensor, loss: float, search: Search, *, last: bool = False) -> Order:
    """The order that follows a trial. `gram` [2 m + 3, 2 m + 3], float64: dot products of the basis; `loss`: that of
    the trial point; `search`: the state in which the trial was made.

    The initial point is accepted, and a trial that meets the weak Wolfe conditions. After any other, the next alpha is
    halfway between its bounds, or twice the lower one while there is no upper one. A trial with a loss or product that
    is infinite or NaN is rejected (at the initial point the order then changes nothing), and the order's numbers are
    finite. Where no direction leads downhill from the accepted point, the next alpha is 0. `last`: no trial follows:
    the next alpha is 0, so that the values become the best accepted point, and a loss that is low enough suffices to
    accept."""
    slope = float(gram[_D, _G])
    finite = math.isfinite(loss) and bool(torch.isfinite(gram).all())
    if not search.begun and not finite:
        return Order(search)
    if search.begun and not (finite and loss <= search.loss0 + _C1 * search.alpha * search.slope0):
        return _try_again(search, search.low, search.alpha, last=last)
    if search.begun and slope < _C2 * search.slope0 and not last:
        return _try_again(search, search.alpha, search.high, last=last)
    pair = search.begun and _is_curved(gram, search.alpha)
    moves = rolled(search.alpha) if pair else kept()
    after = moves @ gram @ moves.T
    direction = two_loop(after)
    slope0 = float(direction @ after[:, _G])
    if not (-math.inf < slope0 < 0 and bool(torch.isfinite(direction).all())):
        direction, slope0 = torch.zeros_like(direction), 0.0
    scaled = bool(after[: 2 * HISTORY, : 2 * HISTORY].any())
    first = 1.0 if scaled else 1.0 / max(1.0, math.sqrt(float(gram[_G, _G])))
    alpha = first if slope0 < 0 and not last else 0.0
    return Order(Search(alpha, 0.0, 0.0, loss, slope0, begun=True), search.alpha, True, pair, tuple(direction.tolist()))


def _try_again(search: Search, low: float, high: float, *, last: bool) -> Order:
    alpha = 0.0 if last else (low + high) / 2 if high else 2 * low
    return Order(Search(alpha, low, high, search.loss0, search.slope0, begun=True), search.alpha)


def _is_curved(gram: Tensor, alpha: float) -> bool:
    s, y = _unit(_D, alpha), _unit(_G) - _unit(_G0)
    sy, ss, yy = float(s @ gram @ y), float(s @ gram @ s), float(y @ gram @ y)
    return sy > _LEAST_CURVATURE * math.sqrt(max(0.0, ss) * max(0.0, yy)) and sy > 0


def _unit(place: int, value: float = 1.0) -> Tensor:
    row = torch.zeros(BASIS, dtype=torch.float64)
    row[place] = value
    return row


def rolled(alpha: float) -> Tensor:
    """The matrix [2 m + 3, 2 m + 3] by which the basis is multiplied from the left after an accepted trial whose pair
    is kept: the oldest pair is dropped. ``alpha``: that of the trial, x0 + alpha d."""
    rows = [*(_unit(place + 1) for place in range(HISTORY - 1)), _unit(_D, alpha)]
    rows += [*(_unit(HISTORY + place + 1) for place in range(HISTORY - 1)), _unit(_G) - _unit(_G0)]
    return torch.stack([*rows, _unit(_D), _unit(_G), _unit(_G)])


def kept() -> Tensor:
    """The matrix [2 m + 3, 2 m + 3] by which the basis is multiplied from the left after an accepted trial whose pair
    is left out."""
    return torch.stack([*(_unit(place) for place in range(_G0)), _unit(_G), _unit(_G)])


def two_loop(gram: Tensor) -> Tensor:
    """The coefficients [2 m + 3], in the basis, of the direction -H g. `gram` [2 m + 3, 2 m + 3]: the dot products of
    the basis; both are float64. Pairs whose product s y is not positive are left out, those of zeros too. Before the
    pairs, H is s y / y y of the newest one times the identity; if there is no pair, the direction is -g."""
    q, weights = _unit(_G), list[tuple[int, float]]()
    pairs = [place for place in range(HISTORY) if float(gram[place, HISTORY + place]) > 0]
    for place in reversed(pairs):
        a = float(gram[place] @ q) / float(gram[place, HISTORY + place])
        q = q - a * _unit(HISTORY + place)
        weights.append((place, a))
    if pairs:
        newest = pairs[-1]
        q = q * float(gram[newest, HISTORY + newest] / gram[HISTORY + newest, HISTORY + newest])
    for place, a in reversed(weights):
        b = float(gram[HISTORY + place] @ q) / float(gram[place, HISTORY + place])
        q = q + (a - b) * _unit(place)
    return -q
