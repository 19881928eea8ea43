"""Sketches add up: what all peers make of the means is the same to the last bit, and near the mean of their values."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from samovar.aggregation.codecs.codec import Sketch, SketchCodec, SketchState
from samovar.aggregation.codecs.power_sgd import PowerSGD, _product, orthonormal
from samovar.aggregation.codecs.random_k import RandomK, choose
from samovar.aggregation.vector import Layout

MLP = [(512, 784), (512,), (256, 512), (256,), (10, 256), (10,)]
WIDE = Layout.of({"a": torch.zeros(40, 60, dtype=torch.float64), "b": torch.zeros(3, dtype=torch.float16)})
NO_MATRIX = Layout.of({"a": torch.zeros(5)})


def layout_of(shapes: Sequence[tuple[int, ...]]) -> Layout:
    return Layout.of({str(index): torch.zeros(shape) for index, shape in enumerate(shapes)})


LAYOUT = layout_of([(7,), (40, 5, 12), (3, 3), (), (50, 30)])
every_codec = pytest.mark.parametrize(
    "codec", [RandomK(), RandomK(0.3), RandomK(1.0), PowerSGD(), PowerSGD(1)], ids=repr
)
every_layout = pytest.mark.parametrize("layout", [LAYOUT, WIDE, NO_MATRIX], ids=["mixed", "float64", "no matrix"])


def normal(layout: Layout, seed: int) -> Tensor:
    return torch.randn(layout.size, generator=torch.Generator().manual_seed(seed), dtype=layout.dtype)


def agree(
    codec: SketchCodec, layout: Layout, vectors: Sequence[Tensor], seed: int = 0, state: SketchState | None = None
) -> list[Sketch]:
    """A whole round of all peers."""
    state = codec.start(layout, 0) if state is None else state
    sketches = [codec.begin(vector, layout, seed, state) for vector in vectors]
    for stage in range(sketches[0].stages):
        mean = torch.stack([sketch.project(stage) for sketch in sketches]).mean(dim=0)
        for sketch in sketches:
            sketch.absorb(stage, mean)
    return sketches


@every_codec
@every_layout
def test_all_peers_have_the_same_result_and_it_is_the_mean_of_their_shares(codec: SketchCodec, layout: Layout) -> None:
    sketches = agree(codec, layout, [normal(layout, seed) for seed in range(4)])
    result, shares = sketches[0].result(), torch.stack([sketch.own() for sketch in sketches])
    for sketch in sketches:
        assert torch.equal(sketch.result(), result)
        assert all(map(torch.equal, sketch.state(), sketches[0].state()))
    assert result.dtype == layout.dtype
    assert torch.allclose(shares.mean(dim=0), result, atol=1e-5)


@every_codec
@every_layout
def test_the_elements_that_go_round_are_as_told(codec: SketchCodec, layout: Layout) -> None:
    values = normal(layout, 0)
    sketch = codec.begin(values, layout, 0, codec.start(layout, 0))
    told = codec.elements(layout)
    assert len(told) == sketch.stages
    for stage, elements in enumerate(told):
        projected = sketch.project(stage)
        assert projected.shape == (elements,)
        assert projected.dtype == layout.dtype
        sketch.absorb(stage, projected)
    assert torch.equal(values, normal(layout, 0))


@every_codec
def test_the_stages_come_in_turn(codec: SketchCodec) -> None:
    sketch = codec.begin(normal(LAYOUT, 0), LAYOUT, 0, codec.start(LAYOUT, 0))
    first = sketch.project(0)
    assert torch.equal(first, sketch.project(0))
    with pytest.raises(ValueError, match="stage 0 is due, got stage 1"):
        sketch.project(1)
    with pytest.raises(ValueError, match="the round is not over: stage 0"):
        sketch.result()
    with pytest.raises(ValueError, match="must be"):
        sketch.absorb(0, first[1:])
    with pytest.raises(ValueError, match="must be"):
        sketch.absorb(0, first.double())
    with pytest.raises(ValueError, match="the mean of stage 0 is not finite"):
        sketch.absorb(0, first / 0)
    for stage in range(sketch.stages):
        sketch.absorb(stage, sketch.project(stage))
    with pytest.raises(ValueError, match="none is due"):
        sketch.absorb(sketch.stages, first)


@every_codec
def test_values_or_states_that_do_not_fit_are_refused(codec: SketchCodec) -> None:
    state = codec.start(LAYOUT, 0)
    for values in (torch.zeros(3), torch.zeros(LAYOUT.size, dtype=torch.float64)):
        with pytest.raises(ValueError, match="the values must be as the layout says"):
            codec.begin(values, LAYOUT, 0, state)
    with pytest.raises(ValueError, match="not finite"):
        codec.begin(torch.full((LAYOUT.size,), math.nan), LAYOUT, 0, state)
    with pytest.raises(ValueError, match="another codec's"):
        codec.begin(torch.zeros(LAYOUT.size), LAYOUT, 0, (*state, torch.zeros(1)))


def test_a_state_of_another_rank_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit the layout at rank 2"):
        PowerSGD(2).begin(normal(LAYOUT, 0), LAYOUT, 0, PowerSGD(1).start(LAYOUT, 0))


def test_the_seed_alone_chooses_one_place_of_each_stretch() -> None:
    assert choose(10, 3, seed=1).tolist() == [0, 5, 9]  # on any machine, for ever
    for size, kept in ((1, 1), (10, 3), (10, 10), (100_003, 1001)):
        places = choose(size, kept, seed=5)
        length, longer = divmod(size, kept)
        starts = [index * length + min(index, longer) for index in range(kept + 1)]
        assert starts[-1] == size
        assert all(
            start <= place < stop for start, place, stop in zip(starts, places.tolist(), starts[1:], strict=False)
        )
        assert len(places) == kept
    assert not torch.equal(choose(1000, 10, 1), choose(1000, 10, 2))
    drawn = torch.stack([choose(10, 3, seed) for seed in range(3000)]).flatten().bincount(minlength=10) / 3000
    assert torch.allclose(drawn, torch.tensor([1 / 4] * 4 + [1 / 3] * 6), atol=0.035)


def test_random_k_is_exact_where_it_looks_and_zero_elsewhere() -> None:
    vectors = [normal(LAYOUT, seed) for seed in range(3)]
    result = agree(RandomK(0.1), LAYOUT, vectors, seed=4)[0].result()
    places = choose(LAYOUT.size, math.ceil(0.1 * LAYOUT.size), 4)
    assert torch.equal(result[places], torch.stack(vectors).mean(dim=0)[places])
    assert int((result != 0).sum()) == len(places)


@pytest.mark.parametrize(
    ("shapes", "rank", "times"), [(MLP, 4, 10), ([(256, 64), (256,), (10, 256), (10,)], 2, 12)], ids=["MLP", "J4"]
)
def test_power_sgd_sends_as_little_as_is_claimed(shapes: list[tuple[int, ...]], rank: int, times: float) -> None:
    layout = layout_of(shapes)
    assert layout.size >= times * sum(PowerSGD(rank).elements(layout))
    if rank == 2:
        assert sum(PowerSGD(rank).elements(layout)) == 1172 + 266


def test_only_matrices_that_are_worth_it_are_made_thin() -> None:
    assert [(m.rows, m.columns) for m in PowerSGD(4).matrices(LAYOUT)] == [(40, 60), (50, 30)]
    assert [(m.rows, m.columns) for m in PowerSGD(10).matrices(LAYOUT)] == [(40, 60)]
    assert PowerSGD(64).elements(LAYOUT) == (LAYOUT.size, 0)
    vectors = [normal(LAYOUT, seed) for seed in range(3)]
    result, mean = agree(PowerSGD(4), LAYOUT, vectors)[0].result(), torch.stack(vectors).mean(dim=0)
    for slot in (LAYOUT.slots[0], LAYOUT.slots[2], LAYOUT.slots[3]):
        assert torch.equal(result[slot.start : slot.stop], mean[slot.start : slot.stop])


def with_spectrum(rows: int, columns: int, singular: Sequence[float], seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    sides = [torch.randn(size, len(singular), generator=generator, dtype=torch.float64) for size in (rows, columns)]
    u, v = (torch.linalg.qr(side).Q for side in sides)
    return ((u * torch.tensor(singular, dtype=torch.float64)) @ v.T).float()


def test_a_matrix_of_low_rank_comes_back_whole_and_the_state_survives_it() -> None:
    layout, codec = layout_of([(40, 60)]), PowerSGD(4)
    for singular in ([3.0, 2.0, 1.0, 0.5], [1.0], [1e-20, 1e-22], [1e15, 1e13]):
        values = with_spectrum(40, 60, singular).flatten()
        sketch = agree(codec, layout, [values])[0]
        assert (sketch.result() - values).norm() <= 1e-4 * values.norm()
        (q,) = sketch.state()
        assert torch.allclose(q.view(60, 4)[:, : len(singular)].norm(dim=0), torch.tensor(1.0), atol=1e-5)
    state = agree(codec, layout, [torch.zeros(2400)])[0].state()
    assert torch.equal(state[0], codec.start(layout, 0)[0])  # a round of zeros is forgotten, not kept for ever
    assert not agree(codec, layout, [torch.zeros(2400)])[0].result().any()
    values = with_spectrum(40, 60, [1.0, 0.5]).flatten()
    assert torch.allclose(agree(codec, layout, [values], state=state)[0].result(), values, atol=1e-5)


def test_a_warm_start_finds_the_best_approximation_and_a_cold_one_does_not() -> None:
    layout, codec = layout_of([(80, 60)]), PowerSGD(3)
    values = with_spectrum(80, 60, [0.8**index for index in range(20)]).flatten()
    best = math.sqrt(sum(0.64**index for index in range(3, 20)))
    warm, offs = codec.start(layout, 0), []
    for _ in range(15):
        sketch = agree(codec, layout, [values], state=warm)[0]
        warm = sketch.state()
        offs.append((sketch.result() - values).norm().item())
    assert offs[-1] <= 1.01 * best
    assert offs[0] >= 1.1 * best


def test_orthonormal_columns_do_not_depend_on_the_machine() -> None:
    """Threads and memory layout change the sums of a library, not these."""
    p = torch.randn(3001, 6, generator=torch.Generator().manual_seed(0))
    p[:, 4] = p[:, 0] - 2 * p[:, 3]  # depends on others
    basis, threads = orthonormal(p), torch.get_num_threads()
    expected = torch.diag(torch.tensor([1.0, 1, 1, 1, 0, 1]))
    assert torch.allclose(basis.T @ basis, expected, atol=1e-6)
    assert torch.equal(orthonormal(p.T.contiguous().T), basis)
    q = torch.randn(500, 6, generator=torch.Generator().manual_seed(1))
    one, two = torch.empty(3001, 500), torch.empty(3001, 500)
    try:
        torch.set_num_threads(1)
        assert torch.equal(orthonormal(p), basis)
        _product(basis, q, one)
        torch.set_num_threads(2)
        _product(basis.T.contiguous().T, q, two)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one, two)
    assert torch.allclose(one, basis @ q.T, atol=1e-5)


def test_the_first_state_is_the_same_everywhere_for_ever() -> None:
    (q,) = PowerSGD(1).start(layout_of([(40, 6)]), seed=3)
    assert [round(value, 4) for value in q.tolist()] == [-0.3445, 0.4227, 0.1127, -0.2054, 0.9061, 0.8839]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_codec
def test_a_gpu_makes_the_same_bits_of_the_means(codec: SketchCodec) -> None:
    values, state = normal(LAYOUT, 0), codec.start(LAYOUT, 0)
    here, there = (codec.begin(values.to(device), LAYOUT, 0, state) for device in ("cpu", "cuda"))
    for stage in range(here.stages):
        there.project(stage)
        mean = here.project(stage)
        here.absorb(stage, mean)
        there.absorb(stage, mean.cuda())
    assert torch.equal(here.result(), there.result().cpu())
    assert all(torch.equal(a, b.cpu()) for a, b in zip(here.state(), there.state(), strict=True))
