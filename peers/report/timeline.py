"""The timeline of each peer: its exchanges laid out on the run's clock, each as four phases (`PHASES`).

The records hold the duration of each phase, not its start. An exchange's record is written at its end, so the phases
are laid out backwards from that time, at most to the previous record. Where transfer overlapped compute, the sum of the
phases exceeds the exchange. The phases are then drawn shorter in proportion, and the measured seconds are kept beside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Final

from ..records.records import ExchangeRecord

PHASES: Final = ("compute", "wait", "transfer", "evaluate")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """One exchange of one peer, or several in a row, on the clock of the run."""

    peer: str
    first: ExchangeRecord
    last: ExchangeRecord
    longest: ExchangeRecord
    """The exchange with the longest wait."""
    start_s: float
    end_s: float
    spent_s: tuple[float, ...]
    """Seconds of each of `PHASES`, as measured."""
    hidden_s: float
    """Seconds of averaging during which local steps went on. They are not drawn, as compute covers them."""

    def phases(self) -> Iterator[tuple[str, float, float, float]]:
        """For each phase that took time: its name, its start and its length as drawn, in seconds on the run's clock,
        and its measured seconds."""
        total = sum(self.spent_s)
        shrink = min(1.0, (self.end_s - self.start_s) / total) if total > 0 else 0.0
        start = self.start_s
        for name, spent in zip(PHASES, self.spent_s, strict=True):
            if spent * shrink > 0:
                yield name, start, spent * shrink, spent
                start += spent * shrink


def slots(exchanges: Iterable[ExchangeRecord], *, most: int | None = None) -> list[Slot]:
    """One slot for each exchange, peer by peer, each peer's in order of time. If these are more than `most`, successive
    exchanges of a peer are merged, so that at most `most` slots are left, but at least one for each peer. None: nothing
    is merged."""
    by_peer: dict[str, list[Slot]] = {}
    for record in exchanges:
        earlier = by_peer.setdefault(record.peer, [])
        earlier.append(_slot(record, earlier[-1].end_s if earlier else 0.0))
    count, end = sum(map(len, by_peer.values())), max((row[-1].end_s for row in by_peer.values()), default=0.0)
    if most is None or count <= most:
        return [slot for row in by_peer.values() for slot in row]
    bins = max(1, most // len(by_peer))
    return [slot for row in by_peer.values() for slot in _merged(row, end, bins)]


def _slot(record: ExchangeRecord, after_s: float) -> Slot:
    spent = tuple(max(0.0, getattr(record, f"{phase}_s")) for phase in PHASES)
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
    """Cut the time from 0 to `until_s` into `bins` equal spans, and merge the slots that end in the same span. A pause
    longer than a span remains a gap."""

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
