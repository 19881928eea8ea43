"""A model becomes one vector and comes back whole, and two peers find out at once that their models differ."""

import math

import msgpack
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from samovar.aggregation.vector import SIZE_MAX, Layout, Part, Slot, parts

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
MODEL = {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.tensor([7.0, 8.0]), "scale": torch.tensor(9.0)}

shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
rows = st.dictionaries(st.text(max_size=5), st.tuples(shapes, st.sampled_from(FLOATS)), min_size=1, max_size=5)
layouts = rows.map(lambda drawn: {**drawn, "one": ((1,), torch.float32)}).map(
    lambda drawn: Layout.of({name: torch.zeros(shape, dtype=dtype) for name, (shape, dtype) in drawn.items()})
)


def model_of(layout: Layout, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {slot.name: torch.randn(slot.shape, generator=generator).to(slot.dtype) for slot in layout.slots}


@settings(deadline=None)
@given(layouts, st.integers(0, 100))
def test_a_model_comes_back_bit_for_bit(layout: Layout, seed: int) -> None:
    model, other = model_of(layout, seed), model_of(layout, seed + 1)
    layout.load(layout.flatten(model), other)
    assert all(torch.equal(model[name], other[name]) and model[name].dtype == other[name].dtype for name in model)


@settings(deadline=None)
@given(layouts)
def test_every_element_is_covered_once(layout: Layout) -> None:
    out = torch.full((layout.size,), math.nan, dtype=layout.dtype)
    layout.flatten({slot.name: torch.ones(slot.shape, dtype=slot.dtype) for slot in layout.slots}, out=out)
    assert out.sum().item() == layout.size == sum(math.prod(slot.shape) for slot in layout.slots)


def test_the_vector_is_row_major_in_the_order_of_the_model() -> None:
    layout = Layout.of(MODEL)
    assert layout.flatten(MODEL).tolist() == [0, 1, 2, 3, 4, 5, 7, 8, 9]
    assert layout.slots[1] == Slot("bias", (2,), torch.float32, 6, 8)
    assert (layout.size, layout.nbytes) == (9, 36)


def test_the_order_of_the_mapping_given_to_flatten_does_not_matter() -> None:
    assert Layout.of(MODEL).flatten(dict(reversed(MODEL.items()))).tolist() == [0, 1, 2, 3, 4, 5, 7, 8, 9]


def test_strided_tensors_are_read_and_written_by_value() -> None:
    base = torch.arange(12.0).reshape(3, 4)
    strided = {"x": base.T[::2]}
    layout = Layout.of(strided)
    vector = layout.flatten(strided)
    assert vector.is_contiguous()
    assert vector.tolist() == [0, 4, 8, 2, 6, 10]
    layout.load(vector + 100, strided)
    assert base[:, 0].tolist() == [100, 104, 108]
    assert base[:, 1].tolist() == [1, 5, 9]


def test_the_vector_is_owned() -> None:
    model = {"x": torch.zeros(3)}
    vector = Layout.of(model).flatten(model)
    model["x"].fill_(5)
    assert vector.tolist() == [0, 0, 0]
    vector.fill_(7)
    assert model["x"].tolist() == [5, 5, 5]


def test_out_is_filled_and_returned() -> None:
    out = torch.empty(9)
    assert Layout.of(MODEL).flatten(MODEL, out=out) is out
    assert out[-1] == 9


@pytest.mark.parametrize(
    ("dtypes", "vector_dtype"),
    [
        ([torch.float16], torch.float32),
        ([torch.bfloat16, torch.float16], torch.float32),
        ([torch.float32, torch.bfloat16], torch.float32),
        ([torch.float16, torch.float64], torch.float64),
    ],
)
def test_the_vector_is_as_wide_as_its_widest_tensor_and_never_half(
    dtypes: list[torch.dtype], vector_dtype: torch.dtype
) -> None:
    model = {str(index): torch.ones(2, dtype=dtype) for index, dtype in enumerate(dtypes)}
    layout = Layout.of(model)
    assert layout.dtype == layout.flatten(model).dtype == vector_dtype
    assert layout.nbytes == layout.size * vector_dtype.itemsize


def test_parameters_that_want_a_gradient_are_loaded_in_place() -> None:
    network = torch.nn.Linear(3, 2)
    parameters = dict(network.named_parameters())
    layout = Layout.of(parameters)
    vector = layout.flatten(parameters)
    assert not vector.requires_grad
    layout.load(torch.arange(8.0), parameters)
    assert network.weight.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert network.weight.requires_grad
    assert network.weight.grad_fn is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_model_on_a_gpu_goes_through_a_cpu_vector() -> None:
    model = {name: tensor.cuda() for name, tensor in MODEL.items()}
    layout = Layout.of(model)
    vector = layout.flatten(model)
    assert vector.device.type == "cpu"
    layout.load(vector + 1, model)
    assert model["bias"].tolist() == [8, 9]
    assert model["bias"].is_cuda


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(2, dtype=torch.int64),
        torch.ones(2, dtype=torch.bool),
        torch.ones(2, dtype=torch.complex64),
        torch.ones(2).to(torch.float8_e4m3fn),
        torch.eye(2).to_sparse(),
        torch.ones(2, device="meta"),
        3.0,
    ],
)
def test_a_tensor_that_cannot_be_averaged_is_refused_by_name(tensor: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*'layer\.counter'[^\n]*$"):
        Layout.of({"fine": torch.ones(2), "layer.counter": tensor})
    with pytest.raises(ValueError, match=r"^[^\n]*'layer\.counter'[^\n]*$"):
        Layout.of({"layer.counter": torch.ones(2)}).flatten({"layer.counter": tensor})


@pytest.mark.parametrize("model", [{}, {"x": torch.ones(0, 3)}])
def test_a_model_without_elements_is_refused(model: dict[str, torch.Tensor]) -> None:
    with pytest.raises(ValueError, match="elements, got 0"):
        Layout.of(model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: model.pop("bias"), "'bias' of the layout is missing"),
        (lambda model: model.update(extra=torch.ones(1)), "'extra' is not in the layout"),
        (lambda model: model.update(bias=torch.ones(2, 1)), r"'bias' has shape \(2, 1\), the layout says \(2,\)"),
        (lambda model: model.update(scale=torch.tensor(1)), "'scale' is torch.int64"),
    ],
)
def test_another_model_is_refused_before_anything_is_written(change, message: str) -> None:
    layout, out = Layout.of(MODEL), torch.zeros(9)
    model = {name: torch.zeros_like(tensor) for name, tensor in MODEL.items()}
    change(model)
    before = {name: tensor.clone() for name, tensor in model.items()}
    with pytest.raises(ValueError, match=message):
        layout.flatten(model, out=out)
    with pytest.raises(ValueError, match=message):
        layout.load(torch.ones(9), model)
    assert not out.any()
    assert all(torch.equal(model[name], before[name]) for name in model)


@pytest.mark.parametrize("vector", [torch.ones(8), torch.ones(10), torch.ones(3, 3), torch.ones(9).double()])
def test_another_vector_is_refused(vector: torch.Tensor) -> None:
    model = {name: torch.zeros_like(tensor) for name, tensor in MODEL.items()}
    with pytest.raises(ValueError, match=r"must be torch.float32 of shape \(9,\)"):
        Layout.of(model).load(vector, model)
    with pytest.raises(ValueError, match=r"must be torch.float32 of shape \(9,\)"):
        Layout.of(model).flatten(model, out=vector)
    assert not any(tensor.any() for tensor in model.values())


@pytest.mark.parametrize("out", [torch.ones(18)[::2], torch.ones(9, requires_grad=True), torch.ones(9, device="meta")])
def test_an_out_that_cannot_be_sent_is_refused(out: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="contiguous CPU vector"):
        Layout.of(MODEL).flatten(MODEL, out=out)


def test_the_digest_is_the_same_in_every_version() -> None:
    assert Layout.of(MODEL).digest == "9e11e2caf4a811c2780bc2d76ab706c2"


@settings(deadline=None)
@given(layouts, layouts)
def test_digests_are_equal_exactly_where_compare_finds_nothing(one: Layout, two: Layout) -> None:
    assert (one.digest == two.digest) == (one.compare(two) is None) == (one == two)


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (dict(MODEL), None),
        ({**MODEL, "bias": torch.ones(3)}, "tensor 'bias' is float32 (2,) here and float32 (3,) there"),
        ({**MODEL, "scale": torch.tensor(1.0).half()}, "tensor 'scale' is float32 () here and float16 () there"),
        ({**MODEL, "new": torch.ones(1)}, "tensor 'new' float32 (1,) is missing here"),
        (
            {"other": torch.ones(1)},
            "tensor 'weight' float32 (2, 3) is missing there; 3 more differ: 'bias', 'scale' ...",
        ),
        ({"bias": MODEL["bias"], "scale": MODEL["scale"]}, "tensor 'weight' float32 (2, 3) is missing there"),
        (dict(reversed(MODEL.items())), "the order differs: tensor 0 is 'weight' here and 'scale' there"),
    ],
)
def test_a_difference_is_named_in_one_line(other: dict[str, torch.Tensor], difference: str | None) -> None:
    mine, theirs = Layout.of(MODEL), Layout.of(other)
    assert mine.compare(theirs) == difference
    assert (mine.digest == theirs.digest) == (difference is None)


def test_a_hostile_name_stays_one_short_line() -> None:
    hostile = Layout.of({"a\nb" * 1000: torch.ones(1)})
    difference = Layout.of(MODEL).compare(hostile)
    assert difference is not None
    assert "\n" not in difference
    assert len(hostile.compare(Layout.of(MODEL)) or "") < 300


@settings(deadline=None)
@given(layouts)
def test_a_layout_travels_in_a_header(layout: Layout) -> None:
    assert Layout.from_plain(msgpack.unpackb(msgpack.packb(layout.to_plain()))) == layout


@pytest.mark.parametrize(
    "plain",
    [
        None,
        "layout",
        {},
        [],
        [None],
        [["x", [1]]],
        [["x", [1], "float32", 0]],
        [[1, [1], "float32"]],
        [[b"x", [1], "float32"]],
        [["x", 1, "float32"]],
        [["x", [1.0], "float32"]],
        [["x", [True], "float32"]],
        [["x", [-1], "float32"]],
        [["x", [0], "float32"]],
        [["x", [0, 2**63], "float32"], ["y", [1], "float32"]],
        [["x", [2**21, 2**21], "float32"]],
        [["x", [SIZE_MAX], "float32"], ["y", [1], "float32"]],
        [["x", [1] * 65, "float32"]],
        [["x", [1], "int64"]],
        [["x", [1], "torch.float32"]],
        [["x", [1], ["float32"]]],
        [["x", [1], "float32"], ["x", [1], "float32"]],
    ],
)
def test_a_header_that_is_no_layout_is_refused_in_one_line(plain: object) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]{1,500}$"):
        Layout.from_plain(plain)


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.sampled_from(["float32"])
hostile = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(leaves, inner, max_size=2))
dimensions = st.lists(st.integers(-1, 2**64), max_size=3)
nearly = st.lists(st.tuples(st.text(max_size=1) | hostile, dimensions | hostile, st.just("float32") | hostile))


@settings(deadline=None)
@given(hostile | nearly)
def test_a_header_is_a_layout_or_a_value_error(plain: object) -> None:
    try:
        layout = Layout.from_plain(plain)
    except ValueError:
        return
    assert Layout.from_plain(layout.to_plain()) == layout
    assert layout.size <= SIZE_MAX


@pytest.mark.parametrize(
    ("slots", "dtype", "message"),
    [
        ((Slot("a", (2,), torch.float32, 1, 3),), torch.float32, "gap or overlap"),
        ((Slot("a", (2,), torch.float32, 0, 3),), torch.float32, "gap or overlap"),
        ((Slot("a", (2,), torch.float32, 0, 2), Slot("b", (1,), torch.float32, 1, 2)), torch.float32, "gap or overlap"),
        ((Slot("a", (2,), torch.float64, 0, 2),), torch.float32, "float64, not"),
        ((Slot("a", (2,), torch.int8, 0, 2),), torch.float32, "int8"),
        ((Slot("a", (1,), torch.float32, 0, 1), Slot("a", (1,), torch.float32, 1, 2)), torch.float32, "appears twice"),
    ],
)
def test_a_layout_that_contradicts_itself_cannot_be_made(
    slots: tuple[Slot, ...], dtype: torch.dtype, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Layout(slots, dtype)


sizes, worlds = st.integers(0, 10_000), st.integers(1, 64)
weights = st.lists(st.sampled_from([0.0, 0.1, 1.0, 3.0, 1e-300, 1e300]) | st.floats(0, 1e6), min_size=1, max_size=20)


@settings(deadline=None)
@given(sizes, worlds)
def test_equal_parts_cover_the_vector_and_differ_by_one_at_most(size: int, world: int) -> None:
    cut = parts(size, world)
    assert [element for part in cut for element in range(*part)] == list(range(size))
    assert max(part.stop - part.start for part in cut) - min(part.stop - part.start for part in cut) <= 1
    assert len(cut) == world
    assert cut == parts(size, world, [0.3] * world)


@settings(deadline=None)
@given(sizes, weights.filter(any))
def test_uneven_parts_follow_their_shares(size: int, shares: list[float]) -> None:
    cut = parts(size, len(shares), shares)
    assert [element for part in cut for element in range(*part)] == list(range(size))
    for part, share in zip(cut, shares, strict=True):
        exact = size * (share / math.fsum(shares))
        assert abs(part.stop - part.start - exact) <= 1 + 1e-9 * size
        assert share or part.stop == part.start


def test_parts_by_hand() -> None:
    assert parts(10, 3) == (Part(0, 3), Part(3, 6), Part(6, 10))
    assert parts(10, 4, [1, 0, 3, 1]) == (Part(0, 2), Part(2, 2), Part(2, 8), Part(8, 10))
    assert parts(1, 3, [1, 1, 0]) == (Part(0, 0), Part(0, 1), Part(1, 1))


@pytest.mark.parametrize(
    ("size", "world", "shares"),
    [
        (-1, 2, None),
        (5, 0, None),
        (5, 2, [1]),
        (5, 2, [0, 0]),
        (5, 2, [1, -1]),
        (5, 2, [1, math.nan]),
        (5, 1, [math.inf]),
    ],
)
def test_impossible_parts_are_refused(size: int, world: int, shares: list[float] | None) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        parts(size, world, shares)
