"""The counts of one server's records: the staleness of pushes (updates between a worker's pull and its push), and the
bytes of values by range and by sender."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ..transport import PeerId
from .keys import WIRE_INDEX, Keys
from .messages import Pull, Push

RANGES_MOST = 256
"""The most ranges that a record tells of: those with the most bytes. The others are counted together, as ""."""


class Traffic:
    """The counts of one server since its last record: the staleness of pushes, and bytes of values by range and by
    sender."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.staleness = Counter[int]()
        """By staleness, which is the number of updates between a worker's pull and its push, the number of pushes to a
        range that had it."""
        self.received = Counter[PeerId]()
        """By sender, the bytes of pushes from workers, and of updates from the server before this one in a chain."""
        self._pushed, self._pulled = _Bytes(keys), _Bytes(keys)

    def __bool__(self) -> bool:
        return bool(self._pushed or self._pulled)

    def push(self, worker: PeerId, push: Push, nbytes: int) -> None:
        """Count the bytes of a push of `worker`: those of its values by range, and `nbytes`, its payload, by sender.
        The caller adds its staleness to `staleness`."""
        self._pushed.add(push.ranges, push.rows, ids=True)
        self.received[worker] += nbytes

    def pull(self, question: Pull | Push, sizes: Sequence[int] = ()) -> None:
        """Count the bytes of the values with which this server answers `question`. `sizes`: of a filtered answer, by
        range."""
        if sizes:
            self._pulled.add_sizes(question.ranges, sizes)
            return
        self._pulled.add(question.ranges, question.rows if isinstance(question, Pull) else (), ids=False)

    @property
    def mean_staleness(self) -> float:
        """The mean staleness of the pushes; 0 where there were none."""
        count = self.staleness.total()
        return sum(staleness * many for staleness, many in self.staleness.items()) / count if count else 0.0

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """The counts for a record: "staleness", pushes by staleness; "pushed", "pulled": bytes of values by the range's
        name (`Keys.name`), of the 256 ranges with most; "": of all others."""
        pushed, pulled = self._pushed.by_range(), self._pulled.by_range()
        most = [number for number, _ in (pushed + pulled).most_common(RANGES_MOST)]
        staleness = {str(one): many for one, many in sorted(self.staleness.items())}
        return {"staleness": staleness, "pushed": self._named(pushed, most), "pulled": self._named(pulled, most)}

    def _named(self, counted: Counter[int], most: Sequence[int]) -> dict[str, int]:
        found = {self._keys.name(number): counted[number] for number in sorted(most) if counted[number]}
        rest = counted.total() - sum(found.values())
        return found | ({"": rest} if rest else {})

    def clear(self) -> None:
        """Set all counts to 0, after a record was written."""
        self.staleness.clear()
        self.received.clear()
        self._pushed, self._pulled = _Bytes(self._keys), _Bytes(self._keys)


class _Bytes:
    """Bytes of values by range. Messages about whole ranges of the vector, which are often about the same ones, are
    only counted: with many ranges, to add up each would take as long as to handle it."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._messages = Counter[tuple[int, ...]]()
        """By ranges of the vector, the messages about all elements of these."""
        self._others = Counter[int]()

    def __bool__(self) -> bool:
        return bool(self._messages or self._others)

    def add(self, ranges: tuple[int, ...], rows: Sequence[int], *, ids: bool) -> None:
        """Count a message. `rows`: of its header, none: no rows; `ids`: whether the numbers of rows are in it too."""
        if not any(rows):
            self._messages[ranges] += 1
            return
        for number, many in zip(ranges, rows, strict=True):
            block = self._keys.blocks.get(number)
            own = 0 if ids or block is None else many * WIRE_INDEX.itemsize
            self._others[number] += self._keys.piece_bytes(number, many) - own

    def add_sizes(self, ranges: Sequence[int], sizes: Sequence[int]) -> None:
        """Count a message with so many bytes of each range."""
        for number, nbytes in zip(ranges, sizes, strict=True):
            self._others[number] += nbytes

    def by_range(self) -> Counter[int]:
        """The bytes of each range."""
        found = Counter(self._others)
        for ranges, count in self._messages.items():
            for number in ranges:
                found[number] += count * self._keys.piece_bytes(number, 0)
        return found
