"""Passes over a peer's data, whole and in fractions. A fraction needs the number of batches of a pass, which `len`
tells, or else the pass before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Passes:
    """One peer's passes since its present round began. Its place is the number of whole passes (`epoch`), and of the
    batches taken since (`batch`)."""

    def __init__(self) -> None:
        self._batches = 0
        """Batches in a pass; 0: unknown."""
        self._began = 0.0

    def has(self, data: Iterable[Any]) -> None:
        """A pass over `data` begins."""
        try:
            self._batches = len(data)  # type: ignore[arg-type]
        except (TypeError, NotImplementedError):  # a generator, or a DataLoader of one: as many as the last time
            return

    def ended(self, batches: int) -> None:
        """A pass is over that had so many batches."""
        self._batches = batches

    def begin(self, epoch: int, batch: int) -> None:
        """A round begins at this place."""
        self._began = self._at(epoch, batch)

    def since(self, epoch: int, batch: int) -> float:
        """Passes since the round began, at this place."""
        return max(0.0, self._at(epoch, batch) - self._began)

    def _at(self, epoch: int, batch: int) -> float:
        return epoch + (min(1.0, batch / self._batches) if self._batches else 0.0)

    def with_so_many(self, passes: float, epoch: int, batch: int) -> Passes:
        """Passes of which `passes` were made since the round began, at this place."""
        return Passes.from_plain([self._batches, passes], epoch, batch)

    def to_plain(self, epoch: int, batch: int) -> list[float]:
        """What `from_plain` takes, for a checkpoint at this place."""
        return [self._batches, self.since(epoch, batch)]

    @classmethod
    def from_plain(cls, plain: list[float] | None, epoch: int, batch: int) -> Passes:
        """The passes that `to_plain` wrote; None, in a checkpoint of before: none in this round."""
        made = cls()
        batches, passes = plain or (0, 0.0)
        made._batches = int(batches)
        made._began = made._at(epoch, batch) - passes
        return made
