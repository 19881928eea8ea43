"""What the records of a run add up to, taken in one by one: a few numbers, however long it goes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from .records import EventRecord, Lost, PeerSummary, Record, RoundRecord, natural

_SUMMED = (
    "bytes_sent", "bytes_received", "bytes_shared", "compute_s", "wait_s", "transfer_s", "hidden_s",
)  # fmt: skip
_SAVED = "round "


class Tally:
    """Of the records that it is told of; `records`: how many."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.records = self.rounds = 0
        self.saved: int | None = None
        """The furthest round of which there is a checkpoint."""
        self._peers: dict[str, PeerSummary] = {}
        self._lost: dict[str, Lost] = {}
        self._accuracy: tuple[float, float | None] = (-math.inf, None)
        """When it was told last, and what; so is the round that was averaged last, with its loss."""
        self._last = (0, -math.inf, math.nan)
        for record in records:
            self.update(record)

    def update(self, record: Record) -> None:
        """Take in what a peer tells."""
        self.records += 1
        before = self._peers.get(record.peer) or nothing(record.peer)
        self._peers[record.peer] = before if isinstance(record, EventRecord) else _added(before, record)
        if isinstance(record, RoundRecord):
            self.rounds = max(self.rounds, record.round)
            if record.accuracy is not None and record.time_s >= self._accuracy[0]:
                self._accuracy = (record.time_s, record.accuracy)
            if not record.caught_up and (record.round, record.time_s) > self._last[:2]:
                self._last = (record.round, record.time_s, record.loss)
        elif record.event == "checkpoint" and record.why.startswith(_SAVED):
            self.saved = max(self.saved or 0, int(record.why.removeprefix(_SAVED)))
        elif record.event == "lost":
            known = self._lost.get(record.subject)
            if known is None or record.time_s < known.when:
                self._lost[record.subject] = Lost(peer=record.subject, when=record.time_s, why=record.why)

    @property
    def accuracy(self) -> float | None:
        """What was evaluated last; None: nobody has."""
        return self._accuracy[1]

    @property
    def loss(self) -> float:
        """Of the last round; NaN where there was none."""
        return self._last[2]

    @property
    def lost(self) -> tuple[Lost, ...]:
        """Every peer that was lost, as the first who missed it told; by time."""
        return tuple(sorted(self._lost.values(), key=lambda lost: lost.when))

    @property
    def peers(self) -> dict[str, PeerSummary]:
        """What each did, by its own records, in natural order of their names."""
        return {name: self._peers[name] for name in sorted(self._peers, key=natural)}


def saved_text(round_: int) -> str:
    """How a checkpoint's event tells of which round it is."""
    return f"{_SAVED}{round_}"


def nothing(peer: str) -> PeerSummary:
    """Of a peer that has made no round."""
    none = dict.fromkeys(_SUMMED, 0)
    return PeerSummary(peer=peer, steps=0, rounds=0, loss=math.nan, **none)


def _added(before: PeerSummary, record: RoundRecord) -> PeerSummary:
    return replace(
        before,
        steps=before.steps + (round(record.steps_per_s * record.compute_s) if record.compute_s > 0 else 0),
        rounds=before.rounds + (not record.caught_up),
        loss=before.loss if record.caught_up else record.loss,
        **{name: getattr(before, name) + getattr(record, name) for name in _SUMMED},
    )
