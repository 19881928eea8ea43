"""A worker's reading: the values of one pull, as they come from the servers in messages of some ranges each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...aggregation.rows import Rows
from ..channel import Envelope
from ..link.link import PeerLost
from ..transfer.elements import of_bytes, raw
from ..transport import PeerId
from ..work import Begin, Load
from .keys import Keys
from .messages import Pulled
from .parcels import Parcels
from .patches import patched
from .placement import merged
from .shares import Pushes, Shares


@dataclass(frozen=True, slots=True)
class Values:
    """The result of a pull: the `vector` [n], by table the `rows` that were asked for, and by range its number of
    `updates` and the pulling worker's `clocks`, of which `clock` is the highest. `term`: the generation of the view in
    which they were pulled, of several the first. `late`: the worker for whose push the servers waited last; "": for
    none."""

    vector: Tensor
    rows: Mapping[str, Rows]
    updates: tuple[int, ...]
    clocks: tuple[int, ...]
    term: int
    late: PeerId

    @property
    def clock(self) -> int:
        """The highest of `clocks`."""
        return max(self.clocks)

    def with_rows(self, begin: Begin) -> Begin:
        """`begin` with the pulled rows beside its vector, if it is a `Load` and rows were pulled. Otherwise `begin`
        itself, the very object, which the replica may know already."""
        return replace(begin, rows=self.rows) if self.rows and isinstance(begin, Load) else begin


@dataclass(frozen=True, slots=True)
class Held:
    """The values that a worker holds from its last filtered pull: the `vector` [n] (None: nothing yet), by range its
    number of `updates`, and the `term` (`Values`)."""

    vector: Tensor | None = None
    updates: tuple[int, ...] = ()
    term: int = 0

    def told(self, ranges: Sequence[int]) -> tuple[int, ...]:
        """By range, the number for `Pull.held`: 1 + the number of updates of the values held, 0 where none are."""
        return (0,) * len(ranges) if self.vector is None else tuple([1 + self.updates[number] for number in ranges])


class Reading:
    """The values read so far of the ranges `keys`, and of the rows `shares`. Their bytes are added to `received`, by
    server. `parcels`: those of this worker. `held`: what it holds, for a filtered pull; None: the pull is not
    filtered."""

    def __init__(
        self, keys: Keys, shares: Shares, received: Counter[PeerId], parcels: Parcels, held: Held | None = None
    ) -> None:
        self._keys, self._shares, self._received, self._parcels, self._held = keys, shares, received, parcels, held
        self._found: Pushes | None = None
        self._updates, self._clocks, self._late = [0] * len(keys), [0] * len(keys), ""
        self._term: int | None = None

    def take(self, answer: Envelope, ranges: Sequence[int], term: int) -> Pulled:
        """Store the values of `ranges` from `answer`, which was asked for in the view `term`, give its credit back, and
        return its message. Raises PeerLost when it has not exactly as many bytes and numbers as these ranges need, or
        was overwritten in shared memory."""
        pulled: Pulled = answer.message
        parcel = self._parcels.find(answer.sender, pulled.parcel) if pulled.parcel else None
        dtype = torch.uint8 if pulled.forms else self._keys.dtype
        values = of_bytes(answer.payload, dtype) if parcel is None else parcel.payload
        whole, nbytes = sum(map(self._shares.size, ranges)) * self._keys.dtype.itemsize, values.nbytes
        due = nbytes if pulled.forms else whole  # `patched` finds out how many a patch needs
        try:
            if nbytes != due or {len(pulled.updates), len(pulled.clocks)} != {len(ranges)}:
                raise PeerLost(answer.sender, f"it gave {nbytes} bytes of {due} in {len(ranges)} ranges")
            if pulled.forms:
                self._patch(answer.sender, pulled.forms, values, ranges)
            else:
                self._put(values.view(self._keys.dtype), ranges, lent=parcel is not None)
            if parcel is not None and not parcel.lent.intact:
                raise PeerLost(answer.sender, "it has written over its answer")
        finally:
            answer.done()
            if pulled.parcel:
                self._parcels.took(answer.sender, pulled.parcel, nbytes)
        self._received[answer.sender] += nbytes
        for number, update, clock in zip(ranges, pulled.updates, pulled.clocks, strict=True):
            self._updates[number], self._clocks[number] = update, clock
        self._late, self._term = pulled.late or self._late, term if self._term is None else min(term, self._term)
        return pulled

    def _patch(self, server: PeerId, forms: Sequence[int], payload: Tensor, ranges: Sequence[int]) -> None:
        """Make the values of `ranges` of those that the worker holds and of a patch. If an answer before could not be
        used, this one begins anew."""
        if self._held is None:
            raise PeerLost(server, "it has filtered an answer that was to be whole")
        if self._found is None:
            self._found = self._shares.blank()
        before, blocks = self._held.vector, self._keys.blocks
        if before is not None:
            for part in merged(self._keys.parts[one] for one in ranges if one not in blocks):
                self._found.vector[part.start : part.stop] = before[part.start : part.stop]
        held = before is not None
        try:
            patched(self._keys, self._shares, ranges, forms, raw([payload]), self._found, held=held)
        except ValueError as wrong:
            raise PeerLost(server, f"its answer cannot be used: {wrong}") from None

    def _put(self, values: Tensor, ranges: Sequence[int], *, lent: bool) -> None:
        """`lent`: the values are in memory of the server."""
        if not lent and len(ranges) == len(self._keys) == len(self._keys.parts):  # all there is: nothing is copied
            self._found = Pushes(values, {})
            return
        if self._found is None:
            self._found = self._shares.blank()
        self._shares.put(values, ranges, self._found)

    def values(self) -> Values:
        """The result, once all ranges are read."""
        found = self._found or self._shares.blank()
        numbers = tuple(self._updates), tuple(self._clocks), self._term or 0
        return Values(found.vector, found.rows, *numbers, self._late)
