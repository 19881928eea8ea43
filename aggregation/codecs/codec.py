"""What a codec is, in three families: they differ in what an averager may do with the bytes.

    family   who decodes                   how it goes round                                     codecs
    hop      the next one, who re-encodes  inside an allreduce, chunk by chunk                   fp16, bf16, int8, qsgd
    gather   everybody, everybody's        as it was encoded, to all; all sum in the same order  sign, top_k
    sketch   nobody: sketches add up       as plain vectors in an ordinary allreduce, in stages  random_k, power_sgd

A hop codec's error grows with the hops: a ring of p encodes a part p times. What is final (the all-gather half) is
forwarded as it came: encoding what was decoded need not give the same bytes again. The bytes that peers of a gather
codec send do not add up, and a sum of p sparse vectors is p times as dense, hence the way round to all.

Decoding, and what a sketch makes of the means, takes elementwise arithmetic only. IEEE 754 has just one result for
+, *, / and square roots, whereas matrix products and sums differ in the last bits from one processor to the next, and
so would the models. Numbers are sent in the machine's byte order, as torch keeps them.
"""

from hashlib import blake2b
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from ..vector import Layout, all_finite

FLOATS = (torch.float32, torch.float64)
FLOAT32_MAX = torch.finfo(torch.float32).max

SketchState = tuple[Tensor, ...]


class HopCodec(Protocol):
    """Encodes any stretch of a vector by itself. Chunks should be cut at multiples of ``align`` elements: a block that
    is cut in two costs a scale more."""

    family: ClassVar[Literal["hop"]]

    @property
    def name(self) -> str: ...

    @property
    def align(self) -> int: ...

    def encoded_bytes(self, count: int) -> int:
        """Bytes of ``count`` >= 1 encoded elements, exactly, whatever they hold."""
        ...

    def encode(self, values: Tensor, seed: int) -> Tensor:
        """``values`` (n >= 1 elements, float32 or float64, finite) as uint8 [encoded_bytes(n)], on the same device.

        ``seed`` is for what is rounded by chance: it should differ by peer, round and stretch. Raises ValueError on any
        other values: what has diverged must not spread.
        """
        ...

    def decode(self, payload: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """``count`` finite elements in ``dtype`` (float32 or float64), the same bits on every peer.

        Raises ValueError on a payload that is not of this codec and count: it comes off the wire.
        """
        ...


class GatherCodec(Protocol):
    """Encodes a whole vector, each peer by itself. Everybody decodes the payloads of all and sums them in one order."""

    family: ClassVar[Literal["gather"]]

    @property
    def name(self) -> str: ...

    def encoded_bytes(self, count: int) -> int:
        """As `HopCodec.encoded_bytes`."""
        ...

    def encode(self, values: Tensor, seed: int) -> Tensor:
        """As `HopCodec.encode`."""
        ...

    def decode(self, payload: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """As `HopCodec.decode`."""
        ...


class Sketch(Protocol):
    """One peer's side of one round: for each stage in turn, ``absorb(stage, mean of everybody's project(stage))``.

    The mean may be a weighted one, with the same weights in each stage. Nothing outside is changed, so a round that
    fails is simply dropped.
    """

    @property
    def stages(self) -> int: ...

    def project(self, stage: int) -> Tensor:
        """What to average in this stage: a vector in the dtype of the values. Raises ValueError out of turn."""
        ...

    def absorb(self, stage: int, mean: Tensor) -> None:
        """Take what the stage agreed on. Raises ValueError out of turn, or unless it is finite and like `project`'s."""
        ...

    def result(self) -> Tensor:
        """What the sketches say of the mean of all values (n elements): the same bits on every peer."""
        ...

    def own(self) -> Tensor:
        """This peer's share of the `result` (n elements): the mean of all shares is the result, but for rounding.

        Error feedback keeps what is not in it.
        """
        ...

    def state(self) -> SketchState:
        """What the next round starts from: the same bits on every peer."""
        ...


class SketchCodec(Protocol):
    """Makes vectors so short that they can be averaged whole, and a mean out of their means."""

    family: ClassVar[Literal["sketch"]]

    @property
    def name(self) -> str: ...

    def elements(self, layout: Layout) -> tuple[int, ...]:
        """Elements of the vector to average in each stage."""
        ...

    def start(self, layout: Layout, seed: int) -> SketchState:
        """The state before the first round; ``seed`` must be the same on every peer."""
        ...

    def begin(self, values: Tensor, layout: Layout, seed: int, state: SketchState) -> Sketch:
        """A round over ``values`` (n elements, finite). ``seed`` must be the same on every peer, and new every round.

        Raises ValueError where the values are not of this layout, or the state is another codec's.
        """
        ...


Codec = HopCodec | GatherCodec | SketchCodec


def allreduce_bytes(codec: Codec | None, layout: Layout, fragments: int, world: int) -> int:
    """Bytes of the vector for which a plain allreduce sends as many as a round among ``world`` peers sends, where it
    averages one of so many fragments with this codec. Of n bytes an allreduce among p sends 2 (p-1)/p n from each peer,
    all to all (p-1) n.
    """
    if codec is None:
        whole = layout.nbytes
    elif codec.family == "hop":
        whole = codec.encoded_bytes(layout.size)
    elif codec.family == "gather":
        whole = codec.encoded_bytes(layout.size) * world // 2
    else:
        whole = sum(codec.elements(layout)) * layout.dtype.itemsize
    return whole // fragments


def seed_of(*what: object) -> int:
    """A seed for ``what``: the same wherever that is written alike."""
    return int.from_bytes(blake2b(repr(what).encode(), digest_size=7).digest(), "big")


def check_values(values: Tensor) -> None:
    """Raises ValueError unless ``values`` are a flat vector that can be encoded."""
    if values.ndim != 1 or values.dtype not in FLOATS or not values.numel():
        got = f"{values.dtype} of shape {tuple(values.shape)}"
        raise ValueError(f"a codec takes a flat float32 or float64 vector of 1 element or more, got {got}")
    if not all_finite(values):
        raise ValueError(f"{int((~torch.isfinite(values)).sum())} of {values.numel()} values to encode are not finite")


def check_payload(payload: Tensor, nbytes: int, dtype: torch.dtype) -> None:
    """Raises ValueError unless ``payload`` has ``nbytes`` bytes and is to be decoded to float32 or float64."""
    if dtype not in FLOATS:
        raise ValueError(f"a payload is decoded to float32 or float64, not {dtype}")
    if payload.dtype != torch.uint8 or payload.shape != (nbytes,):
        got = f"{payload.dtype} of shape {tuple(payload.shape)}"
        raise ValueError(f"the payload must be {nbytes} bytes, got {got}")


def check_count(count: int) -> None:
    """Raises ValueError on a count of elements below 1."""
    if count < 1:
        raise ValueError(f"a codec takes 1 element or more, got {count}")


def check_scales(scales: Tensor, levels: int) -> None:
    """Raises ValueError unless all ``scales`` are within 0 and `scale_max` of ``levels``."""
    if not bool(((scales >= 0) & (scales <= scale_max(levels))).all()):
        raise ValueError("a scale in the payload is negative, not finite or too large")


def scale_max(levels: int) -> float:
    """The largest scale, with a margin, that ``levels`` times is still a float32."""
    return FLOAT32_MAX / levels * (1 - 2**-20)


def narrow(values: Tensor) -> Tensor:
    """The values as float32, detached. What is beyond its range becomes its largest number."""
    values = values.detach()
    if values.dtype == torch.float64:
        return values.clamp(-FLOAT32_MAX, FLOAT32_MAX).to(torch.float32)
    return values
