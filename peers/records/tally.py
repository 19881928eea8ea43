"""Running totals over the records of a run, in constant memory for each peer."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from .columns import Noun
from .comers import Comers
from .elsewhere import Elsewhere
from .losses import Losses
from .records import EventRecord, ExchangeRecord, Record
from .result import Lost, PeerSummary
from .run import Run, natural
from .totals import Totals

_SAVED = re.compile(r"(?:round|exchange) (\d{1,18})")
"""The text by which a checkpoint's event names its exchange."""


class Tally:
    """Totals of the records given to `update` in order of time. `records`: how many of them are certainly in the record
    files."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.records = self.exchanges = 0
        self.noun: Noun = "round"
        """The word for an exchange in texts about this run."""
        self.saved: int | None = None
        """Number of the latest exchange with a checkpoint; None: there is no checkpoint."""
        self._totals = Totals()
        self._losses = Losses()
        self.metrics: Mapping[str, float] = {}
        """Metrics of the latest evaluated model, by name; empty: none was evaluated."""
        self.scales: Mapping[str, str] = {}
        """Scales of all metrics, by name (`metrics`)."""
        self.metrics_at: int | None = None
        """Number of the exchange that gave that model."""
        self.metrics_of = ""
        """As in `Result`."""
        self._last: dict[str, ExchangeRecord] = {}
        """Peer -> the latest record of the last exchange in which it took part."""
        self._comers = Comers()
        for record in records:
            self.update(record)

    def update(self, record: Record) -> None:
        """Add a record to the totals."""
        restarted = isinstance(record, EventRecord) and record.event == "restarted"
        self.records += not restarted  # it is written only with the new life's first record, which may never come
        self._totals.update(record)
        if isinstance(record, EventRecord):
            self._comers.follow(record, alone={*self._totals.peers} == {record.peer})
            self._losses.update(record)
        else:
            self._comers.were_in(record, of_server=bool(self._totals.peers[record.peer].role))
        if isinstance(record, ExchangeRecord):
            self.exchanges, self.noun = max(self.exchanges, record.version), record.noun
            if record.metrics and (at := record.measured_at) >= (self.metrics_at or 0):
                same, self.scales = at == self.metrics_at, {**self.scales, **record.metric_scales}
                if record.measured_own or self.metrics_of or (same and not alike(self.metrics, record.metrics)):
                    self.metrics_of = record.peer
                self.metrics, self.metrics_at = {**(self.metrics if same else {}), **record.metrics}, at
            if not record.caught_up:
                self._last[record.peer] = max(self._last.get(record.peer, record), record, key=_place)
        elif record.event == "checkpoint" and (saved := _SAVED.fullmatch(record.why)):
            self.saved = max(self.saved or 0, int(saved[1]))

    @property
    def own_models(self) -> bool:
        """Whether the peers agree on no model, and each has its own."""
        return any(record.own_model for record in self._last.values())

    def last_of(self, peer: str) -> int:
        """The number of the last exchange of the peer with this name; of all, if none is recorded of such a peer."""
        last = self._last.get(peer)
        return self.exchanges if last is None else last.version

    @property
    def elsewhere(self) -> tuple[Elsewhere, ...]:
        """The peers that others saw join or found there, and that have no records of their own, in natural order of
        their names."""
        return self._comers.told(but=self._totals.peers.keys())

    @property
    def loss(self) -> float:
        """The training loss of the last round. Where exchanges are not rounds, the mean of the peers' last losses,
        without those of lost peers, which are of old models, unless all are lost. NaN before there is one."""
        if self.noun == "round":
            return max(self._last.values(), key=_place).loss if self._last else math.nan
        losses = {name: peer.loss for name, peer in self._totals.peers.items() if math.isfinite(peer.loss)}
        gone = {one.peer for one in self.lost if not one.back}
        present = [loss for name, loss in losses.items() if name not in gone]
        return fmean(present or losses.values()) if losses else math.nan

    @property
    def lost(self) -> tuple[Lost, ...]:
        """Every lost peer, also one that is back, with the earliest record of its last loss, in order of time."""
        return self._losses.lost

    @property
    def peers(self) -> dict[str, PeerSummary]:
        """Each peer's totals, from its own records, in natural order of the names."""
        return {name: self._totals.peers[name] for name in sorted(self._totals.peers, key=natural)}


def _place(record: ExchangeRecord) -> tuple[int, float]:
    return record.version, record.time_s


def tally_of(run: Run) -> Tally:
    """The totals of all records of a run."""
    return Tally(sorted((*run.events, *run.exchanges), key=lambda record: record.time_s))


def elsewhere_in(run: Run) -> tuple[Elsewhere, ...]:
    """The peers elsewhere, by the run's result; by its records if it has none, as when it was killed. None in a
    simulation."""
    if run.result is not None:
        return run.result.elsewhere
    return () if run.scene else tally_of(run).elsewhere


def alike(metrics: Mapping[str, float], others: Mapping[str, float]) -> bool:
    """Whether the metrics that both mappings have are equal; NaN counts as equal to NaN."""
    return all(repr(metrics[name]) == repr(others[name]) for name in metrics.keys() & others.keys())


def of_servers(peers: Sequence[PeerSummary]) -> bool:
    """Whether these are servers alone, at least one. Losses and metrics are then in the folders of their workers."""
    return bool(peers) and all(peer.role for peer in peers)


def told_by(measured: Sequence[tuple[str, Mapping[str, float]]], *, own_models: bool) -> str:
    """The value of `Result.metrics_of` for a result that has the metrics of the last of these peers, given as (name,
    its metrics): that peer's name if each has a model of its own (`own_models`), or another one has another value of a
    metric; else ""."""
    name, last = measured[-1] if measured else ("", {})
    return "" if all(alike(metrics, last) for _, metrics in measured) and not own_models else name


def saved_text(version: int, noun: Noun = "round") -> str:
    """'round 12': the text by which a checkpoint's event names its exchange."""
    return f"{noun} {version}"
