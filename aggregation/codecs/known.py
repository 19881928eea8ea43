"""The codecs by name, and how a user asks for one: ``int8``, ``top_k:0.01``, ``top_k:0.01:fp16``, ``power_sgd:4``.
Adding one is one file and one line here."""

from collections.abc import Callable, Mapping

from .cast import BF16, FP16
from .codec import Codec
from .int8 import Int8
from .power_sgd import PowerSGD
from .qsgd import QSGD
from .random_k import RandomK
from .sign import Sign
from .top_k import TopK

TEXT_MAX = 60
"""Characters of a codec with its options, at most."""


def parse_codec(text: str) -> Codec:
    """The codec a user asks for: a name of `CODECS`, and its options after colons.

    Raises ValueError, in one line, on a name that is unknown and on options that are silly.
    """
    name, *options = text.strip().split(":")
    if name not in CODECS:
        raise ValueError(f"there is no codec {name!r:.60}; there are {', '.join(CODECS)}")
    if len(text) > TEXT_MAX:
        raise ValueError(f"the codec {name} has options of {len(text)} characters, beyond {TEXT_MAX}")
    make, most = CODECS[name]
    if len(options) > most:
        raise ValueError(f"the codec {name} takes {most or 'no'} options, got {text!r}")
    try:
        return make(*options)
    except ValueError as error:
        raise ValueError(f"the codec {text!r} cannot be: {error}") from None


def _top_k(fraction: str = "0.01", values: str = "fp32") -> Codec:
    if values not in {"fp16", "fp32"}:
        raise ValueError(f"values are sent as fp16 or fp32, got {values!r}")
    return TopK(_number(fraction), half=values == "fp16")


def _qsgd(levels: str = "7", norm: str = "max") -> Codec:
    if norm not in {"max", "l2"}:
        raise ValueError(f"the norm is max or l2, got {norm!r}")
    return QSGD(_whole(levels), norm="l2" if norm == "l2" else "max")


def _number(text: str) -> float:
    if not text or set(text) - set("0123456789.e-"):
        raise ValueError(f"{text!r} is no number")
    return float(text)


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is no whole number")
    return int(text)


CODECS: Mapping[str, tuple[Callable[..., Codec], int]] = {
    "fp16": (lambda: FP16, 0),
    "bf16": (lambda: BF16, 0),
    "int8": (Int8, 0),
    "qsgd": (_qsgd, 2),
    "sign": (Sign, 0),
    "top_k": (_top_k, 2),
    "random_k": (lambda fraction="0.01": RandomK(_number(fraction)), 1),
    "power_sgd": (lambda rank="4": PowerSGD(_whole(rank)), 1),
}
"""By name: what makes it out of its options, texts, and how many options it takes at most."""
