"""The elements of a range's values that the last updates have changed: a worker that pulled before them is sent only
those.

Cost: 4 bytes for each changed element, and some for an update, together at most a quarter of the values' bytes (or
16 KiB, if that is more). Older updates are forgotten: a worker that pulled before them is sent the whole range.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol

import torch
from torch import Tensor

from ...aggregation.rows import INDEX
from .keys import WIRE_INDEX

_SHARE, _BYTES_MIN = 4, 16 << 10
NONE = torch.empty(0, dtype=INDEX)
"""The numbers of no elements, int64 [0]."""
_ENTRY_BYTES = 256
"""About the memory of an update of which a single element is known."""


@dataclass(slots=True)
class Recent:
    """The elements of one range that changed after update `since`; those before it are not known."""

    since: int
    _changed: deque[tuple[int, Tensor]] = field(default_factory=deque)
    _nbytes: int = 0

    def add(self, update: int, changed: Tensor, start: int, nbytes_max: int) -> None:
        """Note that the update with this number has changed the elements `changed` - `start`, int32 [k], ascending, k
        at least 1. Forget the oldest updates where all take more than `nbytes_max`."""
        if (own := _ENTRY_BYTES + changed.nbytes) > nbytes_max:
            self._changed.clear()
            self.since, self._nbytes = update, 0
            return
        self._changed.append((update, changed - start))  # a part of `changed` would keep the memory of all
        self._nbytes += own
        while self._nbytes > nbytes_max:
            self.since, dropped = self._changed.popleft()
            self._nbytes -= _ENTRY_BYTES + dropped.nbytes

    def changed(self, update: int) -> Tensor | None:
        """The numbers [k] of the elements that changed after the update with this number, int64, ascending; None: not
        known."""
        if update < self.since:
            return None
        found = [ids for number, ids in self._changed if number > update]
        if not found:
            return NONE
        every = torch.cat(found).to(INDEX)
        if len(found) == 1:
            return every
        unique: Tensor = every.unique()
        return unique


class Noted(Protocol):
    """A copy of a range: its values [n], the number of their updates, and the elements that the last ones changed."""

    values: Tensor
    updates: int
    recent: Recent | None


def note(copies: Sequence[Noted], before: Tensor, after: Tensor) -> None:
    """Note in each of `copies` the elements that its next update changes, from `before` to `after`, which have the
    elements of all copies one behind the other. They are compared by one operation: with many ranges one for each
    costs more than the update."""
    changed, starts = (before != after).nonzero().flatten(), [0, *accumulate(len(copy.values) for copy in copies)]
    until = torch.searchsorted(changed, torch.tensor(starts[1:]))
    counts = until.diff(prepend=until.new_zeros(1)).tolist()
    parts = torch.split(changed.to(WIRE_INDEX), counts)
    for copy, ids, start in zip(copies, parts, starts[:-1], strict=True):
        if copy.recent is None:
            copy.recent = Recent(copy.updates)
        if len(ids):
            copy.recent.add(copy.updates + 1, ids, start, max(copy.values.nbytes // _SHARE, _BYTES_MIN))
