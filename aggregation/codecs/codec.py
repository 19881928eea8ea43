"""The codec interfaces, in three families that differ in how an averager may use the encoded bytes.

    family   decoded by                    sent                                                  codecs
    hop      the next rank, re-encoded     inside an allreduce, chunk by chunk                   fp16, bf16, int8, qsgd
    gather   every rank, from all          unchanged to all, which sum in the same order         sign, top_k
    sketch   no rank: sketches add up      as plain vectors in an ordinary allreduce, in stages  random_k, power_sgd

A hop codec's error grows with the hops: a ring of p encodes a part p times. Final sums (the all-gather half) are
forwarded as received, because encoding decoded values need not give the same bytes again. The encoded bytes of a gather
codec cannot be added, and a sum of p sparse vectors is p times as dense; so they are sent to all.

Decoding, and a sketch's computations on the means, use elementwise arithmetic only. IEEE 754 has just one result for +,
*, / and square roots, whereas matrix products and sums differ in the last bits from one processor to the next, and so
would the models. Numbers are sent in the machine's byte order, as torch keeps them.

A payload is that of one vector [n]. The arithmetic acts on the last axis of [..., n], so that many peers can be
computed as rows of one tensor: `round_trip` of hop and gather codecs, and the rounds of sketches.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from ..vector import Layout, all_finite

FLOATS = (torch.float32, torch.float64)
FLOAT32_MAX = torch.finfo(torch.float32).max

SketchState = tuple[Tensor, ...]


class HopCodec(Protocol):
    """A codec that can encode any contiguous range of a vector by itself. ``name``: the one by which a user chooses it,
    without options. Chunks should be cut at multiples of ``align`` elements: a block that is cut in two needs one more
    scale."""

    family: ClassVar[Literal["hop"]]

    @property
    def name(self) -> str: ...

    @property
    def align(self) -> int: ...

    def encoded_bytes(self, count: int) -> int:
        """The exact number of bytes of ``count`` encoded elements, whatever their values are. Raises ValueError on a
        count below 1."""
        ...

    def encode(self, values: Tensor, seed: int) -> Tensor:
        """Encode ``values`` ([n], n >= 1, float32 or float64, finite) as uint8 [encoded_bytes(n)], on the same device.

        ``seed`` is for stochastic rounding: it should differ by peer, round and range. A codec that rounds to the
        nearest ignores it. Raises ValueError on any other values: a diverged model must not spread.
        """
        ...

    def decode(self, payload: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """Decode ``payload``, uint8 [encoded_bytes(count)], to ``count`` finite elements [count] in ``dtype``, with the
        same bits on every peer.

        Raises ValueError on a payload of another size, or with bytes that `encode` does not make, because it comes off
        the wire; and on a dtype other than float32 and float64.
        """
        ...

    def round_trip(self, values: Tensor, seeds: Sequence[int]) -> Tensor:
        """The decoded values of each row of ``values`` [..., n], in its dtype: for row r the bits of
        ``decode(encode(row, seeds[r]), n, dtype)``, rows counted in row-major order of the shape, whatever the strides.
        Makes no payload. Raises ValueError as `encode` does, if any row is invalid, or if there is not one seed a
        row."""
        ...


class GatherCodec(Protocol):
    """A codec that encodes a whole vector. Each peer sends its payload to all; every peer decodes the payloads of all,
    and sums them in the same order."""

    family: ClassVar[Literal["gather"]]

    @property
    def name(self) -> str: ...

    def encoded_bytes(self, count: int) -> int:
        """The exact number of bytes of ``count`` encoded elements, as `HopCodec.encoded_bytes`."""
        ...

    def encode(self, values: Tensor, seed: int) -> Tensor:
        """Encode the whole vector ``values`` as uint8 [encoded_bytes(n)]; arguments and errors as in
        `HopCodec.encode`."""
        ...

    def decode(self, payload: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """Decode a payload to ``count`` elements [count] in ``dtype``, float32 or float64, with the same bits on every
        peer. Raises ValueError on any other payload or dtype, as `HopCodec.decode`."""
        ...

    def round_trip(self, values: Tensor, seeds: Sequence[int]) -> Tensor:
        """The decoded values of each row of ``values`` [..., n], without a payload, as in `HopCodec.round_trip`."""
        ...


class Sketch(Protocol):
    """One peer's side of one round with a `SketchCodec`. For each stage in order, the averager calls
    ``project(stage)``, averages that vector over the peers, and calls ``absorb(stage, mean)``. The mean may be
    weighted, with the same weights in each stage. A sketch changes nothing outside itself, so a round that fails is
    simply dropped.

    With values [..., n] leading axes are peers as rows, in every stage and in their shares. A mean [k] is common to all
    rows; where means are [..., k] each row has its own, and so has the result.
    """

    @property
    def stages(self) -> int: ...

    def project(self, stage: int) -> Tensor:
        """This peer's vector to average in this stage, [..., k] in the dtype of the values. Raises ValueError unless
        this stage is due."""
        ...

    def absorb(self, stage: int, mean: Tensor) -> None:
        """Store the mean of all peers' vectors of this stage, [k] or [..., k]. Raises ValueError unless this stage is
        due, and the mean is finite and like `project`'s vectors."""
        ...

    def result(self) -> Tensor:
        """The estimate of the mean of all peers' values, [n] or [..., n], once every stage has its mean: the same bits
        on every peer. Raises ValueError earlier."""
        ...

    def own(self) -> Tensor:
        """This peer's share [..., n] of the `result`: the mean of all shares is the result, up to rounding. To be
        called after the last stage.

        Error feedback keeps the difference between this peer's values and its share.
        """
        ...

    def state(self) -> SketchState:
        """The codec's state after this round, for `SketchCodec.begin` of the next round, with the leading axes of the
        means: the same bits on every peer. To be called after the last stage. Empty for a codec without state."""
        ...


class SketchCodec(Protocol):
    """Turns a vector into short ones, a stage at a time. The peers average the short vectors with a plain allreduce,
    and the codec computes from these means an estimate of the mean of the whole vectors."""

    family: ClassVar[Literal["sketch"]]

    @property
    def name(self) -> str: ...

    def elements(self, layout: Layout) -> tuple[int, ...]:
        """For each stage in order, the number k of elements of the vector that is averaged."""
        ...

    def start(self, layout: Layout, seed: int) -> SketchState:
        """The codec's state before the first round, empty for a codec without state. ``seed`` must be the same on every
        peer."""
        ...

    def begin(self, values: Tensor, layout: Layout, seed: int, state: SketchState) -> Sketch:
        """Begin this peer's side of a round over its ``values`` ([..., n], finite). ``seed`` must be the same on every
        peer, and new every round; ``state`` is that after the last round, or of `start`. Raises ValueError where the
        values are not finite or not of this layout, or the state is another codec's."""
        ...


Codec = HopCodec | GatherCodec | SketchCodec


def allreduce_bytes(codec: Codec | None, layout: Layout, fragments: int, world: int) -> int:
    """The size in bytes, rounded down, of an uncompressed vector that costs as much: its plain allreduce sends as many
    bytes as a round among ``world`` peers sends with this codec (None: no codec). ``fragments``: the number of equal
    parts into which the vector is cut, of which each round sends one. Schedules are chosen for this size.

    For n bytes among p peers, an allreduce sends 2 (p-1)/p n from each peer, an all-gather (p-1) n.
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
    """A seed from 0 to 2**56 - 1 that is a hash of the arguments' `repr`: peers that give equal arguments get equal
    seeds, without a message."""
    return int.from_bytes(blake2b(repr(what).encode(), digest_size=7).digest(), "big")


def check_vector(values: Tensor) -> None:
    """Raises ValueError unless ``values`` are one vector [n] that can be encoded (`check_values`)."""
    if values.ndim != 1:
        got = f"{values.dtype} of shape {tuple(values.shape)}"
        raise ValueError(f"a codec takes a flat float32 or float64 vector for a payload, got {got}")
    check_values(values)


def check_rows(values: Tensor, seeds: Sequence[int]) -> None:
    """Raises ValueError unless ``values`` [..., n] can be encoded (`check_values`), with a seed for each row."""
    check_values(values)
    if len(seeds) != values[..., 0].numel():
        raise ValueError(f"each row takes a seed: {len(seeds)} seeds do not fit shape {tuple(values.shape)}")


def check_values(values: Tensor) -> None:
    """Raises ValueError unless ``values`` [..., n], n >= 1, can be encoded: finite numbers in float32 or float64."""
    if not values.ndim or values.dtype not in FLOATS or not values.numel():
        got = f"{values.dtype} of shape {tuple(values.shape)}"
        raise ValueError(f"a codec takes float32 or float64 vectors of 1 element or more, got {got}")
    if not all_finite(values):
        raise ValueError(f"{int((~torch.isfinite(values)).sum())} of {values.numel()} values to encode are not finite")


def check_payload(payload: Tensor, nbytes: int, dtype: torch.dtype) -> None:
    """Raises ValueError unless ``payload`` is uint8 [nbytes], and ``dtype``, to which it is to be decoded, is float32
    or float64."""
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
    """Raises ValueError if any of the ``scales`` read from a payload is NaN, negative or above `scale_max`, beyond
    which a decoded value could overflow. ``levels``: the largest magnitude of a code."""
    if not bool(((scales >= 0) & (scales <= scale_max(levels))).all()):
        raise ValueError("a scale in the payload is negative, not finite or too large")


def scale_max(levels: int) -> float:
    """The largest scale that can be multiplied by ``levels`` without leaving the range of float32, less a margin of
    2**-20 of it."""
    return FLOAT32_MAX / levels * (1 - 2**-20)


def narrow(values: Tensor) -> Tensor:
    """The float32 or float64 values [..., n] as float32, detached. Numbers beyond its range become its largest finite
    number of the same sign. Float32 values are not copied."""
    values = values.detach()
    if values.dtype == torch.float64:
        return values.clamp(-FLOAT32_MAX, FLOAT32_MAX).to(torch.float32)
    return values
