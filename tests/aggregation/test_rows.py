"""What is computed of vectors [..., n] is, row by row and to the bit, what is computed of each row [n] alone."""

import math
from collections.abc import Iterator, Sequence
from typing import TypeVar, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from samovar.aggregation.codecs.codec import GatherCodec, HopCodec, SketchCodec
from samovar.aggregation.codecs.error_feedback import ErrorFeedback
from samovar.aggregation.codecs.registry import CODECS, parse_codec
from samovar.aggregation.fednova import normalised
from samovar.aggregation.fragments import Fragments
from samovar.aggregation.mean import BadSum, combine, contribute, means
from samovar.aggregation.outer import OUTER_STEPS, OfParameters, parse_outer
from samovar.aggregation.periods.displacement import MotionSampler
from samovar.aggregation.scaffold import ControlVariate
from samovar.aggregation.vector import Layout, norm_of, norms

T = TypeVar("T")

LEADING = [(3,), (2, 2), (1,)]
every_stack = pytest.mark.parametrize("leading", LEADING, ids=str)
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)

MORE = ["qsgd:1", "qsgd:7:l2", "top_k:0.1:fp16", "top_k:1", "random_k:0.2", "power_sgd:1"]
TEXTS = [*CODECS, *MORE]
PAYLOADS = [text for text in TEXTS if parse_codec(text).family != "sketch"]
SKETCHES = [text for text in TEXTS if parse_codec(text).family == "sketch"]
LAYOUT = Layout.of(
    {"in": torch.zeros(24, 40), "bias": torch.zeros(7), "out": torch.zeros(40, 5, 6), "at": torch.zeros(1)}
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """A sum of one long row is split among threads otherwise than that of many."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def rows_of(stack: Tensor, kept: int = 1) -> list[Tensor]:
    """The rows, in the order of memory; `kept`: the axes that belong to a row."""
    return list(stack.flatten(0, -1 - kept))


def same(stack: Tensor, rows: Sequence[Tensor]) -> bool:
    return torch.equal(stack.flatten(0, -1 - rows[0].ndim), torch.stack(list(rows)))


@every_stack
@every_dtype
@pytest.mark.parametrize("n", [1, 3, 512, 1500, 4096])
@pytest.mark.parametrize("text", PAYLOADS)
def test_a_round_trip_of_rows_equals_the_decoded_bytes_of_each_row(
    text: str, n: int, dtype: torch.dtype, leading: tuple[int, ...]
) -> None:
    codec = cast(HopCodec | GatherCodec, parse_codec(text))
    stack, seeds = normal(*leading, n, dtype=dtype), range(10, 10 + math.prod(leading))
    decoded = [codec.decode(codec.encode(row, seed), n, dtype) for row, seed in zip(rows_of(stack), seeds, strict=True)]
    before = stack.clone()
    assert same(codec.round_trip(stack, seeds), decoded)
    assert torch.equal(codec.round_trip(stack.flatten(0, -2)[0], seeds[:1]), decoded[0])
    strided = normal(*leading, 2 * n, dtype=dtype)[..., ::2].copy_(stack)
    assert same(codec.round_trip(strided, seeds), decoded)
    assert torch.equal(stack, before)


@pytest.mark.parametrize("text", PAYLOADS)
def test_rows_so_long_that_their_largest_are_sampled_for_round_trip_too(text: str) -> None:
    codec = cast(HopCodec | GatherCodec, parse_codec(text))
    stack = normal(2, 70_000).mul_(10).round_()  # many alike, among which a search chooses
    decoded = [codec.decode(codec.encode(row, 7), 70_000, torch.float32) for row in stack]
    assert same(codec.round_trip(stack, [7, 7]), decoded)


@pytest.mark.parametrize("text", PAYLOADS)
def test_a_round_trip_refuses_the_vectors_that_encoding_refuses(text: str) -> None:
    codec = cast(HopCodec | GatherCodec, parse_codec(text))
    bad = normal(3, 20)
    bad[1, 4] = math.nan
    for values, seeds, said in [
        (bad, [1, 2, 3], "1 of 60 values to encode are not finite"),
        (normal(3, 20), [1, 2], "each row takes a seed"),
        (torch.zeros(3, 0), [1, 2, 3], "a codec takes float32 or float64 vectors"),
        (torch.tensor(1.0), [1], "a codec takes float32 or float64 vectors"),
    ]:
        with pytest.raises(ValueError, match=said):
            codec.round_trip(values, seeds)


def sketched(codec: SketchCodec, values: Tensor, means_of: Sequence[Tensor], state: tuple[Tensor, ...]) -> list[Tensor]:
    """Result, own share and state after a round with these means."""
    sketch = codec.begin(values, LAYOUT, 5, state)
    for stage, mean in enumerate(means_of):
        sketch.absorb(stage, mean)
    return [sketch.result(), sketch.own(), *sketch.state()]


@every_stack
@pytest.mark.parametrize("text", SKETCHES)
def test_a_sketch_of_rows_has_the_projections_of_each_row(text: str, leading: tuple[int, ...]) -> None:
    """To the rounding of a matrix product, which is another for many rows."""
    codec = cast(SketchCodec, parse_codec(text))
    stack, state = normal(*leading, LAYOUT.size), codec.start(LAYOUT, 3)
    together = codec.begin(stack, LAYOUT, 5, state)
    apart = [codec.begin(row, LAYOUT, 5, state) for row in rows_of(stack)]
    for stage in range(together.stages):
        projected, each = together.project(stage), [one.project(stage) for one in apart]
        assert projected.shape == (*leading, codec.elements(LAYOUT)[stage])
        torch.testing.assert_close(projected.flatten(0, -2), torch.stack(each), rtol=1e-4, atol=1e-5)
        mean = torch.stack(each).mean(0)
        for one in (together, *apart):
            one.absorb(stage, mean)
    assert all(torch.equal(together.result(), one.result()) for one in apart)
    torch.testing.assert_close(together.own().flatten(0, -2), torch.stack([one.own() for one in apart]))
    shares = together.own().flatten(0, -2).mean(0)
    torch.testing.assert_close(shares, together.result(), rtol=1e-4, atol=1e-4)


@every_stack
@pytest.mark.parametrize("text", SKETCHES)
def test_rows_with_means_of_their_own_get_the_results_of_each_row(text: str, leading: tuple[int, ...]) -> None:
    codec = cast(SketchCodec, parse_codec(text))
    stack = normal(*leading, LAYOUT.size)
    agreed = [normal(*leading, size, seed=size) for size in codec.elements(LAYOUT)]
    for mean in agreed:
        mean.flatten(0, -2)[-1] = 0  # all columns depend on one another
    states = [normal(*leading, tensor.numel(), seed=9) for tensor in codec.start(LAYOUT, 3)]
    result, own, *after = sketched(codec, stack, agreed, tuple(states))
    apart = [
        sketched(codec, row, [rows_of(mean)[index] for mean in agreed], tuple(rows_of(one)[index] for one in states))
        for index, row in enumerate(rows_of(stack))
    ]
    assert same(result, [each[0] for each in apart])
    torch.testing.assert_close(own.flatten(0, -2), torch.stack([each[1] for each in apart]), rtol=1e-4, atol=1e-4)
    assert all(same(tensor, [each[2 + at] for each in apart]) for at, tensor in enumerate(after))


numbers = st.floats(-1e3, 1e3, width=32)


@settings(deadline=None)
@given(st.data(), st.sampled_from([torch.float16, torch.float32, torch.float64]))
def test_contributions_and_means_of_rows_equal_those_of_each_row(data: st.DataObject, dtype: torch.dtype) -> None:
    rows, n, count = (data.draw(st.integers(low, 4)) for low in (1, 0, 0))
    weights = torch.tensor(data.draw(st.lists(st.just(0.0) | st.floats(0.01, 50), min_size=rows, max_size=rows)))
    signals = torch.tensor(
        data.draw(st.lists(st.lists(numbers, min_size=count, max_size=count), min_size=rows, max_size=rows)),
        dtype=torch.float64,
    )
    stack = normal(rows, n, seed=rows).to(dtype)
    messages = contribute(stack, weights, signals)
    each = [contribute(row, w.item(), s.tolist()) for row, w, s in zip(stack, weights, signals, strict=True)]
    assert same(messages, each)
    assert same(contribute(stack, 3.0, [1.0]), [contribute(row, 3.0, [1.0]) for row in stack])
    if not bool((weights > 0).all()):
        with pytest.raises(BadSum, match="nobody contributed"):
            means(messages, count)
        return
    together, apart = means(messages, count), [combine(message, count) for message in each]
    assert same(together.vector, [one.vector for one in apart])
    assert [tuple(row) for row in together.signals.tolist()] == [one.signals for one in apart]
    assert together.weight.tolist() == [one.weight for one in apart]
    assert together.norm.tolist() == pytest.approx([one.norm for one in apart], rel=1e-3)


def test_a_row_of_weight_zero_contributes_zeros_even_out_of_nan() -> None:
    brought = torch.tensor([[math.nan, math.inf], [1.0, 2.0]])
    messages = contribute(brought, torch.tensor([0.0, 2.0]), torch.tensor([[math.nan], [3.0]]))
    assert messages.tolist() == [[0, 0, 0, 0], [2, 4, 6, 2]]
    with pytest.raises(ValueError, match=r"weight of a contribution .* got -1\.0"):
        contribute(brought, torch.tensor([1.0, -1.0]))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_one_row_without_a_mean_is_told(bad: float) -> None:
    good = contribute(normal(3, 4), 1, [1.0])
    for at, said in [(2, "1 elements that are not finite, the first is 2"), (4, "signals"), (5, "total weight")]:
        totals = good.clone()
        totals[1, at] = bad
        with pytest.raises(BadSum, match=said):
            means(totals, 1)


@every_dtype
def test_norms_of_rows_equal_those_of_each_row(dtype: torch.dtype) -> None:
    stack = torch.cat([normal(4, 3000, dtype=dtype), torch.full((1, 3000), 1e30, dtype=dtype)])
    stack[0, 7], stack[1, 7] = math.inf, math.nan
    assert norms(stack).tolist() == pytest.approx([norm_of(row) for row in stack], rel=1e-5, nan_ok=True)


@every_stack
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("name", OUTER_STEPS)
def test_outer_steps_of_rows_equal_those_of_each_row(name: str, whole: bool, leading: tuple[int, ...]) -> None:
    outer = parse_outer(name) if whole else OfParameters(parse_outer(name), 13)
    fragments, anchor = Fragments.of(33, 3), normal(*leading, 33)
    state = outer.start(anchor)
    apart = [(row, outer.start(row)) for row in rows_of(anchor)]
    for round in (1, 2, 3, 4):
        mean = normal(*leading, 33, seed=round)
        anchor, state = fragments.step(outer, round, anchor, mean, state)
        apart = [
            fragments.step(outer, round, before, row, kept)
            for (before, kept), row in zip(apart, rows_of(mean), strict=True)
        ]
        assert same(anchor, [vector for vector, _ in apart])
        assert all(same(tensor, [kept[at] for _, kept in apart]) for at, tensor in enumerate(state))


@every_stack
def test_error_feedback_of_rows_equals_that_of_each_row(leading: tuple[int, ...]) -> None:
    stack = normal(*leading, 50)
    together, apart = ErrorFeedback.of(stack), [ErrorFeedback.of(row) for row in rows_of(stack)]
    for round in range(3):
        values, sent = normal(*leading, 50, seed=2 * round), normal(*leading, 50, seed=2 * round + 1)
        together.keep(together.correct(values), sent)
        for memory, row, gone in zip(apart, rows_of(values), rows_of(sent), strict=True):
            memory.keep(memory.correct(row), gone)
    assert same(together.residual, [memory.residual for memory in apart])


@every_stack
@pytest.mark.parametrize("common", [True, False], ids=["one anchor", "an anchor a row"])
def test_normalised_contributions_of_rows_equal_those_of_each_row(common: bool, leading: tuple[int, ...]) -> None:
    stack = normal(*leading, 30)
    anchor = normal(30, seed=1) if common else normal(*leading, 30, seed=1)
    shares = 0.5 + torch.arange(math.prod(leading)).view(leading) / 2  # of the second row 1
    each = [
        normalised(row, from_, share.item(), 25)
        for row, from_, share in zip(rows_of(stack), rows_of(anchor.expand(stack.shape)), shares.flatten(), strict=True)
    ]
    assert same(normalised(stack, anchor, shares, 25), each)
    assert normalised(stack, anchor, torch.ones(leading), 25) is stack


@every_stack
def test_control_variates_of_rows_equal_those_of_each_row(leading: tuple[int, ...]) -> None:
    mean, brought, moved = normal(12, seed=1), normal(*leading, 12), normal(*leading, 12, seed=2)
    together, apart = ControlVariate(11), [ControlVariate(11) for _ in range(math.prod(leading))]
    together.begin(mean, brought, 2.5)
    for alone, row in zip(apart, rows_of(brought), strict=True):
        alone.begin(mean, row, 2.5)
    added = [alone.added for alone in apart if alone.added is not None]
    assert together.added is not None
    assert same(together.added, added)
    for steps in (0, 3):
        each = [alone.without(row, steps) for alone, row in zip(apart, rows_of(moved), strict=True)]
        assert same(together.without(moved, steps), each)


@every_stack
@pytest.mark.parametrize(("n", "parameters"), [(20, None), (20, 12), (200_000, 140_000)])
def test_the_displacements_of_rows_equal_those_of_each_row(
    n: int, parameters: int | None, leading: tuple[int, ...]
) -> None:
    """To the rounding of a sum of products in float64."""
    together, apart = MotionSampler(parameters), [MotionSampler(parameters) for _ in range(math.prod(leading))]
    for round in range(3):
        begun, amid, ended = (normal(*leading, n, seed=3 * round + at) for at in range(3))
        together.begin(begun)
        together.amid(amid)
        products = together.finish(ended)
        for index, sampler in enumerate(apart):
            sampler.begin(rows_of(begun)[index])
            sampler.amid(rows_of(amid)[index])
            assert rows_of(products)[index].tolist() == pytest.approx(sampler.end(rows_of(ended)[index])[2:])
    assert bool((products != 0).all())
