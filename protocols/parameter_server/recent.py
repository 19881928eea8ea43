"""Which elements of a range's values the last updates have changed, so that a worker that pulled before them is sent
only those.

Cost: 4 bytes for each changed element, and some for an update, together at most a quarter of the values' bytes (or
16 KiB, if that is more). Older updates are forgotten: a worker that pulled before them is sent the whole range.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from ...aggregation.rows import INDEX
from .keys import WIRE_INDEX

_SHARE, _BYTES_MIN = 4, 16 << 10
_ENTRY_BYTES = 256
"""About the memory of an update of which a single element is known."""


@dataclass(slots=True)
class Recent:
    """The elements of one range that changed after update `since`; those before it are not known."""

    since: int
    _changed: deque[tuple[int, Tensor]] = field(default_factory=deque)
    _nbytes: int = 0

    @classmethod
    def noted(cls, recent: Self | None, update: int, before: Tensor, after: Tensor) -> Self:
        """`recent`, or a new one if there is none, after an update with this number has changed the values [n] from
        `before` to `after`."""
        found = cls(update - 1) if recent is None else recent
        found._note(update, before, after)
        return found

    def _note(self, update: int, before: Tensor, after: Tensor) -> None:
        changed = (before != after).nonzero().flatten().to(WIRE_INDEX)
        if not len(changed):
            return
        self._changed.append((update, changed))
        self._nbytes += _ENTRY_BYTES + changed.nbytes
        while self._nbytes > max(after.nbytes // _SHARE, _BYTES_MIN):
            self.since, dropped = self._changed.popleft()
            self._nbytes -= _ENTRY_BYTES + dropped.nbytes

    def changed(self, update: int) -> Tensor | None:
        """The numbers [k] of the elements that changed after the update with this number, int64, ascending; None: not
        known."""
        if update < self.since:
            return None
        found = [ids for number, ids in self._changed if number > update]
        return torch.cat(found).to(INDEX).unique() if found else torch.empty(0, dtype=INDEX)
