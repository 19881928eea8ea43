"""Workers and one range of a parameter server in virtual time, for `staleness.py`.

The library's own parts decide: `aggregation.consistency` who may go on, the store, the gathering and the algorithms
what a push does. There is no network: a push arrives at the end of its step, and a pull takes no time.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from _tasks import Stream, network
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from samovar.aggregation.consistency import Consistency, lacking, parse_consistency, spread
from samovar.aggregation.server.function import ServerFunction
from samovar.aggregation.server.registry import parse_server_function
from samovar.aggregation.vector import Part
from samovar.protocols.parameter_server.algorithms.algorithm import Algorithm, MapReduce, Shared
from samovar.protocols.parameter_server.algorithms.registry import parse_algorithm
from samovar.protocols.parameter_server.gathering import Gathering
from samovar.protocols.parameter_server.keys import Keys, Model
from samovar.protocols.parameter_server.store import Entry, Store

StepTime = Callable[[random.Random, int], float]
"""Draws the time of a step of a worker, whose number is given."""
Gradient = Callable[[int, Tensor], Tensor]
"""What a worker pushes that has pulled these values [n]."""
BATCH, HELD_OUT = 8, 4000


def exponential(chance: random.Random, worker: int) -> float:
    return chance.expovariate(1.0)


def uniform(chance: random.Random, worker: int) -> float:
    return chance.uniform(0.5, 1.5)


def log_normal(chance: random.Random, worker: int) -> float:
    return math.exp(0.5 * chance.gauss(0.0, 1.0))


def one_slow(chance: random.Random, worker: int) -> float:
    return 3.0 if worker == 0 else 1.0


@dataclass(slots=True)
class Played:
    """What came of it: `seconds` of virtual time, `clocks` at the end, the largest `spread` at any event, the staleness
    of each push, the number of `updates`, the `values` [n], and their losses over time."""

    seconds: float = 0.0
    clocks: list[int] = field(default_factory=list)
    spread: int = 0
    staleness: list[int] = field(default_factory=list)
    updates: int = 0
    values: Tensor = field(default_factory=lambda: torch.zeros(1))
    curve: list[tuple[float, float]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """`workers` that take steps of random length `step_s`. `at_once`: a worker whose step went on without it drops it
    at once, and does not finish it."""

    workers: int
    step_s: StepTime
    algorithm: str = "sync"
    consistency: str = ""
    function: str = "add"
    at_once: bool = False
    seed: int = 0

    def parts(self) -> tuple[Algorithm, Consistency, ServerFunction]:
        algorithm = parse_algorithm(self.algorithm)
        assert not isinstance(algorithm, MapReduce | Shared), "no pushes of local steps"
        consistency = parse_consistency(self.consistency or algorithm.usual[0])
        return algorithm.under(consistency), consistency, parse_server_function(self.function)


def played(
    scene: Scene,
    values: Tensor | None = None,
    gradient: Gradient = lambda worker, values: torch.zeros_like(values),
    *,
    until_s: float = math.inf,
    until_clock: int | None = None,
    judge: Callable[[Tensor], float] | None = None,
) -> Played:
    """Play `scene` until a time, or until all workers are at a clock. `judge` gives the loss of values, for a curve."""
    algorithm, consistency, function = scene.parts()
    first = torch.zeros(1) if values is None else values
    store = Store(Keys([Part(0, first.numel())], first.numel(), first.dtype), function)
    copy = store.copies[0] = store.create(0, Model(first, {}))
    names = [str(worker) for worker in range(scene.workers)]
    store.enter(Entry((0,), None, dict.fromkeys(names, 0), joins=True))
    chance, out, gathering = random.Random(scene.seed), Played(), Gathering((0,))
    clocks, read, pulled = [0] * scene.workers, [0] * scene.workers, [copy.values] * scene.workers
    began, pieces = [0] * scene.workers, [0] * scene.workers
    events: list[tuple[float, int, int]] = []
    waiting, judged_s = {*range(scene.workers)}, 0.0

    def begin_all(now: float) -> None:
        """Have the workers begin that may."""
        for worker in sorted(waiting):
            clocks[worker] = max(clocks[worker], copy.clocks[names[worker]])
            if not lacking(copy.clocks, consistency.required(names[worker], clocks[worker], copy.counted())):
                waiting.discard(worker)
                began[worker], read[worker], pulled[worker] = clocks[worker], copy.updates, copy.values
                pieces[worker] += 1
                heapq.heappush(events, (now + scene.step_s(chance, worker), worker, pieces[worker]))

    begin_all(0.0)
    while events[0][0] < until_s and (until_clock is None or min(clocks) < until_clock):
        now, worker, piece = heapq.heappop(events)
        if piece != pieces[worker]:
            continue  # the step was dropped
        seq, staleness = began[worker] + 1, copy.updates - read[worker]
        if seq > copy.clocks[names[worker]]:
            out.staleness.append(staleness)
            weight = algorithm.weight(staleness, scene.workers)
            gathering.add(names[worker], seq, gradient(worker, pulled[worker]), weight, last=False)
            counted = copy.counted()
            if gathering.due(algorithm, counted):
                store.enter(gathering.entry(algorithm, counted))
                gathering = Gathering((0,))
        clocks[worker] = seq
        waiting.add(worker)
        if scene.at_once:
            for late in range(scene.workers):
                if late not in waiting and began[late] < copy.clocks[names[late]]:
                    pieces[late] += 1
                    waiting.add(late)
        out.spread = max(out.spread, spread(clocks))
        begin_all(now)
        out.seconds = now
        if judge is not None and now >= judged_s:
            out.curve.append((now, judge(copy.values)))
            judged_s += until_s / 20
    out.clocks, out.updates, out.values = clocks, copy.updates, copy.values
    return out


class Problem:
    """MLP-S of `_tasks`: gradients of batches of eight fresh samples for each worker, and the loss on held-out ones."""

    def __init__(self, seed: int, workers: int) -> None:
        stream = Stream(seed)
        model = network(seed)
        self.values = parameters_to_vector(model.parameters()).detach().clone()
        self._shapes = [tuple(parameter.shape) for parameter in model.parameters()]
        generator = torch.Generator().manual_seed(seed + 1)
        self._held_out = stream.draw(HELD_OUT, generator)
        self._batches = [self._stream(stream, seed * 1000 + worker) for worker in range(workers)]

    @staticmethod
    def _stream(stream: Stream, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(seed + 7)
        while True:
            inputs, labels = stream.draw(BATCH * 64, generator)
            yield from zip(inputs.split(BATCH), labels.split(BATCH), strict=True)

    def _loss(self, values: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
        tensors, at = [], 0
        for shape in self._shapes:
            size = math.prod(shape)
            tensors.append(values[at : at + size].view(shape))
            at += size
        first, bias, last, offset = tensors
        hidden = torch.relu(torch.addmm(bias, batch[0], first.t()))
        return torch.nn.functional.cross_entropy(torch.addmm(offset, hidden, last.t()), batch[1])

    def gradient(self, worker: int, values: Tensor) -> Tensor:
        at = values.detach().requires_grad_()
        (found,) = torch.autograd.grad(self._loss(at, next(self._batches[worker])), at)
        return torch.nan_to_num(found, 0.0, 1e6, -1e6)

    def judge(self, values: Tensor) -> float:
        with torch.no_grad():
            return float(self._loss(values, self._held_out))
