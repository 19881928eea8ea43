"""A peer's place in its data, and the number of passes over the data that it has made in a round, with the fraction of
the present pass. The fraction needs the number of batches of a pass: `len` of the data tells it, or else the previous
pass; until it is known the fraction counts as 0."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Passes:
    """The place in the data. `epoch`: the number of finished passes; `batch`: batches taken in the present pass, which
    the owner counts."""

    def __init__(self, epoch: int = 0) -> None:
        self.epoch, self.batch = epoch, 0
        self._batches = 0
        """Batches in a pass; 0: unknown."""
        self._began = 0.0

    def begin(self, data: Iterable[Any]) -> None:
        """Note that a pass over `data` begins, which has ``len(data)`` batches if that is known, else as many as the
        pass before."""
        try:
            self._batches = len(data)  # type: ignore[arg-type]
        except (TypeError, NotImplementedError):  # a generator, or a DataLoader of one: as many as the last time
            return

    def end(self) -> None:
        """Note that the pass is over, after `batch` batches, and that the next one has taken none."""
        self._batches, self.epoch, self.batch = self.batch, self.epoch + 1, 0

    def begin_round(self) -> None:
        """Note that a round begins: `in_round` becomes 0."""
        self._began = self._at

    @property
    def in_round(self) -> float:
        """Passes over the data since the round began, with the fraction of the present one if the number of its batches
        is known."""
        return max(0.0, self._at - self._began)

    @in_round.setter
    def in_round(self, passes: float) -> None:
        """Set the number of passes since the round began: it moves the round's beginning."""
        self._began = self._at - passes

    @property
    def _at(self) -> float:
        return self.epoch + (min(1.0, self.batch / self._batches) if self._batches else 0.0)

    def to_plain(self) -> list[float]:
        """Two numbers for a checkpoint, for `restore`: the batches in a pass, 0: unknown; and the passes since the
        round began. The owner saves `epoch` and `batch` itself."""
        return [self._batches, self.in_round]

    def restore(self, plain: list[float] | None) -> None:
        """Continue from the numbers of `to_plain`. None, as in checkpoints of earlier versions: the round has no pass
        so far. Beforehand `epoch` and `batch` must have their values of that time."""
        batches, passes = plain or (0, 0.0)
        self._batches = int(batches) or self._batches
        self.in_round = passes
