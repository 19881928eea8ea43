"""Running totals over the records of a run, in constant memory for each peer."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from .elsewhere import Elsewhere
from .records import EventRecord, Lost, PeerSummary, Record, RoundRecord, natural

_SUMMED = (
    "bytes_sent", "bytes_received", "bytes_shared", "compute_s", "wait_s", "evaluation_wait_s", "transfer_s",
    "hidden_s", "evaluate_s",
)  # fmt: skip
_SAVED = "round "


class _Comer:
    """A peer that others saw join, as first recorded."""

    def __init__(self, joined: EventRecord) -> None:
        self.joined, self.since, self.rounds = joined, joined.generation, 0
        self.gone: EventRecord | None = None

    def was_in(self, generation: int) -> bool:
        return self.since <= generation and (self.gone is None or generation < self.gone.generation)

    def told(self) -> Elsewhere:
        known = Elsewhere(peer=self.joined.subject, rounds=self.rounds, joined_s=self.joined.time_s)
        if self.gone is None:
            return known
        return replace(known, gone=self.gone.event, gone_s=self.gone.time_s, why=self.gone.why)


class Tally:
    """Totals of the records given to `update` in order of time. `records`: how many of these are surely in the
    files."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.records = self.rounds = 0
        self.saved: int | None = None
        """The latest round with a checkpoint."""
        self._peers: dict[str, PeerSummary] = {}
        self._lost: dict[str, Lost] = {}
        self.accuracy: float | None = None
        """Accuracy of the latest evaluated model; None: none was evaluated."""
        self.accuracy_round: int | None = None
        """The round of that model."""
        self._last = (0, -math.inf, math.nan)
        """The last averaged round, the time of its latest record, and its loss."""
        self._came: dict[str, _Comer] = {}
        for record in records:
            self.update(record)

    def update(self, record: Record) -> None:
        """Add a record."""
        restarted = isinstance(record, EventRecord) and record.event == "restarted"
        self.records += not restarted  # it is written only with the new life's first record, which may never come
        before = self._peers.get(record.peer) or nothing(record.peer)
        self._peers[record.peer] = before if isinstance(record, EventRecord) else _added(before, record)
        if isinstance(record, EventRecord):
            self._follow(record)
        elif record.round > self.rounds and not record.caught_up:
            for comer in self._came.values():
                comer.rounds += comer.was_in(record.generation)
        if isinstance(record, RoundRecord):
            self.rounds = max(self.rounds, record.round)
            if record.accuracy is not None and record.round >= (self.accuracy_round or 0):
                self.accuracy, self.accuracy_round = record.accuracy, record.round
            if not record.caught_up and (record.round, record.time_s) > self._last[:2]:
                self._last = (record.round, record.time_s, record.loss)
        elif record.event == "checkpoint" and record.why.startswith(_SAVED):
            self.saved = max(self.saved or 0, int(record.why.removeprefix(_SAVED)))
        elif record.event == "lost":
            known = self._lost.get(record.subject)
            if known is None or record.time_s < known.when:
                self._lost[record.subject] = Lost(peer=record.subject, when=record.time_s, why=record.why)

    def _follow(self, event: EventRecord) -> None:
        comer = self._came.get(event.subject)
        if event.event == "joined" and event.about:
            if comer is None:
                self._came[event.about] = _Comer(event)
            elif comer.gone is not None and event.generation > comer.gone.generation:
                comer.since, comer.gone = event.generation, None
        elif event.event in ("left", "lost") and comer is not None and comer.gone is None:
            comer.gone = event if event.generation > comer.since else None

    @property
    def elsewhere(self) -> tuple[Elsewhere, ...]:
        """Peers that others saw join, and of which there are no records, in natural order of their names."""
        names = sorted(self._came.keys() - self._peers.keys(), key=natural)
        return tuple(self._came[name].told() for name in names)

    @property
    def loss(self) -> float:
        """The loss of the last round; NaN before there is one."""
        return self._last[2]

    @property
    def lost(self) -> tuple[Lost, ...]:
        """Every lost peer, by its earliest record; in order of time."""
        return tuple(sorted(self._lost.values(), key=lambda lost: lost.when))

    @property
    def peers(self) -> dict[str, PeerSummary]:
        """Each peer's totals by its own records, in natural order of their names."""
        return {name: self._peers[name] for name in sorted(self._peers, key=natural)}


def saved_text(round_: int) -> str:
    """The text by which a checkpoint's event names its round."""
    return f"{_SAVED}{round_}"


def nothing(peer: str) -> PeerSummary:
    """The totals of a peer without a round."""
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
