"""A user asks for a codec in a word, gets what the word says, and is told in one line what is wrong with it."""

import pytest

from samovar.aggregation.codecs.cast import BF16, FP16
from samovar.aggregation.codecs.int8 import Int8
from samovar.aggregation.codecs.power_sgd import PowerSGD
from samovar.aggregation.codecs.qsgd import QSGD
from samovar.aggregation.codecs.random_k import RandomK
from samovar.aggregation.codecs.registry import CODECS, parse_codec
from samovar.aggregation.codecs.sign import Sign
from samovar.aggregation.codecs.top_k import TopK


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        ("fp16", FP16),
        ("bf16", BF16),
        ("int8", Int8()),
        ("qsgd", QSGD(7)),
        ("qsgd:4", QSGD(4)),
        ("qsgd:4:l2", QSGD(4, norm="l2")),
        ("sign", Sign()),
        ("top_k", TopK(0.01)),
        (" top_k:0.05 ", TopK(0.05)),
        ("top_k:1e-3:fp16", TopK(0.001, half=True)),
        ("random_k:0.1", RandomK(0.1)),
        ("power_sgd", PowerSGD(4)),
        ("power_sgd:2", PowerSGD(2)),
    ],
)
def test_a_codec_is_asked_for_by_name(text: str, codec: object) -> None:
    assert parse_codec(text) == codec
    assert parse_codec(text).name == text.strip().split(":")[0]


SILLY = """zip int4 INT8 int8:1 fp16: top_k:0 top_k:-0.1 top_k:nan top_k:inf top_k:1.1 top_k:1e9 top_k:1e-9 top_k:
    top_k:x top_k:0_1 top_k:0.1:fp8 top_k:0.1:fp16:2 random_k:0 random_k:2 random_k:-1 random_k:nan random_k:--1
    qsgd:0 qsgd:-1 qsgd:128 qsgd:99999999999999999999 qsgd:1.5 qsgd:4:l3 qsgd:² power_sgd:0 power_sgd:-2
    power_sgd:65 power_sgd:nan power_sgd:1e1 sign:1"""


@pytest.mark.parametrize("text", ["", ":", "int8\nint8", "top_k:" + "0" * 5000, "x" * 5000, *SILLY.split()])
def test_an_unknown_codec_and_silly_options_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]{10,250}$"):
        parse_codec(text)


def test_the_list_of_codecs_is_whole() -> None:
    assert list(CODECS) == ["fp16", "bf16", "int8", "qsgd", "sign", "top_k", "random_k", "power_sgd"]


@pytest.mark.parametrize(
    ("text", "times"),
    [("fp16", 2), ("bf16", 2), ("int8", 3.9), ("qsgd", 7.8), ("sign", 31.9), ("top_k", 40), ("top_k:0.01:fp16", 80)],
)
def test_a_codec_saves_as_many_bytes_as_claimed(text: str, times: float) -> None:
    codec = parse_codec(text)
    assert codec.family != "sketch"
    for count in (100_000, 1_000_000, 535_818):
        assert 4 * count >= times * codec.encoded_bytes(count)
