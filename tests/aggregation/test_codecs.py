"""What a codec encodes is as small as it says, comes back as near as it says, and no bytes off the wire can harm."""

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from samovar.aggregation.codecs.cast import BF16, FP16
from samovar.aggregation.codecs.codec import FLOAT32_MAX, GatherCodec, HopCodec
from samovar.aggregation.codecs.int8 import Int8
from samovar.aggregation.codecs.packing import pack, unpack
from samovar.aggregation.codecs.qsgd import QSGD
from samovar.aggregation.codecs.sign import Sign
from samovar.aggregation.codecs.top_k import TopK

Payloads = HopCodec | GatherCodec

HOP = [FP16, BF16, Int8(), QSGD(), QSGD(1), QSGD(127), QSGD(4, norm="l2"), QSGD(5, bucket=3)]
GATHER = [Sign(), TopK(), TopK(0.3), TopK(1.0), TopK(half=True)]
every_codec = pytest.mark.parametrize("codec", HOP + GATHER, ids=repr)

COUNTS = [1, 2, 7, 8, 512, 513, 1024, 1025, 65_537]
HUGE, TINY = FLOAT32_MAX, 2.0**-149


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Such small tensors are slower on two, far slower when others run beside."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def normal(count: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def through(codec: Payloads, values: Tensor, seed: int = 0) -> Tensor:
    return codec.decode(codec.encode(values, seed), values.numel(), values.dtype)


def bound(codec: Payloads, values: Tensor) -> Tensor:
    """How far each decoded element may be off. Bounds of blocks are taken over the whole vector, plus float32's own."""
    size, largest = values.double().abs(), values.abs().max().item()
    if codec in (FP16, BF16):
        digits = {FP16: 2**-11, BF16: 2**-8}[codec]
        return (digits * size).clamp(min=2**-25 if codec is FP16 else TINY) + 1e-45
    if isinstance(codec, Int8):
        return torch.full_like(size, largest / 254 * (1 + 1e-5) + 127 * TINY)
    if isinstance(codec, QSGD):
        norm = largest if codec.norm == "max" else largest * math.sqrt(min(codec.bucket, values.numel()))
        return torch.full_like(size, norm / codec.levels * (1 + 1e-5) + 127 * TINY)
    if isinstance(codec, Sign):
        return (size - size.mean()).abs() + 1e-6 * size.mean() + TINY
    kept = size >= size.sort(descending=True).values[codec.kept(values.numel()) - 1]
    return torch.where(kept, size * (2**-11 if codec.half else 2**-24) + 2**-25 * codec.half + TINY, size)


@every_codec
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", COUNTS)
def test_a_codec_keeps_its_stated_size_and_error_bound(codec: Payloads, dtype: torch.dtype, count: int) -> None:
    values = normal(count, dtype=dtype)
    before = values.clone()
    payload = codec.encode(values, 0)
    assert payload.dtype == torch.uint8
    assert payload.shape == (codec.encoded_bytes(count),)
    decoded = codec.decode(payload, count, dtype)
    assert decoded.dtype == dtype
    assert decoded.shape == (count,)
    off = (decoded.double() - values.double()).abs()
    if isinstance(codec, TopK):  # which of equal magnitudes at the edge goes is open, normal numbers have none
        assert int((decoded != 0).sum()) == codec.kept(count)
    assert bool((off <= bound(codec, values)).all())
    assert torch.equal(values, before)


@every_codec
def test_only_the_seed_and_the_values_decide(codec: Payloads) -> None:
    values = normal(5000)
    first = codec.encode(values, 7)
    decoded = codec.decode(first, 5000, torch.float32)
    assert torch.equal(first, codec.encode(values.clone().requires_grad_(), 7))
    assert torch.equal(first, codec.encode(torch.stack([values, values], dim=1)[:, 1], 7))  # strided
    assert torch.equal(first, codec.encode(values.double(), 7))
    assert torch.equal(first, codec.encode(values, 8)) == (not isinstance(codec, QSGD))
    torch.set_num_threads(2)
    assert torch.equal(first, codec.encode(values, 7)) or isinstance(codec, Sign)  # its scale is a sum
    assert torch.equal(codec.decode(first, 5000, torch.float32), decoded)


@every_codec
def test_a_payload_may_lie_anywhere_in_a_frame(codec: Payloads) -> None:
    values = normal(3000)
    payload = codec.encode(values, 0)
    frame = torch.cat([torch.zeros(3, dtype=torch.uint8), payload])
    strided = torch.stack([payload, payload], dim=1)[:, 1]
    for lying in (frame[3:], strided):
        assert torch.equal(codec.decode(lying, 3000, torch.float32), through(codec, values))


@every_codec
@pytest.mark.parametrize("worst", [0.0, -0.0, TINY, -3 * TINY, 200 * TINY, 1e-38, HUGE, -HUGE])
def test_zeros_denormals_and_the_largest_numbers_come_back_finite(codec: Payloads, worst: float) -> None:
    for values in (torch.full((1500,), worst), torch.cat([torch.full((1400,), worst), normal(100)])):
        decoded = through(codec, values)
        assert bool(decoded.isfinite().all())
        level = math.sqrt(codec.bucket) if isinstance(codec, QSGD) and codec.norm == "l2" else 1  # may be rounded up to
        assert decoded.abs().max() <= level * (values.abs().max() * (1 + 2**-8) + 127 * TINY)
    if not worst:
        assert not through(codec, torch.full((1500,), worst)).any()


def test_a_block_of_zeros_stays_zero_beside_others() -> None:
    for codec, block in ((Int8(), 1024), (QSGD(), 512), (QSGD(norm="l2"), 512)):
        decoded = through(codec, torch.cat([normal(block), torch.zeros(block), normal(10)]))
        assert not decoded[block : 2 * block].any()
        assert decoded[:block].any()


@every_codec
def test_float64_beyond_float32_becomes_its_largest_number(codec: Payloads) -> None:
    decoded = through(codec, torch.tensor([1e300, -1e300], dtype=torch.float64))
    assert bool(decoded.isfinite().all())
    if codec not in (FP16, TopK(half=True)):
        assert decoded.abs().max() >= 0.5 * HUGE


def test_half_precision_saturates() -> None:
    values = torch.tensor([70_000.0, -1e38, 1.0])
    assert through(FP16, values).tolist() == [65504.0, -65504.0, 1.0]
    assert through(TopK(1.0, half=True), values).tolist() == [65504.0, -65504.0, 1.0]
    assert through(BF16, torch.tensor([HUGE])).tolist() == [torch.finfo(torch.bfloat16).max]


@every_codec
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_not_encoded(codec: Payloads, bad: float) -> None:
    with pytest.raises(ValueError, match="1 of 3000 values to encode are not finite"):
        codec.encode(torch.cat([normal(2999), torch.tensor([bad])]), 0)


@every_codec
@pytest.mark.parametrize(
    "values",
    [torch.zeros(0), torch.zeros(2, 2), torch.tensor(1.0), torch.zeros(3, dtype=torch.int32), torch.zeros(3).half()],
)
def test_only_flat_vectors_are_encoded(codec: Payloads, values: Tensor) -> None:
    with pytest.raises(ValueError, match=r"a codec takes (a flat )?float32 or float64 vector"):
        codec.encode(values, 0)


def taken_or_refused(codec: Payloads, payload: Tensor, count: int) -> None:
    try:
        decoded = codec.decode(payload, count, torch.float32)
    except ValueError as error:
        refusal = str(error)
    else:
        assert payload.shape == (codec.encoded_bytes(count),)
        assert decoded.shape == (count,)
        assert bool(decoded.isfinite().all())
        return
    assert refusal
    assert "\n" not in refusal


@every_codec
@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=80), st.integers(-1, 40), st.booleans())
@example(b"", 0, False)
def test_hostile_bytes_give_finite_numbers_or_a_value_error(
    codec: Payloads, data: bytes, count: int, cut: bool
) -> None:
    payload = torch.tensor(list(data), dtype=torch.uint8)
    if cut and count > 0:  # of the right length, so that what is inside is looked at
        payload = payload.repeat(30)[: codec.encoded_bytes(count)]
    taken_or_refused(codec, payload, count)


@every_codec
@settings(deadline=None, max_examples=40)
@given(st.data())
def test_a_garbled_payload_gives_finite_numbers_or_a_value_error(codec: Payloads, data: st.DataObject) -> None:
    payload = codec.encode(normal(1500), 0)
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, payload.numel() - 1))] = data.draw(st.integers(0, 255))
    taken_or_refused(codec, payload, 1500)


def forged(codec: Payloads, count: int, at: int, new: Tensor) -> Tensor:
    payload = codec.encode(normal(count), 0)
    payload[at : at + new.nbytes] = new.view(torch.uint8)
    return payload


SCALES = [math.nan, math.inf, -1.0, HUGE]


@pytest.mark.parametrize(
    ("codec", "at", "new", "said"),
    [
        *((codec, 0, torch.tensor([scale]), "a scale") for codec in (Int8(), QSGD()) for scale in SCALES),
        *((Sign(), 0, torch.tensor([scale]), "a scale") for scale in SCALES[:3]),
        (FP16, 4, torch.tensor([math.inf]).half(), "not finite"),
        (BF16, 4, torch.tensor([math.nan]).bfloat16(), "not finite"),
        (Int8(), 4, torch.tensor([-128], dtype=torch.int8), "the code -128"),
        (QSGD(), 4, torch.tensor([0xF0], dtype=torch.uint8), "levels beyond 7"),
        (Sign(), 4 + 12, torch.tensor([0x80], dtype=torch.uint8), "bits after the last"),
        (TopK(0.1), 0, torch.tensor([9], dtype=torch.int32), "do not have 10 elements"),
        (TopK(0.1), 0, torch.tensor([-10], dtype=torch.int32), "do not have 10 elements"),
        (TopK(0.1), 4, torch.tensor([math.nan]), "not finite"),
        (TopK(0.1), 44, torch.tensor([99, 99], dtype=torch.uint16), "do not ascend"),
        (TopK(0.1), 62, torch.tensor([100], dtype=torch.uint16), "do not ascend within 100"),
    ],
)
def test_a_forged_payload_is_refused_by_name(codec: Payloads, at: int, new: Tensor, said: str) -> None:
    count = 97 if said.startswith("bits") else 100
    with pytest.raises(ValueError, match=said):
        codec.decode(forged(codec, count, at, new), count, torch.float32)


def test_a_place_beyond_its_block_cannot_reach_into_the_next() -> None:
    codec = TopK(1e-5)
    values = torch.zeros(140_000)
    values[[5, 70_000]] = 1.0
    payload = codec.encode(values, 0)
    assert torch.equal(codec.decode(payload, 140_000, torch.float32), values)
    payload[:12] = torch.tensor([0, 0, 2], dtype=torch.int32).view(torch.uint8)  # 70000 - 65536 + 131072 still fits
    moved = codec.decode(payload, 140_000, torch.float32).nonzero().squeeze(1)
    assert moved.tolist() == [131072 + 5, 131072 + 4464]
    payload[:4] = torch.tensor([-1], dtype=torch.int32).view(torch.uint8)
    with pytest.raises(ValueError, match="do not have 2 elements"):
        codec.decode(payload, 140_000, torch.float32)


def test_payloads_decode_to_float32_or_float64_only() -> None:
    with pytest.raises(ValueError, match="float32 or float64, not"):
        Int8().decode(Int8().encode(normal(3), 0), 3, torch.float16)
    with pytest.raises(ValueError, match=r"must be 7 bytes, got torch\.int8"):
        Int8().decode(torch.zeros(7, dtype=torch.int8), 3, torch.float32)


def test_top_k_sends_the_largest_however_they_are_found() -> None:
    """Searched above a threshold from a sample, or all of them where the sample misleads."""
    misled = torch.zeros(100_000)
    misled[::64] = normal(1563).abs() + 9
    for values in (normal(100_000), misled, -misled, torch.arange(100_000.0), torch.ones(100_000)):
        decoded = through(TopK(0.01), values)
        sizes = values.abs().sort(descending=True).values
        assert torch.equal(decoded.abs().sort(descending=True).values[:1000], sizes[:1000])
        assert torch.equal(decoded[decoded != 0], values[decoded != 0])


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("count", [1, 2, 9, 64, 1001])
def test_codes_are_packed_and_come_back(bits: int, count: int) -> None:
    codes = torch.randint(0, 2**bits, (count,), dtype=torch.uint8, generator=torch.Generator().manual_seed(count))
    packed = pack(codes, bits)
    assert packed.numel() == -(-count * bits // 8) or bits == 2
    assert torch.equal(unpack(packed, count, bits), codes)


@pytest.mark.parametrize("levels", [1, 4, 16, 64])
@pytest.mark.parametrize("norm", ["l2", "max"])
def test_qsgd_has_the_variance_of_the_paper_and_no_bias(levels: int, norm: str) -> None:
    """4096 elements in one bucket: variance within min(d/s^2, sqrt(d)/s), and right in the mean to 3 sigma."""
    d, values, codec = 4096, normal(4096), QSGD(levels, bucket=4096, norm=norm)
    draws = torch.stack([through(codec, values, seed) for seed in range(60)]).double()
    off = draws - values.double()
    relative = (off.square().sum(dim=1).mean() / values.double().square().sum()).item()
    reached = {1: 48.9, 4: 11.8, 16: 2.18, 64: 0.167}[levels]
    assert relative <= min(d / levels**2, math.sqrt(d) / levels)
    assert relative == pytest.approx(reached, rel=0.06) if norm == "l2" else relative < reached / 10
    along = (off @ values.double()) / values.double().square().sum()
    assert abs(along.mean()) <= 3 * along.std() / math.sqrt(len(along))
    total = off.sum(dim=1)
    assert abs(total.mean()) <= 3 * total.std() / math.sqrt(len(total))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_codec
def test_a_gpu_decodes_the_same_bits(codec: Payloads) -> None:
    values = normal(140_000)
    payload = codec.encode(values.cuda(), 0)
    assert payload.is_cuda
    assert torch.equal(
        codec.decode(payload, 140_000, values.dtype).cpu(), codec.decode(payload.cpu(), 140_000, values.dtype)
    )
    if isinstance(codec, TopK) or codec in (FP16, BF16, Int8()):
        assert torch.equal(payload.cpu(), codec.encode(values, 0))
