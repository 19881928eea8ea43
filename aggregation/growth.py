"""Growth: a vector gets longer during a run, when parameters are trained that were frozen when the run began.

Source of the practice: Howard and Ruder, "Universal language model fine-tuning for text classification" (ACL 2018,
arXiv 1801.06146), section 3.3, gradual unfreezing.

A grown layout is equal to that of a run which began with the same parameters unfrozen: its tensors are in the model's
order, not in the order of unfreezing. So the parameters still come first, and only names are needed to tell which
layout it is.
"""

from collections.abc import Collection
from functools import lru_cache

from torch import Tensor

from .vector import Layout


def in_order(layout: Layout, names: Collection[str]) -> tuple[str, ...]:
    """Those of ``names`` that are frozen parameters of the model, in the model's order. Other names are left out."""
    return () if layout.later is None or not names else tuple(one for one in layout.later.frozen if one in set(names))


def grown(layout: Layout, names: tuple[str, ...]) -> Layout:
    """The layout of the vector when the frozen parameters ``names`` are trained, too. ``layout``: that with which the
    run began; ``names``: all that were unfrozen since, in the model's order. Returns ``layout`` itself for no names,
    and for a model without frozen parameters."""
    return layout if layout.later is None or not names else _grown(_Same(layout), names)


def whole(layout: Layout) -> Layout:
    """The layout of the vector when all frozen parameters are trained, too."""
    return layout if layout.later is None else grown(layout, layout.later.frozen)


class _Same:
    """A layout as the key of a cache: equal only to itself, because comparing slots takes long."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def __hash__(self) -> int:
        return id(self.layout)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.layout is self.layout


@lru_cache(maxsize=8)
def _grown(first: _Same, names: tuple[str, ...]) -> Layout:
    later = first.layout.later
    assert later is not None
    absent = {*later.frozen} - {*names}
    return Layout.stack([row for row in later.rows if row[0] not in absent], later)


def carried(vector: Tensor, before: Layout, after: Layout, fill: Tensor | None = None) -> Tensor:
    """The elements of ``vector``, [..., n] in the layout ``before``, at their places in the layout ``after``: [..., m].
    Tensors that only ``after`` has are taken from ``fill`` [..., m]; without it they are 0. Those that only ``before``
    has are left out. Returns ``vector`` itself where the layouts are the same."""
    if before is after or before.slots == after.slots:
        return vector
    carried = vector.new_zeros((*vector.shape[:-1], after.size)) if fill is None else fill.clone()
    starts = {slot.name: slot for slot in before.slots}
    for slot in after.slots:
        if (there := starts.get(slot.name)) is not None:
            carried[..., slot.start : slot.stop] = vector[..., there.start : there.stop]
    return carried


def to_bits(layout: Layout, names: Collection[str]) -> bytes:
    """``names`` of frozen parameters as bytes to send: bit i, lowest first, is 1 if the model's i-th frozen parameter
    is among them. Other names are left out. Empty for no names, and for a model without frozen parameters."""
    if layout.later is None or not names:
        return b""
    bits = sum(1 << index for index, name in enumerate(layout.later.frozen) if name in set(names))
    return bits.to_bytes(-(-len(layout.later.frozen) // 8), "little")


def from_bits(layout: Layout, bits: bytes) -> tuple[str, ...]:
    """The names whose bits `to_bits` set, in the model's order. Raises ValueError for bits beyond the model's frozen
    parameters."""
    frozen = () if layout.later is None else layout.later.frozen
    if len(bits) > -(-len(frozen) // 8) or int.from_bytes(bits, "little") >> len(frozen):
        raise ValueError("it names a frozen parameter that this model has not")
    number = int.from_bytes(bits, "little")
    return tuple(name for index, name in enumerate(frozen) if number >> index & 1)
