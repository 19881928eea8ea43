"""The counts of one server's records: the staleness of pushes, and the bytes of values by range and by sender."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ..transport import PeerId
from .keys import Keys
from .messages import Pull, Push

RANGES_MOST = 256
"""The most ranges that a record tells of: those with the most bytes. The others are counted together, as ""."""


class Traffic:
    """What one server has counted since its last record."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.staleness = Counter[int]()
        """By staleness, which is the number of updates between a worker's pull and its push, the number of pushes to a
        range that had it."""
        self.received = Counter[PeerId]()
        """By sender, the bytes of pushes from workers, and of updates from the server before this one in a chain."""
        self._pushed, self._pulled = Counter[int](), Counter[int]()

    def __bool__(self) -> bool:
        return bool(self._pushed or self._pulled)

    def push(self, worker: PeerId, ranges: Sequence[int], rows: Sequence[int]) -> None:
        """Count a push of `worker` to these ranges. `rows`: of its header."""
        for number, many in zip(ranges, rows, strict=True):
            nbytes = self._keys.piece_bytes(number, many)
            self._pushed[number] += nbytes
            self.received[worker] += nbytes

    def pull(self, question: Pull | Push) -> None:
        """Count the values with which a question is answered."""
        rows = question.rows if isinstance(question, Pull) else (0,) * len(question.ranges)
        for number, many in zip(question.ranges, rows, strict=True):
            block = self._keys.blocks.get(number)
            elements = self._keys.size(number) if block is None else many * block.table.width
            self._pulled[number] += elements * self._keys.dtype.itemsize

    @property
    def mean_staleness(self) -> float:
        """The mean staleness of the pushes; 0 where there were none."""
        count = self.staleness.total()
        return sum(staleness * many for staleness, many in self.staleness.items()) / count if count else 0.0

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """The counts of a record, by name and key."""
        most = [number for number, _ in (self._pushed + self._pulled).most_common(RANGES_MOST)]
        staleness = {str(one): many for one, many in sorted(self.staleness.items())}
        return {
            "staleness": staleness,
            "pushed": self._named(self._pushed, most),
            "pulled": self._named(self._pulled, most),
        }

    def _named(self, counted: Counter[int], most: Sequence[int]) -> dict[str, int]:
        found = {self._keys.name(number): counted[number] for number in sorted(most) if counted[number]}
        rest = counted.total() - sum(found.values())
        return found | ({"": rest} if rest else {})

    def clear(self) -> None:
        """Begin to count anew: a record is written."""
        for counted in (self.staleness, self.received, self._pushed, self._pulled):
            counted.clear()
