"""The totals of each peer over its own records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .records import ExchangeRecord, Record
from .result import PeerSummary

_SUMMED = (
    "bytes_sent", "bytes_received", "model_bytes", "bytes_shared", "compute_s", "wait_s", "evaluation_wait_s",
    "transfer_s", "hidden_s", "evaluate_s",
)  # fmt: skip
_PARTNERS_MOST = 256
"""The most peers from which the bytes that one peer received are counted separately."""


class Totals:
    """The totals of the records given to `update`, each peer's in order of time. `peers`: by name."""

    def __init__(self) -> None:
        self.peers: dict[str, PeerSummary] = {}
        self._stopped: set[str] = set()
        """The peers that were stopped after their last exchange: all their local steps are counted."""

    def update(self, record: Record) -> None:
        """Add a record to its peer's totals. The event of a stop tells the local steps after the last exchange, and the
        record of the next one has those with which the peer has gone on, too. Each counts once."""
        before = self.peers.get(record.peer) or nothing(record.peer)
        if isinstance(record, ExchangeRecord):
            known = record.steps_before if record.peer in self._stopped else 0
            self._stopped.discard(record.peer)
            self.peers[record.peer] = _added(before, record, known)
            return
        if record.event == "stopped" and not record.about:
            self._stopped.add(record.peer)
        self.peers[record.peer] = replace(
            before,
            role=record.role or before.role,
            steps=before.steps + record.steps,
            compute_s=before.compute_s + record.compute_s,
        )


def nothing(peer: str) -> PeerSummary:
    """The totals of a peer without an exchange: zeros, and NaN as its loss."""
    none: dict[str, Any] = dict.fromkeys(_SUMMED, 0)
    return PeerSummary(peer=peer, steps=0, exchanges=0, loss=math.nan, **none)


def _together(before: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    found = dict(before)
    for name, count in more.items():
        kept = name if name in found or len(found) < _PARTNERS_MOST else ""
        found[kept] = found.get(kept, 0) + count
    return found


def _added(before: PeerSummary, record: ExchangeRecord, known: int) -> PeerSummary:
    """The totals with those of a record. `known`: local steps of it that they have already."""
    taken = round(record.steps_per_s * record.compute_s) if record.compute_s > 0 else 0
    return replace(
        before,
        steps=before.steps + max(0, taken - known),
        exchanges=before.exchanges + (not record.caught_up),
        loss=before.loss if record.caught_up else record.loss,
        received_from=_together(before.received_from, record.received_from),
        **{name: getattr(before, name) + getattr(record, name) for name in _SUMMED},
    )
