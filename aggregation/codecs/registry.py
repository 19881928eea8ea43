"""The codecs by name, and the syntax by which a user chooses one: ``int8``, ``top_k:0.01``, ``top_k:0.01:fp16``,
``power_sgd:4``. Adding one is one file and one line here."""

from collections.abc import Callable, Mapping

from ..options import made_of, number, whole
from .cast import BF16, FP16
from .codec import Codec
from .int8 import Int8
from .power_sgd import PowerSGD
from .qsgd import QSGD
from .random_k import RandomK
from .sign import Sign
from .top_k import TopK


def parse_codec(text: str) -> Codec:
    """The codec that a user asks for: a name of `CODECS`, and its options after colons.

    Raises ValueError, in one line, on an unknown name or invalid options.
    """
    return made_of(text, CODECS, "codec")


def _top_k(fraction: str = "0.01", values: str = "fp32") -> Codec:
    if values not in {"fp16", "fp32"}:
        raise ValueError(f"values are sent as fp16 or fp32, got {values!r}")
    return TopK(number(fraction), half=values == "fp16")


def _qsgd(levels: str = "7", norm: str = "max") -> Codec:
    if norm not in {"max", "l2"}:
        raise ValueError(f"the norm is max or l2, got {norm!r}")
    return QSGD(whole(levels), norm="l2" if norm == "l2" else "max")


CODECS: Mapping[str, tuple[Callable[..., Codec], int]] = {
    "fp16": (lambda: FP16, 0),
    "bf16": (lambda: BF16, 0),
    "int8": (Int8, 0),
    "qsgd": (_qsgd, 2),
    "sign": (Sign, 0),
    "top_k": (_top_k, 2),
    "random_k": (lambda fraction="0.01": RandomK(number(fraction)), 1),
    "power_sgd": (lambda rank="4": PowerSGD(whole(rank)), 1),
}
"""Name -> a function that makes the codec from its options, which are texts, and the most options it takes."""
