"""Checks of the values of ranges against the pushes that led to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...aggregation.server.adagrad import Adagrad
from ...aggregation.server.adam import Adam
from ...aggregation.server.add import Add
from ...aggregation.server.function import ServerFunction
from ...aggregation.server.momentum import Momentum
from ...aggregation.server.sgd import SGD
from ...aggregation.vector import norm_of
from ...protocols.parameter_server.events import Entered, Took
from ..world.event_log import Entry, Resumed

_JUDGED = 4
"""One range in so many is judged: all are updated by the same function."""
Optimizers = Callable[[list[Tensor]], torch.optim.Optimizer]


def _optimizers(function: ServerFunction) -> Optimizers | None:
    """The optimizer of PyTorch that a server function is; None: it is none."""
    match function:
        case Add():
            return lambda parameters: torch.optim.SGD(parameters, lr=1.0, maximize=True)
        case SGD(rate=rate):
            return lambda parameters: torch.optim.SGD(parameters, lr=rate)
        case Momentum(rate=rate, beta=beta):
            return lambda parameters: torch.optim.SGD(parameters, lr=rate, momentum=beta)
        case Adagrad(rate=rate, first=first, eps=eps):
            return lambda parameters: torch.optim.Adagrad(parameters, lr=rate, initial_accumulator_value=first, eps=eps)
        case Adam(rate=rate, beta1=one, beta2=two, eps=eps):
            return lambda parameters: torch.optim.Adam(parameters, lr=rate, betas=(one, two), eps=eps)
    return None


class _Optimizer:
    """An optimizer of PyTorch for one range, which takes the gradients that were pushed to it."""

    def __init__(self, make: Optimizers, like: Tensor, pushed: Sequence[Tensor]) -> None:
        """`pushed`: what it has taken before."""
        self._values = torch.nn.Parameter(torch.zeros_like(like))
        self._own = make([self._values])
        for gradient in pushed:
            self._values.grad = gradient
            self._own.step()

    def step(self, values: Tensor, pushed: Tensor) -> Tensor:
        """The values [m] after another step from `values`."""
        self._values.data.copy_(values)
        self._values.grad = pushed
        self._own.step()
        return self._values.detach().clone()


@dataclass(slots=True)
class _Range:
    """A range in one term. `values`: the last ones, of `version`. `before`: what was pushed before the term;
    `pushed`: by version, since then."""

    values: Tensor
    version: int
    before: list[Tensor]
    pushed: dict[int, Tensor] = field(default_factory=dict)
    optimizer: _Optimizer | None = None


def wrong_updates(function: ServerFunction, entries: Sequence[Entry]) -> Iterator[str]:
    """A line for each version of a range that is not the optimizer's step from the version before. Judged is one range
    in four, and no block of rows. Not judged is a range whose beginning is not in the log: that of a resumed run, or of
    a term that nobody is known to have held."""
    make = _optimizers(function)
    if make is None or (entries and isinstance(entries[0].event, Resumed)):
        return
    terms: dict[tuple[int, int], _Range] = {}
    for _, life, event in entries:
        if not isinstance(event, Took | Entered) or event.range % _JUDGED:
            continue
        if isinstance(event, Took):
            _begin(terms, event)
        elif (known := terms.get((event.range, event.term))) is not None:
            if event.version <= known.version:
                continue  # another copy has told of it
            if event.version != known.version + 1 or event.rows is not None:
                del terms[event.range, event.term]
                continue
            before, known.values, known.version = known.values, event.values, event.version
            if event.pushed is None:
                due = before
            else:
                known.optimizer = known.optimizer or _Optimizer(make, before, known.before)
                due = known.optimizer.step(before, event.pushed)
                known.pushed[event.version] = event.pushed
            if not torch.allclose(event.values, due, rtol=1e-4, atol=1e-6 * max(1.0, float(before.abs().max()))):
                yield f"{life} holds a version {event.version} of range {event.range} that is not the optimizer's"


def huge_pushes(norm_limit: float, entries: Sequence[Entry]) -> Iterator[str]:
    """A line for each update of a range whose pushed values have a norm that no sum of pushes within `norm_limit` can
    have: beyond ten times that limit for each worker that takes part, times the largest norm of the range so far (or
    times 1, if that is more). Blocks of rows are not judged."""
    largest = dict[int, float]()
    for _, life, event in entries:
        if not isinstance(event, Took | Entered):
            continue
        held = max(1.0, largest.get(event.range, 0.0))
        if isinstance(event, Entered) and event.pushed is not None:
            most = 10.0 * norm_limit * max(1, len(event.counted)) * held
            if not (norm := norm_of(event.pushed)) <= most:
                yield f"{life} has applied a push of norm {norm:.3g} to range {event.range}, of norm {held:.3g}"
        if isinstance(event, Took) or event.rows is None:
            largest[event.range] = max(held, norm_of(event.values.reshape(-1)))


def _begin(terms: dict[tuple[int, int], _Range], event: Took) -> None:
    """A server has begun a term, from the copy of an earlier one."""
    if (event.range, event.term) in terms:
        return
    base = terms.get((event.range, event.base))
    if base is None and (event.base or event.version):
        return
    before = [] if base is None else [*base.before, *_up_to(base.pushed, event.version)]
    terms[event.range, event.term] = _Range(event.values, event.version, before)


def _up_to(pushed: Mapping[int, Tensor], version: int) -> list[Tensor]:
    return [pushed[number] for number in sorted(pushed) if number <= version]
