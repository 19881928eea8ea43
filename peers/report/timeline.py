"""The time of each peer: rounds laid out on the clock as compute, waiting, transfer, evaluation.

The records hold the duration of each part, not its start. A round's record is written at its end, so its parts are laid
out backwards from there, never beyond the previous record. Where transfer overlapped compute, the sum of the parts
exceeds the round: the parts are then drawn shorter in proportion, and the measured seconds are kept beside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Final

from ..records.records import RoundRecord

PARTS: Final = ("compute", "wait", "transfer", "evaluate")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """One round of one peer, or several in a row, on the clock of the run."""

    peer: str
    first: RoundRecord
    last: RoundRecord
    longest: RoundRecord
    """The round with the longest wait."""
    start_s: float
    end_s: float
    spent_s: tuple[float, ...]
    """Seconds of each of `PARTS`, as measured."""
    hidden_s: float
    """Seconds of averaging behind local steps, which take no place of their own."""

    def parts(self) -> Iterator[tuple[str, float, float, float]]:
        """For each part that took time: its name, its position on the clock (start, length) and its measured
        seconds."""
        total = sum(self.spent_s)
        shrink = min(1.0, (self.end_s - self.start_s) / total) if total > 0 else 0.0
        start = self.start_s
        for name, spent in zip(PARTS, self.spent_s, strict=True):
            if spent * shrink > 0:
                yield name, start, spent * shrink, spent
                start += spent * shrink


def slots(rounds: Iterable[RoundRecord], *, most: int | None = None) -> list[Slot]:
    """One slot for each round, peer by peer; rounds are merged where there would be more than `most` slots."""
    by_peer: dict[str, list[Slot]] = {}
    for record in rounds:
        earlier = by_peer.setdefault(record.peer, [])
        earlier.append(_slot(record, earlier[-1].end_s if earlier else 0.0))
    count, end = sum(map(len, by_peer.values())), max((row[-1].end_s for row in by_peer.values()), default=0.0)
    if most is None or count <= most:
        return [slot for row in by_peer.values() for slot in row]
    bins = max(1, most // len(by_peer))
    return [slot for row in by_peer.values() for slot in _merged(row, end, bins)]


def _slot(record: RoundRecord, after_s: float) -> Slot:
    spent = tuple(max(0.0, getattr(record, f"{part}_s")) for part in PARTS)
    end = max(after_s, record.time_s)
    return Slot(
        peer=record.peer,
        first=record,
        last=record,
        longest=record,
        start_s=max(after_s, end - sum(spent)),
        end_s=end,
        spent_s=spent,
        hidden_s=max(0.0, record.hidden_s),
    )


def _merged(row: list[Slot], until_s: float, bins: int) -> Iterator[Slot]:
    """Merge the slots that end in the same of `bins` spans of time; a pause longer than a span remains a gap."""

    def stretch(slot: Slot) -> int:
        return min(bins - 1, int(slot.end_s / until_s * bins)) if until_s > 0 else 0

    group = row[0]
    for slot in row[1:]:
        if stretch(slot) != stretch(group):
            yield group
            group = slot
            continue
        group = dataclasses.replace(
            group,
            last=slot.last,
            longest=max(group.longest, slot.longest, key=lambda record: record.wait_s),
            end_s=slot.end_s,
            spent_s=tuple(ours + theirs for ours, theirs in zip(group.spent_s, slot.spent_s, strict=True)),
            hidden_s=group.hidden_s + slot.hidden_s,
        )
    yield group
