"""The records of a run, one JSON line each: exchanges of a peer with others, and events.

In a line of schema 2, `details` lists the keys of the conversation's own numbers, and `metrics` holds the results of an
evaluation by name. A line of schema 1 is a round of local SGD. `record_file` writes the lines, `run` reads them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from .columns import ACCURACY, ROUNDS, Columns, Noun, noun
from .event_names import EventName
from .json_lines import FloatOrNaN, build, line, parse

SCHEMA: Final = 2
"""The version of the format of record files and results. Version 1 had no columns and no named metrics."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Missing:
    """A peer that was given up as lost."""

    peer: str
    """Its name."""
    address: str = ""
    """Its address; empty: unknown."""
    since_s: float
    """The time from which it was missing, in seconds since the run started."""
    why: str
    """The reason, as far as this peer knows it."""
    advice: str = ""
    """Advice to the user."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ExchangeRecord:
    """One exchange of a peer with others, e.g. a committed round, as this peer saw it."""

    peer: str
    """Name of the recording peer."""
    version: int
    """Counts the exchanges from 1. Where exchanges are rounds, the number of the round."""
    step: int
    """Local steps since the run started, after this exchange."""
    time_s: float
    """When the exchange was over on this peer, its evaluation included: seconds since the run started, on its monotonic
    clock."""
    loss: FloatOrNaN
    """Mean training loss of the local steps since the previous exchange: of all peers in a round, of the recording peer
    alone where peers do not exchange in common rounds. NaN if it was not reported, or the exchange was not made
    here."""
    compute_s: float
    """Seconds of local steps. When gradients are averaged, the time until this peer's last gradient was complete, even
    if earlier ones were already being sent."""
    wait_s: float
    """Seconds of waiting for others to contribute, or for agreement on them."""
    evaluation_wait_s: float = 0.0
    """Seconds of `wait_s` during which the peer in `waited_for` was evaluating."""
    transfer_s: float
    """The remaining seconds of the exchange."""
    hidden_s: float = 0.0
    """Seconds of the exchange during which local steps went on (`--overlap`). They are not in `compute_s`, `wait_s` and
    `transfer_s`, which then cover the time since the previous record."""
    evaluate_s: float = 0.0
    """Seconds of evaluating this exchange's model, before `time_s`, on the peer that evaluates."""
    bytes_sent: int
    """Bytes sent over the network since this peer's last record."""
    bytes_received: int
    """Bytes received over the network since this peer's last record."""
    model_bytes: int = 0
    """Bytes of the model that this peer averaged with others in this exchange, before a codec makes them fewer: with
    `--fragments` those of the fragment, with `--average gradients` those of the gradients. Frozen parameters are not
    among them. 0: none, or the conversation does not report it."""
    bytes_shared: int = 0
    """Bytes exchanged through memory that peers on one machine share; no message carries them."""
    received_from: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Bytes of models that came from each peer in this exchange, by its name, as a codec encoded them, through memory
    or on the wire. Empty: none, or the conversation does not report it."""
    counts: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    """The conversation's own counts since this peer's last record, by their name, each by key: of a parameter server
    `staleness` (pushes to a range, by staleness), `pushed` and `pulled` (bytes of values, by range; "": the rest)."""
    steps_per_s: FloatOrNaN
    """Local steps for each second of `compute_s`."""
    steps_before: int = 0
    """Of the local steps since the previous exchange, those that a process before this one took, which was stopped amid
    the round. They are in the product of `steps_per_s` and `compute_s`."""
    members: int
    """Number of peers that took part: the members of a round's view, a gossiping peer and the neighbours whose vectors
    it took, or the workers of a parameter server."""
    missing: tuple[Missing, ...] = ()
    """The peers that were given up as lost since this peer's last record."""
    waited_for: str = ""
    """The peer whose late contribution caused most of `wait_s`; empty if this peer does not know of one."""
    steps_left: int | None = None
    """Local steps of each peer until the run ends, as far as is known, also where it ends by samples or epochs. Null:
    unknown, or the conversation does not report it."""
    made_s: float | None = None
    """Of a parameter server's worker: when it pushed, on the same clock as `time_s`, which is later where its model is
    evaluated. Null: at `time_s`."""
    caught_up: bool = False
    """This peer did not take part in the exchange, but fetched its result from a donor."""
    metrics: Mapping[str, FloatOrNaN] = dataclasses.field(default_factory=dict)
    """Results of evaluating this exchange's model, or that of `metrics_at`, by name; empty on a peer that did not
    evaluate. The first is the headline."""
    metrics_at: int | None = None
    """Number of the exchange that gave the evaluated model, 0 for the initial one, where it is not this exchange: a
    training script reports metrics between two exchanges, and the record of the next one has them. Null: this
    exchange."""
    metrics_steps: int = 0
    """Local steps that the script had taken since that exchange when it reported: above 0 it has evaluated a model of
    its own amid a round."""
    metric_scales: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Scales of these metrics, by name, as the task declares them: "lower" or "higher", whichever is better, then the
    unit. Empty text: not declared."""
    own_model: bool = False
    """Peers agree on no model, and this exchange's is the recording peer's own."""
    details: Mapping[str, FloatOrNaN] = dataclasses.field(default_factory=dict)
    """The conversation's own numbers, by the names of its columns."""

    def __post_init__(self) -> None:
        if clash := sorted(self.details.keys() & _COMMON):
            raise ValueError(f"{clash[0]!r} is in all records: a conversation's column needs another name")

    @property
    def noun(self) -> Noun:
        """The word for this exchange in texts: "round", or "exchange" where peers do not exchange in common rounds."""
        return noun(self.details)

    @property
    def measured_at(self) -> int:
        """Number of the exchange that gave the evaluated model."""
        return self.version if self.metrics_at is None else self.metrics_at

    @property
    def measured_own(self) -> bool:
        """Whether the evaluated model is the recording peer's own, and not one that the peers agree on."""
        return self.own_model or self.metrics_steps > 0

    def to_json(self) -> str:
        """The record as one line of JSON, without the newline."""
        row = {"kind": self.noun, "peer": self.peer, **self.details, **dataclasses.asdict(self)}
        row |= {
            "details": [*self.details],
            ACCURACY: self.metrics.get(ACCURACY),
        }  # the last as in schema 1, for scripts
        return line(row)


_COMMON: Final = frozenset(("kind", ACCURACY, *(field.name for field in dataclasses.fields(ExchangeRecord))))
"""The JSON keys of an exchange's line in every conversation."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class EventRecord:
    """An event that happened to a peer, or that it saw happen to another."""

    peer: str
    """The peer that records the event."""
    time_s: float
    """Seconds since the run started, on the recording peer's monotonic clock."""
    event: EventName
    """Kind of the event: `started`, `joined`, `left`, `lost`, ... `present`: the peer `about` was a member already when
    the recording peer, whose records are apart from the others', had entered the run. `lost` of the recording peer
    itself: the process before this one was lost."""
    about: str = ""
    """The peer to which the event happened; empty: the recording peer itself."""
    why: str = ""
    """The reason, or the subject matter, as text for the user."""
    work: str = ""
    """For `stalled`, the work that the peer was doing: 'local steps', 'evaluation'; empty: unknown."""
    generation: int = 0
    """Number of the recording peer's membership view at the time; 0: it had none yet."""
    key: str = ""
    """The public key of the peer `about`, where it joined, was present, left, was lost, is back or is silent; else
    empty. Names may be equal, keys not."""
    role: str = ""
    """The recording peer's role in the run: 'server'; empty: it trains."""
    about_role: str = ""
    """The role of the peer `about`, where `key` is told; empty: it trains."""
    clock_s: float | None = None
    """At `time_s`, the monotonic clock of the peer's machine, where the peer enters a run (`started`, `joined`,
    `resumed`): by it, times of peers on one machine can be compared, whose own begin some ms apart. Null: not told."""
    steps: int = 0
    """Of `stopped`: local steps of this process that no record of an exchange has counted; else 0."""
    compute_s: float = 0.0
    """Seconds of these local steps."""

    @property
    def subject(self) -> str:
        """The peer to which the event happened: `about`, or else the recording peer."""
        return self.about or self.peer

    @property
    def is_entry(self) -> bool:
        """Whether the recording peer itself enters a run."""
        return self.event in ("started", "joined", "resumed") and not self.about

    def to_json(self) -> str:
        """The record as one line of JSON, without the newline."""
        return line({"kind": "event"} | dataclasses.asdict(self))


Record = ExchangeRecord | EventRecord


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """The line before the records that one process wrote."""

    schema: int = SCHEMA
    """The version of the format."""
    columns: Columns
    """Titles of the conversation's own numbers, by name, with the unit in parentheses. A number with an empty title is
    not shown."""

    def to_json(self) -> str:
        """The header as one line of JSON, without the newline."""
        return line({"kind": "schema"} | dataclasses.asdict(self))


def read_header(row: Mapping[str, Any], place: str) -> Header:
    """The header in a row of kind "schema". Raises ValueError."""
    check_schema(row, place)
    return build(Header, row, place)


def check_schema(row: Mapping[str, Any], place: str) -> None:
    """Raise a ValueError of one line where a row is of a schema that this version does not know."""
    schema = row.get("schema", 1)
    if type(schema) is not int or schema < 1:
        raise ValueError(f"{place}: schema is {schema!a:.40}, not a number of 1 or more")
    if schema > SCHEMA:
        raise ValueError(
            f"{place}: written by a newer samovar, in schema {schema}; this one reads up to {SCHEMA}: update it"
        )


def read_record(text: str) -> Record:
    """The record in a line that `to_json` wrote. Raises a ValueError of one line."""
    return record_of(parse(text.encode("utf-8", "replace"), "record"), "record")


def record_of(row: Mapping[str, Any], place: str) -> Record:
    """The record in `row`, the JSON object of a line in schema 1 or 2. Raises a ValueError of one line that names
    `place`."""
    kind = row.get("kind")
    if kind in ("round", "exchange"):
        return build(ExchangeRecord, _named(row, place) if "version" in row else _of_schema_1(row), place)
    if kind == "event":
        return build(EventRecord, row, place)
    raise ValueError(f"{place}: kind is {kind!r:.40}, none of 'round', 'exchange' and 'event'")


def _named(row: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """The row with the conversation's own numbers collected under `details`."""
    names = row.get("details")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or _COMMON & {*names}:
        raise ValueError(f"{place}: details is {names!a:.40}, not a list of columns")
    return {**row, "details": {name: row[name] for name in names if name in row}}


def _of_schema_1(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of schema 1 converted to schema 2. Its only metric is the accuracy."""
    named: dict[str, Any] = {"details": {name: row[name] for name in ROUNDS if name in row}}
    named["metrics"] = {} if row.get(ACCURACY) is None else {ACCURACY: row[ACCURACY]}
    return {**row, **named, **({"version": row["round"]} if "round" in row else {})}
