"""The filters by name, and the syntax by which a user chooses some: ``significant:0.01,skip:0.1,int8``. Adding one is
one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..codecs.registry import CODECS, parse_codec
from ..codecs.top_k import TopK
from ..options import OptionError, made_of, number, spelled
from .filter import Filter, Filters
from .kkt import KKT
from .largest import Largest
from .significant import Significant
from .skip import Skip


def parse_filters(text: str) -> Filters:
    """The filters that a user asks for, with commas between them, in the order in which they are applied; the last may
    be a codec. Raises ValueError, in one line, on an unknown name or invalid options."""
    *names, last = text.split(",")
    name = _name(last)
    if name in FILTERS or name not in CODECS:
        return Filters(tuple(map(_parse, (*names, last))))
    if (codec := parse_codec(last)).family == "sketch":
        raise OptionError(f"the codec {name} makes a mean of all peers: it encodes no push")
    return Filters(tuple(map(_parse, names)), codec)


def _name(text: str) -> str:
    return spelled(text.strip()).partition(":")[0]


def _parse(text: str) -> Filter:
    name = _name(text)
    if name in CODECS and name not in FILTERS:
        raise OptionError(f"the codec {name} comes last: what it makes cannot be filtered")
    return made_of(text, FILTERS, "filter")


def _top_k(*options: str) -> Filter:
    codec = parse_codec(":".join(("top_k", *options)))
    assert isinstance(codec, TopK)
    return Largest(codec)


FILTERS: Mapping[str, tuple[Callable[..., Filter], int]] = {
    "significant": (lambda threshold="0.01": Significant(number(threshold)), 1),
    "skip": (lambda probability="0.5": Skip(number(probability)), 1),
    "kkt": (lambda threshold="0.001": KKT(number(threshold)), 1),
    "top_k": (_top_k, 2),
}
"""Name -> a function that makes the filter from its options, which are texts, and the most options it takes."""
