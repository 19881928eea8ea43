"""A model's tensors as one flat vector. Every protocol sends this single buffer, so no tensor can be forgotten."""

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

Row = tuple[str, tuple[int, ...], torch.dtype]

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
NAMES = {dtype: name for name, dtype in DTYPES.items()}

SIZE_MAX = 2**40
"""The most elements of a vector: a layout off the wire must not cause computations with absurd sizes."""
DIMENSIONS_MAX = 64
"""The most dimensions of a tensor, the limit of torch itself."""


class Part(NamedTuple):
    """A range of a vector: the elements ``start`` to ``stop`` (exclusive)."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one tensor in the vector: elements ``start`` to ``stop`` (exclusive), row-major."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Later:
    """All tensors of a model in which some parameters are frozen when the run begins. ``rows``: name, shape and dtype
    of every tensor, in the model's order; ``frozen``: names of the frozen ones, which may join the layout during the
    run."""

    rows: tuple[Row, ...]
    frozen: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """The agreement between peers on what each element of the vector means.

    ``slots`` follow one another without gap, in the order of the model. ``dtype`` is the vector's: float64 if any
    tensor is float64, else float32 (half types are widened, so that sums of many peers keep their digits). Build one
    with `of` or `from_plain`; the constructor raises ValueError on slots that break these rules. ``later``: all tensors
    of a model of which some are frozen, and may join it during a run (`growth`); None: none is.
    """

    slots: tuple[Slot, ...]
    dtype: torch.dtype
    later: Later | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        for slot in self.slots:
            _check_row(slot.name, slot.shape, slot.dtype)
        if len({slot.name for slot in self.slots}) != len(self.slots):
            names = [slot.name for slot in self.slots]
            twice = next(name for index, name in enumerate(names) if name in names[:index])
            raise ValueError(f"tensor {_quote(twice)} appears twice in the layout")
        bounds = [0, *accumulate(math.prod(slot.shape) for slot in self.slots)]
        if not bool(self.slots) <= bounds[-1] <= SIZE_MAX:
            raise ValueError(f"a layout holds 1 to {SIZE_MAX} elements, got {bounds[-1]} in {len(self.slots)} tensors")
        if [(slot.start, slot.stop) for slot in self.slots] != list(pairwise(bounds)):
            raise ValueError("the slots of a layout must follow one another without gap or overlap")
        if self.dtype != _widest(self.slots):
            raise ValueError(f"the vector of these tensors is {_widest(self.slots)}, not {self.dtype}")

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], frozen: Collection[str] = ()) -> "Layout":
        """The layout of a model's tensors, in the mapping's order, of any shapes. It leaves out the ``frozen`` ones,
        which may join it later; at least one tensor must not be frozen.

        Raises ValueError, naming the tensor, on anything but dense float16, bfloat16, float32 or float64 tensors with
        values (integer buffers, sparse and meta tensors), and on a mapping without elements.
        """
        for name, tensor in tensors.items():
            _check_tensor(name, tensor)
        rows = [(name, tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()]
        later = Later(tuple(rows), tuple(name for name in tensors if name in frozen)) if frozen else None
        return cls.stack([row for row in rows if row[0] not in frozen], later)

    @classmethod
    def from_plain(cls, plain: object) -> "Layout":
        """The layout that `to_plain` wrote, without `later`. Raises ValueError on anything else, and on no tensors."""
        if not isinstance(plain, list | tuple):
            raise ValueError(f"a layout must be a list of [name, shape, dtype], got {type(plain).__name__}")
        return cls.stack([_parse_row(index, row) for index, row in enumerate(plain)])

    @classmethod
    def stack(cls, rows: Sequence[Row], later: Later | None = None) -> "Layout":
        """The layout of tensors of these names, shapes and dtypes, in this order; ``later``: frozen ones that may join.
        Raises ValueError on a repeated name, a dtype not in `DTYPES`, sizes out of range, and without tensors."""
        if not rows:
            raise ValueError(f"a layout holds 1 to {SIZE_MAX} elements, got 0 in 0 tensors")
        for row in rows:
            _check_row(*row)
        bounds = [0, *accumulate(math.prod(shape) for _, shape, _ in rows)]
        slots = tuple(Slot(*row, bounds[index], bounds[index + 1]) for index, row in enumerate(rows))
        return cls(slots, _widest(slots), later)

    def to_plain(self) -> list[list[object]]:
        """Plain lists ``[name, [dimension, ...], dtype]`` in slot order, for a message header or a file."""
        return [[slot.name, list(slot.shape), NAMES[slot.dtype]] for slot in self.slots]

    @property
    def size(self) -> int:
        """Elements in the vector."""
        return self.slots[-1].stop if self.slots else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the vector."""
        return self.size * self.dtype.itemsize

    @cached_property
    def digest(self) -> str:
        """32 hex digits over names, shapes and dtypes: equal exactly where `compare` finds no difference."""
        text = json.dumps([NAMES[self.dtype], self.to_plain()])
        return blake2b(text.encode(), digest_size=16).hexdigest()

    def compare(self, other: "Layout") -> str | None:
        """The difference between two layouts, as one line of text in which this layout is "here" and ``other`` is
        "there": the first tensor that differs, and the number of others. None if they are equal."""
        mine, theirs = ({slot.name: slot for slot in layout.slots} for layout in (self, other))
        odd = {name: text for name in {**mine, **theirs} if (text := _unlike(mine.get(name), theirs.get(name)))}
        if odd:
            (first, text), *more = odd.items()
            others = ", ".join(f"{name!r:.40}" for name, _ in more[:2]) + (" ..." if len(more) > 2 else "")
            return f"tensor {_quote(first)} {text}" + (f"; {len(more)} more differ: {others}" if more else "")
        for index, (here, there) in enumerate(zip(mine, theirs, strict=True)):
            if here != there:
                return f"the order differs: tensor {index} is {_quote(here)} here and {_quote(there)} there"
        return None

    def flatten(self, tensors: Mapping[str, Tensor], out: Tensor | None = None) -> Tensor:
        """Copy the tensors, from any device, into one contiguous CPU vector of `size` elements, and return it. The
        vector is a new one, which the caller owns, or ``out``.

        Raises ValueError, before anything is written, where names or shapes are not this layout's, a tensor is not a
        dense floating one, or ``out`` is no such vector.
        """
        self._check(tensors)
        if out is None:
            out = torch.empty(self.size, dtype=self.dtype)
        self._check_vector(out)
        if out.device.type != "cpu" or not out.is_contiguous() or out.requires_grad:
            raise ValueError(f"out must be a contiguous CPU vector without gradient, got one on {out.device}")
        for slot, view in self._views(out):
            view.copy_(tensors[slot.name].detach())
        return out

    def load(self, vector: Tensor, tensors: Mapping[str, Tensor]) -> None:
        """Copy a vector of `size` elements into the tensors, in place, each on its own device and in its own dtype.

        Raises ValueError, before anything is written, where the vector, a name or a shape is not this layout's, or a
        tensor is not a dense floating one.
        """
        self._check(tensors)
        self._check_vector(vector)
        with torch.no_grad():
            for slot, view in self._views(vector.detach()):
                tensors[slot.name].copy_(view)

    def _views(self, vector: Tensor) -> Iterator[tuple[Slot, Tensor]]:
        return ((slot, vector[slot.start : slot.stop].view(slot.shape)) for slot in self.slots)

    def _check(self, tensors: Mapping[str, Tensor]) -> None:
        for slot in self.slots:
            if slot.name not in tensors:
                raise ValueError(f"tensor {_quote(slot.name)} of the layout is missing")
            tensor = tensors[slot.name]
            _check_tensor(slot.name, tensor)
            if tensor.shape != slot.shape:
                shapes = f"{tuple(tensor.shape)}, the layout says {slot.shape}"
                raise ValueError(f"tensor {_quote(slot.name)} has shape {shapes}")
        if len(tensors) != len(self.slots):
            extra = next(iter(tensors.keys() - {slot.name for slot in self.slots}))
            raise ValueError(f"tensor {_quote(extra)} is not in the layout")

    def _check_vector(self, vector: Tensor) -> None:
        if vector.shape != (self.size,) or vector.dtype != self.dtype:
            got = f"{vector.dtype} of shape {tuple(vector.shape)}"
            raise ValueError(f"the vector must be {self.dtype} of shape ({self.size},), got {got}")


def all_finite(vector: Tensor) -> bool:
    """Whether no element, of any row [..., n], is infinite or NaN. Checks the sum, which is far faster than checking
    each element; checks the elements only if the sum is not finite."""
    return math.isfinite(vector.sum().item()) or bool(torch.isfinite(vector).all())


def norms(vectors: Tensor) -> Tensor:
    """The Euclidean norm of each vector: [..., n] -> [...], float64; infinite or NaN where an element is, or where the
    squares' sum is beyond float64. In float32, norms below about 1e-19 are inexact or 0: their squares underflow."""
    vectors = vectors.detach()
    squares: Tensor = torch.linalg.vecdot(vectors, vectors).double()  # as fast as a sum, and shows both
    if all_finite(squares):
        return squares.sqrt_()
    large: Tensor = torch.linalg.vector_norm(vectors, dim=-1, dtype=torch.float64)
    return torch.where(torch.isfinite(squares), squares.sqrt(), large)  # a square overflows sooner than its root


def norm_of(vector: Tensor) -> float:
    """The Euclidean norm of one vector [n], with the exceptions of `norms`."""
    vector = vector.detach()
    square: float = vector.dot(vector).item()
    return math.sqrt(square) if math.isfinite(square) else float(norms(vector))


def parts(size: int, world: int, shares: Sequence[float] | None = None) -> tuple[Part, ...]:
    """Cut a vector of ``size`` elements into ``world`` contiguous parts that cover it exactly.

    The parts are equal up to one element, or in proportion to ``shares``: one finite weight >= 0 for each part, not all
    zero; a weight of zero gives an empty part. Arithmetic is exact, so that every peer cuts alike. Raises ValueError on
    anything else.
    """
    if size < 0 or world < 1:
        raise ValueError(f"cannot cut {size} elements into {world} parts")
    if shares is None:
        return tuple(Part(size * part // world, size * (part + 1) // world) for part in range(world))
    weights = list(shares)
    if len(weights) != world:
        raise ValueError(f"{world} parts need {world} shares, got {len(weights)}")
    if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or not any(weights):
        raise ValueError(f"shares must be finite, >= 0 and not all zero, got {weights!r:.200}")
    filled = [Fraction(0), *accumulate(map(Fraction, weights))]
    bounds = [size * part // filled[-1] for part in filled]
    return tuple(Part(*bound) for bound in pairwise(bounds))


def _widest(slots: Sequence[Slot]) -> torch.dtype:
    return torch.float64 if any(slot.dtype == torch.float64 for slot in slots) else torch.float32


def _check_tensor(name: str, tensor: object) -> None:
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{_quote(name)} is no tensor but {type(tensor).__name__}")
    if tensor.dtype not in NAMES:
        raise ValueError(f"tensor {_quote(name)} is {tensor.dtype}; only {', '.join(DTYPES)} can be averaged")
    if tensor.layout != torch.strided:
        raise ValueError(f"tensor {_quote(name)} is {tensor.layout}; only dense tensors can be averaged")
    if tensor.is_meta:
        raise ValueError(f"tensor {_quote(name)} is on the meta device and has no values")


def _check_row(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if len(shape) > DIMENSIONS_MAX or not all(0 <= dimension <= SIZE_MAX for dimension in shape):
        limits = f"at most {DIMENSIONS_MAX} dimensions of 0 to {SIZE_MAX} elements"
        raise ValueError(f"tensor {_quote(name)} must have {limits}, got {shape!r:.200}")
    if dtype not in NAMES:
        raise ValueError(f"tensor {_quote(name)} is {dtype}; only {', '.join(DTYPES)} can be averaged")


def _parse_row(index: int, row: object) -> Row:
    if not isinstance(row, list | tuple) or len(row) != 3:
        raise ValueError(f"tensor {index} of a layout must be [name, shape, dtype], got {row!r:.200}")
    name, shape, dtype = row
    if not isinstance(name, str):
        raise ValueError(f"the name of tensor {index} must be text, got {name!r:.200}")
    if not isinstance(shape, list | tuple) or not all(type(dimension) is int for dimension in shape):
        raise ValueError(f"the shape of tensor {_quote(name)} must be a list of whole numbers, got {shape!r:.200}")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"the dtype of tensor {_quote(name)} must be one of {', '.join(DTYPES)}, got {dtype!r:.200}")
    return name, tuple(shape), DTYPES[dtype]


def _quote(name: str) -> str:
    return f"{name!r:.200}"


def _unlike(here: Slot | None, there: Slot | None) -> str:
    """The difference between two tensors of one name, None: it is missing; "" if there is none."""
    mine, theirs = _describe(here), _describe(there)
    if here is None or there is None:
        return f"{theirs} is missing here" if here is None else f"{mine} is missing there"
    return "" if mine == theirs else f"is {mine} here and {theirs} there"


def _describe(slot: Slot | None) -> str:
    return "" if slot is None else f"{NAMES[slot.dtype]} {slot.shape}"


NO_LAYOUT = Layout((), torch.float32)
"""The layout of a vector without elements, of a model whose values are all in tables."""
