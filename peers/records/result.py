"""The result of a run, which a command prints with `--json` and writes to `result.json`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from .columns import ACCURACY, Noun
from .consensus import Consensus
from .elsewhere import Elsewhere
from .json_lines import FloatOrNaN, build, line
from .records import SCHEMA, check_schema


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PeerSummary:
    """One peer's totals over the run: local steps, exchanges, bytes sent and received over the network, bytes exchanged
    through shared memory, and the seconds that it spent computing, waiting, transferring and evaluating."""

    peer: str
    """Its name."""
    steps: int
    """Local steps that it took, also those that it took again after a resume: with `--overlap` a peer that is stopped
    may be ahead of the model that is saved. Those after its last exchange are counted, as is their time in `compute_s`,
    where a peer was stopped by its user, and not where it was lost or has failed."""
    exchanges: int
    """Number of exchanges in which it took part."""
    bytes_sent: int
    """Bytes sent over the network, packet headers included."""
    bytes_received: int
    """Bytes received over the network, packet headers included."""
    model_bytes: int = 0
    """Bytes of the model that it averaged with others, in all exchanges together, before a codec makes them fewer."""
    bytes_shared: int = 0
    """Bytes exchanged through shared memory."""
    received_from: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Bytes of models that came from each peer, by its name, as a codec encoded them; "": from all further ones, beyond
    the first 256. Empty: none, or the conversation does not report it."""
    compute_s: float
    """Seconds of local steps."""
    wait_s: float
    """Seconds of waiting for others."""
    transfer_s: float
    """The remaining seconds of exchanges."""
    hidden_s: float = 0.0
    """Seconds of exchanges during which local steps went on."""
    evaluation_wait_s: float = 0.0
    """Seconds of `wait_s` during which the awaited peer was evaluating."""
    evaluate_s: float = 0.0
    """Seconds of evaluating."""
    loss: FloatOrNaN
    """Training loss of the last exchange in which it took part."""
    role: str = ""
    """Its role in the run: 'server', which takes no steps; empty: it trains."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """A peer that was lost. The others removed it without its having left, e.g. because it went silent; or its process,
    begun by this run's launcher, ended by a signal or an error before it had finished, even if it had left; or this is
    the folder of a peer that joined, and an earlier process of this peer ended in such a way."""

    peer: str
    """Its name."""
    when: float
    """When it was lost the last time: when that was recorded, or, if known and earlier, when its process ended; of an
    earlier process of the peer whose folder this is, the time of its last record. In seconds since the run started."""
    why: str
    """The reason, as far as it is known."""
    back: bool = False
    """Whether it took part again afterwards."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Best:
    """The best of the evaluated models."""

    metric: str
    """The metric by which it is the best."""
    value: FloatOrNaN
    """Its value."""
    at: int
    """Number of the exchange that gave this model."""
    file: str
    """Path of its checkpoint."""
    of: str = ""
    """The peer whose model it is; empty: the peers had one model."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The result of a run: its metrics, the totals of its peers, its lost peers, and the paths of its files."""

    metrics: Mapping[str, FloatOrNaN] = dataclasses.field(default_factory=dict)
    """Metrics of the latest evaluated model, by name; empty when none was evaluated. The first is the headline."""
    metric_scales: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Scales of these metrics, by name, as the task declares them: "lower" or "higher", whichever is better, then the
    unit. Empty text: not declared."""
    metrics_at: int | None = None
    """Number of the exchange that gave this model, of the peer in `metrics_of` if it names one. Of metrics that a
    training script reported amid a round: the last exchange before."""
    metrics_of: str = ""
    """The peer that reported these metrics, where each peer has a model of its own, as a training script amid a round,
    or peers reported different ones of the same exchange; empty: there is one model."""
    best: Best | None = None
    """The best evaluated model by the task's headline metric, of those that could be written. None: no model was
    evaluated, the task does not say which values are better, or the run writes no checkpoints, as that of a script or a
    simulation."""
    ended_by: str | None = None
    """The setting that ended the run, e.g. "steps"; None: no peer with records here reports one. `ended_why` then says
    that the user stopped the run, that its scripts or, for a folder of servers alone, its workers have ended it, or
    that the run has no result."""
    ended_why: str = ""
    """Why it ended, in words; empty: it was written before this was told, or the conversation, one of the user's own,
    does not report it."""
    missed: str = ""
    """The goal of `--stop` that neither ended the run nor is reached by `metrics`, in words. Empty: there was none, it
    was reached, or the user stopped the run."""
    loss: FloatOrNaN
    """Mean training loss of the last round, or, where exchanges are not rounds, the mean of the peers' last losses,
    without those of lost peers; NaN: none was reported."""
    wall_s: float
    """Wall-clock seconds of the run, including the time before it was resumed and the starts of its processes, which
    are before the times of its records. Of a script that no launcher started: up to its last record."""
    noun: Noun = "round"
    """The word for an exchange in texts about this run: "round" or "exchange"."""
    exchanges: int
    """Number of the last round, or, where exchanges are not rounds, the most exchanges that one peer here made; of
    servers alone, those of the slowest worker. Machines whose peers have their own pace tell different numbers."""
    peers: tuple[PeerSummary, ...] = ()
    """The peers whose records are in the run folder."""
    lost: tuple[Lost, ...] = ()
    """The peers that were lost: first those that other peers recorded, in order of time, then those that only the
    launcher knows."""
    elsewhere: tuple[Elsewhere, ...] = ()
    """The peers on other machines, which have their records there: those that joined, and, where this run's folder is
    that of a peer that joined, those that it found there."""
    run: str
    """The run folder."""
    report: str | None = None
    """Path of the report; None when there is none."""
    consensus: Consensus | None = None
    """Simulations of peers with models of their own only: how close these were at the end, and how good their mean
    was."""
    virtual_s: float | None = None
    """Simulations only: seconds that passed in the simulated world."""
    digest: str | None = None
    """Simulations only: a digest of the events, equal for equal seeds."""
    broken: str | None = None
    """Simulations only: the promise that did not hold, and how."""

    def to_json(self) -> str:
        """The result as one line of JSON, without the newline. The fields of simulations are omitted for a real run.
        The number of exchanges has the key `rounds` or `exchanges`, by the word for an exchange in this run."""
        row = {"schema": SCHEMA} | _renamed(dataclasses.asdict(self), "exchanges", f"{self.noun}s")
        if self.noun == "round":  # as in schema 1, which scripts of users may read
            row |= {ACCURACY: self.metrics.get(ACCURACY), "accuracy_round": self.metrics_at}
        for key in ("consensus", "virtual_s", "digest", "broken"):
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
