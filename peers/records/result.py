"""The result of a run, which a command prints with `--json` and writes to `result.json`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from .columns import ACCURACY, Noun
from .elsewhere import Elsewhere
from .json_lines import FloatOrNaN, build, line
from .records import SCHEMA, check_schema


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PeerSummary:
    """One peer's totals for the run: local steps, bytes on the wire, bytes shared, and seconds."""

    peer: str
    steps: int
    exchanges: int
    bytes_sent: int
    bytes_received: int
    bytes_shared: int = 0
    compute_s: float
    wait_s: float
    transfer_s: float
    hidden_s: float = 0.0
    """Seconds of exchanges during which local steps went on."""
    evaluation_wait_s: float = 0.0
    """Seconds of `wait_s` during which the awaited peer was evaluating."""
    evaluate_s: float = 0.0
    """Seconds of evaluating."""
    loss: FloatOrNaN
    """Training loss of its last exchange."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """A member that was lost: it went silent without leaving."""

    peer: str
    when: float
    """Seconds since the run started."""
    why: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The result of a run: its metrics, the totals of its peers, its lost peers, and the paths of its files."""

    metrics: Mapping[str, FloatOrNaN] = dataclasses.field(default_factory=dict)
    """Metrics of the latest evaluated model, by name; empty when none was evaluated. The first is the headline."""
    metric_scales: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """As in the records (`ExchangeRecord.metric_scales`)."""
    metrics_at: int | None = None
    """Number of the exchange that gave this model."""
    loss: FloatOrNaN
    wall_s: float
    """Wall-clock seconds of the run, including the time before it was resumed."""
    noun: Noun = "round"
    """The word for an exchange in texts about this run."""
    exchanges: int
    peers: tuple[PeerSummary, ...] = ()
    lost: tuple[Lost, ...] = ()
    elsewhere: tuple[Elsewhere, ...] = ()
    run: str
    """The run folder."""
    report: str | None = None
    """Path of the report; None when there is none."""
    virtual_s: float | None = None
    """Simulations only: seconds that passed in the simulated world."""
    digest: str | None = None
    """Simulations only: a digest of the events, equal for equal seeds."""
    broken: str | None = None
    """Simulations only: the promise that did not hold, and how."""

    def to_json(self) -> str:
        """One line, without the newline. The fields of simulations are omitted for a real run. The number of exchanges
        has the key `rounds` or `exchanges`, by the word for an exchange in this run."""
        row = {"schema": SCHEMA} | _renamed(dataclasses.asdict(self), "exchanges", f"{self.noun}s")
        if self.noun == "round":  # as in schema 1, which scripts of users may read
            row |= {ACCURACY: self.metrics.get(ACCURACY), "accuracy_round": self.metrics_at}
        for key in ("virtual_s", "digest", "broken"):
            if row[key] is None:
                del row[key]
        return line(row)


def result_of(row: Mapping[str, Any], place: str) -> Result:
    """The result in a row of `to_json`, in schema 1 or 2. Raises a ValueError of one line that names `place`."""
    check_schema(row, place)
    if "metrics" not in row:
        metrics = {} if row.get(ACCURACY) is None else {ACCURACY: row[ACCURACY]}
        row = {**row, "metrics": metrics, "metrics_at": row.get("accuracy_round")}
    return build(Result, _renamed(row, "rounds", "exchanges"), place)


def _renamed(row: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """The row with the key `old` renamed to `new`, also in the rows of its peers."""
    renamed = {new if key == old else key: value for key, value in row.items()}
    for key in ("peers", "elsewhere"):
        if isinstance(peers := row.get(key), list | tuple):
            renamed[key] = [_renamed(peer, old, new) if isinstance(peer, dict) else peer for peer in peers]
    return renamed
