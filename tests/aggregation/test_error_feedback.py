"""With error feedback nothing is lost: what was sent and what is left is what there was, and biased codecs converge."""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
import torch
from sklearn.datasets import load_digits
from tiers import soaked
from torch import Tensor, nn

from samovar.aggregation.codecs.codec import Codec
from samovar.aggregation.codecs.error_feedback import ErrorFeedback
from samovar.aggregation.codecs.power_sgd import PowerSGD
from samovar.aggregation.codecs.registry import CODECS, parse_codec
from samovar.aggregation.vector import Layout

LAYOUT = Layout.of({"a": torch.zeros(40, 60), "b": torch.zeros(200)})
EXACT = ["fp16", "bf16", "int8", "top_k", "top_k:0.01:fp16", "random_k"]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Such small tensors are slower on two, far slower when others run beside."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def normal(seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(LAYOUT.size, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def sent_of(codec: Codec, values: Tensor, seed: int = 0) -> Tensor:
    """What the others make of one peer's message."""
    if codec.family != "sketch":
        return codec.decode(codec.encode(values, seed), values.numel(), values.dtype)
    sketch = codec.begin(values, LAYOUT, seed, codec.start(LAYOUT, 0))
    for stage in range(sketch.stages):
        sketch.absorb(stage, sketch.project(stage))
    return sketch.own()


@pytest.mark.parametrize("text", [*CODECS, "top_k:0.01:fp16", "qsgd:1:l2"])
def test_the_sent_part_and_the_residual_sum_to_the_input(text: str) -> None:
    """Two roundings of float32 and no more; the second is none where a codec sends values, rounded, or nothing."""
    codec, feedback = parse_codec(text), ErrorFeedback.of(torch.zeros(LAYOUT.size))
    for step in range(20):
        values, before = normal(step), feedback.residual
        corrected = feedback.correct(values)
        sent = sent_of(codec, corrected, step)
        feedback.keep(corrected, sent)
        off = (feedback.residual.double() + sent.double() - corrected.double()).abs()
        assert bool((off <= 2**-24 * feedback.residual.double().abs()).all())
        assert text not in EXACT or not off.any()
        first = (corrected.double() - values.double() - before.double()).abs()
        assert bool((first <= 2**-24 * corrected.double().abs()).all())


@pytest.mark.parametrize("text", ["int8", "sign", "top_k:0.1", "random_k:0.1", "power_sgd"])
def test_error_feedback_delivers_all_values_in_the_end(text: str) -> None:
    codec, feedback = parse_codec(text), ErrorFeedback.of(torch.zeros(LAYOUT.size, dtype=torch.float64))
    values, total = normal(0).double(), torch.zeros(LAYOUT.size, dtype=torch.float64)
    layout = Layout.of({"a": torch.zeros(40, 60, dtype=torch.float64), "b": torch.zeros(200)})
    for step in range(100):
        corrected = feedback.correct(values)
        if codec.family == "sketch":
            sketch = codec.begin(corrected, layout, step, codec.start(layout, step))
            for stage in range(sketch.stages):
                sketch.absorb(stage, sketch.project(stage))
            sent = sketch.own()
        else:
            sent = sent_of(codec, corrected, step)
        feedback.keep(corrected, sent)
        total += sent
    assert torch.allclose(total + feedback.residual, 100 * values, atol=1e-9)
    assert feedback.residual.norm() < 0.5 * (100 * values).norm()


def test_a_round_that_fails_leaves_the_memory_as_it_was() -> None:
    feedback = ErrorFeedback.of(torch.zeros(3))
    feedback.keep(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 0.0, 0.0]))
    feedback.correct(torch.ones(3))
    assert feedback.residual.tolist() == [0, 2, 3]
    with pytest.raises(ValueError, match="not finite"):
        feedback.keep(torch.full((3,), math.inf), torch.zeros(3))
    assert feedback.residual.tolist() == [0, 2, 3]


def test_the_memory_can_be_forgotten() -> None:
    feedback = ErrorFeedback.of(torch.zeros(3, requires_grad=True))
    feedback.keep(torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3))
    feedback.reset()
    assert feedback.residual.tolist() == [0, 0, 0]


@pytest.mark.parametrize("values", [torch.zeros(4), torch.zeros(3).double()])
def test_values_of_another_shape_or_type_are_refused(values: Tensor) -> None:
    feedback = ErrorFeedback.of(torch.zeros(3))
    with pytest.raises(ValueError, match="does not take"):
        feedback.correct(values)


# The problems that the papers give


def descend(
    codec: str, gradient: Callable[[Tensor], Tensor], x: Tensor, rates: Sequence[float], memory: bool
) -> Tensor:
    """Each of the workers encodes its own step; ``gradient`` gives a row for each."""
    encoder, rows = parse_codec(codec), len(gradient(x))
    assert encoder.family != "sketch"
    feedback = [ErrorFeedback.of(x) for _ in range(rows)]
    for rate in rates:
        moves = []
        for kept, step in zip(feedback, rate * gradient(x), strict=True):
            corrected = kept.correct(step)
            sent = encoder.decode(encoder.encode(corrected, 0), len(x), x.dtype)
            if memory:
                kept.keep(corrected, sent)
            moves.append(sent)
        x = x - torch.stack(moves).mean(dim=0)
    return x


def test_signs_alone_are_stuck_where_error_feedback_is_not() -> None:
    """0.5 |x + y| + |x - y| from (1, 0.5): every sign step keeps x + y, so 0.75 is the least it can reach."""

    def gradient(x: Tensor) -> Tensor:
        total, apart = ((1.0 if value >= 0 else -1.0) for value in (x.sum().item(), (x[0] - x[1]).item()))
        return torch.tensor([[0.5 * total + apart, 0.5 * total - apart]])

    def value(x: Tensor) -> float:
        return (0.5 * x.sum().abs() + (x[0] - x[1]).abs()).item()

    start, rates = torch.tensor([1.0, 0.5]), [0.1 / math.sqrt(step + 1) for step in range(1000)]
    assert 0.75 <= value(descend("sign", gradient, start, rates, memory=False)) <= 0.76
    assert value(descend("sign", gradient, start, rates, memory=True)) <= 5e-3


def test_top_one_per_cent_converges_with_error_feedback_only() -> None:
    """Least squares, 8 workers with 160 rows each, 400 unknowns: what is left of the loss after 400 steps."""
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(8, 160, 400, generator=generator) / math.sqrt(160)
    best = torch.randn(400, generator=generator)
    squares = a.mT @ a
    target, mean = squares @ best, squares.mean(dim=0)

    def left(memory: bool) -> float:
        x = descend("top_k:0.01", lambda x: squares @ x - target, torch.zeros(400), [0.1] * 400, memory)
        return (((x - best) @ mean @ (x - best)) / (best @ mean @ best)).item()

    assert left(memory=False) >= 0.2
    assert left(memory=True) <= 1e-5


@dataclass
class Workers:
    """Two workers that train a perceptron on digits through PowerSGD, or plainly."""

    seed: int
    rank: int = 0
    memory: bool = True
    images: Tensor = field(default_factory=lambda: torch.tensor(load_digits().data / 16, dtype=torch.float32))
    labels: Tensor = field(default_factory=lambda: torch.tensor(load_digits().target))

    def accuracy(self, steps: int = 200, batch: int = 32, rate: float = 0.3) -> float:
        generator = torch.Generator().manual_seed(self.seed)
        model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
        parameters = dict(model.named_parameters())
        layout = Layout.of(parameters)
        vector = 0.08 * torch.randn(layout.size, generator=generator)
        layout.load(vector, parameters)
        self.feedback = [ErrorFeedback.of(vector) for _ in range(2)]
        self.state = PowerSGD(self.rank or 1).start(layout, 0)
        for _ in range(steps):
            moves = []
            for _ in range(2):
                chosen = torch.randint(600, len(self.images), (batch,), generator=generator)
                model.zero_grad()
                nn.functional.cross_entropy(model(self.images[chosen]), self.labels[chosen]).backward()
                moves.append(rate * layout.flatten({name: p.grad for name, p in parameters.items()}))
            vector = vector - (self.through(layout, moves) if self.rank else torch.stack(moves).mean(dim=0))
            layout.load(vector, parameters)
        with torch.no_grad():
            return 100 * (model(self.images[:600]).argmax(dim=1) == self.labels[:600]).float().mean().item()

    def through(self, layout: Layout, moves: list[Tensor]) -> Tensor:
        corrected = [kept.correct(move) for kept, move in zip(self.feedback, moves, strict=True)]
        sketches = [PowerSGD(self.rank).begin(move, layout, 0, self.state) for move in corrected]
        for stage in range(2):
            mean = torch.stack([sketch.project(stage) for sketch in sketches]).mean(dim=0)
            for sketch in sketches:
                sketch.absorb(stage, mean)
        if self.memory:
            for kept, move, sketch in zip(self.feedback, corrected, sketches, strict=True):
                kept.keep(move, sketch.own())
        self.state = sketches[0].state()
        return sketches[0].result()


@pytest.mark.parametrize("seeds", [(1,), soaked((0, 1))], ids=["one", "two"])
def test_power_sgd_of_rank_2_trains_as_well_with_error_feedback_only(seeds: tuple[int, ...]) -> None:
    plain, with_memory, without = (
        statistics.mean(Workers(seed, **how).accuracy() for seed in seeds)
        for how in ({}, {"rank": 2}, {"rank": 2, "memory": False})
    )
    assert plain >= 88
    assert with_memory >= plain - 0.5
    assert without <= plain - 2
