"""All settings of a run, in one place: flags, TOML files, spawned processes and newcomers read and check them here."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..aggregation.codecs.known import parse_codec
from ..aggregation.periods.adacomm import AdaComm
from ..aggregation.periods.fixed import Fixed
from ..aggregation.periods.known import parse_period
from ..aggregation.periods.policy import PERIOD_LIMIT
from ..aggregation.schedules.known import SCHEDULES
from . import rules
from .groups import without_groups
from .links import one_of
from .rules import Rule, shown
from .toml_file import Entry, read_toml

PROTOCOLS = ("allreduce",)
"""All that ``--protocol`` takes; a sweep of simulations draws from them."""


class SettingsError(ValueError):
    """A setting that cannot be: one line, for a person. `problem` follows the name in a sentence."""

    def __init__(self, problem: str, name: str = "", place: str = "") -> None:
        super().__init__(f"{place or name} {problem}".strip())
        self.problem, self.name = problem, name


def _setting(default: Any, rule: Rule, help: str, *, agreed: bool = False) -> Any:
    """`help`: one line with the unit. `agreed`: all peers of a run have the same. A default of None allows None."""
    return dataclasses.field(default=default, metadata={"rule": rule, "help": help, "agreed": agreed})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Checked when made: raises SettingsError."""

    peers: int = _setting(4, rules.whole(1, 1_000_000), "Peers that gather before the first round.", agreed=True)
    protocol: str = _setting("allreduce", rules.one_of(*PROTOCOLS), "What peers say to each other.", agreed=True)
    schedule: str = _setting(
        "auto", rules.one_of("auto", *SCHEDULES), "How an allreduce goes; auto: by what the links cost.", agreed=True
    )
    codec: str = _setting(
        "none", rules.codec(), "What models' changes are encoded with, e.g. int8 or top_k:0.01.", agreed=True
    )
    outer: str = _setting(
        "plain", rules.outer(), "What a round's mean does to the model, e.g. nesterov:0.7:0.9 (DiLoCo).", agreed=True
    )
    fragments: int = _setting(
        1, rules.whole(1, 1000), "Parts of the model that are averaged in turn, one at a time.", agreed=True
    )
    inner: str = _setting(
        "kept", rules.one_of("kept", "reset"), "The optimizer's own state at each average.", agreed=True
    )
    overlap: bool = _setting(
        False, rules.flag(), "Take the next local steps while the last ones are averaged.", agreed=True
    )
    average: str = _setting(
        "model",
        rules.one_of("model", "gradients"),
        "What peers average: the model, once a period, or a script's gradients, in every backward.",
        agreed=True,
    )
    period: str = _setting(
        "adaptive",
        rules.period(),
        "Local steps between two averages: a number, or what chooses it, e.g. auto.",
        agreed=True,
    )
    period_initial: int = _setting(
        16, rules.whole(1, AdaComm().period_max), "Local steps of the first adaptive period.", agreed=True
    )
    period_block_s: float = _setting(
        2.0, rules.seconds(1e6), "Seconds between two changes of an adaptive period, at least.", agreed=True
    )
    pace: str = _setting(
        "equal",
        rules.one_of("equal", "own"),
        "Local steps of a round: the period for all; or by each one's own speed, the period on average.",
        agreed=True,
    )
    site_period: int | None = _setting(
        None,
        rules.whole(1, PERIOD_LIMIT),
        "Local steps between two averages among the peers of one site. [default: only with all peers]",
        agreed=True,
    )
    drift: str = _setting(
        "left",
        rules.one_of("left", "corrected"),
        "What takes peers with different data apart in local steps; corrected by control variates (SCAFFOLD).",
        agreed=True,
    )
    steps: int = _setting(2000, rules.whole(1, 10**12), "Local steps that each peer takes.", agreed=True)
    seed: int = _setting(0, rules.whole(0, 2**63 - 1), "What all random choices derive from.", agreed=True)
    device: str = _setting(
        "auto", rules.devices(), "auto, cpu, cuda or cuda:N; with commas (cuda:0,cpu) peers take turns."
    )
    threads: int = _setting(0, rules.whole(0, 1024), "PyTorch threads of each peer; 0: this machine's cores / peers.")
    patience_s: float = _setting(5.0, rules.seconds(86_400), "Seconds that a peer may be silent before it is lost.")
    quorum: int | None = _setting(
        None, rules.whole(1, 1_000_000), "Peers that may go on without the others. [default: more than half]"
    )
    listen: str = _setting("tcp://*:0", rules.address(), "Where to listen; port 0: any free one.")
    advertise: str | None = _setting(None, rules.host(), "Host that others dial. [default: this machine's address]")
    insecure: bool = _setting(False, rules.flag(), "No keys, no encryption: whoever reaches a peer may join.")
    key: str | None = _setting(None, rules.file("a key file"), "This peer's own key file. [default: a new key]")
    authorized: str | None = _setting(
        None, rules.file("a file of public keys"), "File of public keys, one a line, that may join without an invite."
    )
    run: str | None = _setting(
        None, rules.file("a folder", "FOLDER"), "Folder for records, checkpoints, report. [default: runs/TASK-NNN]"
    )
    evaluate_every: int = _setting(10, rules.whole(1, 10**9), "Rounds between two evaluations.", agreed=True)
    checkpoint_every_s: float = _setting(
        30.0, rules.seconds(1e9, zero=True), "Seconds between two checkpoints, at least; 0: after each round."
    )
    link: str | None = _setting(
        None,
        rules.link(),
        "Each peer's connection: bandwidth, latency, jitter. [default: as it is; simulate: 100mbit,5ms]",
    )
    site: str | None = _setting(None, rules.sites(), "Where each peer is: those of one site average by --site-period.")
    step_time: str = _setting("1ms", rules.step_time(), "Simulated time of a local step; measured: as it takes here.")
    report: bool = _setting(True, rules.flag(), "Write report.html when the run is over.")

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, rule = getattr(self, field.name), field.metadata["rule"]
            if value is None and field.default is None:
                continue
            try:
                object.__setattr__(self, field.name, rule.take(value))
            except ValueError:
                raise SettingsError(f"must be {rule.said}, got {shown(value)}", field.name) from None
        if self.quorum is not None and self.quorum > self.peers:
            raise SettingsError(f"must be at most the number of peers, {self.peers}, got {self.quorum}", "quorum")
        watched = parse_period(self.period).watches
        if (self.outer, self.fragments) != ("plain", 1) and watched:
            raise SettingsError(
                f"{self.period} looks at means of whole models: leave out --outer, --fragments", "period"
            )
        if self.drift == "corrected":
            whole = {"codec": "none", "outer": "plain", "fragments": 1, "overlap": False}
            self._as_usual(whole, "does not go with corrected drift, which is seen in the mean of whole models")
        if self.pace == "own" and (watched or self.fragments > 1):
            other = f"period {self.period}" if watched else "fragments"
            raise SettingsError(f"own lets peers go differently far, and {other} compares them: leave out one", "pace")
        if self.average == "gradients":
            self._synchronous()
        if self.site_period is not None:
            self._hierarchical()
        if self.overlap:
            self._overlapped()
        if self.fragments > 1 and self.codec != "none" and parse_codec(self.codec).family == "sketch":
            raise SettingsError(f"cannot be with {self.codec}, which needs the whole model: leave out one", "fragments")
        for name in ("key", "authorized"):
            if self.insecure and getattr(self, name) is not None:
                raise SettingsError("has no use in an insecure run: leave out one of the two", name)

    def _synchronous(self) -> None:
        """Gradients are averaged in every step, as they are."""
        if self.period not in ("adaptive", "1"):
            raise SettingsError(f"must be 1 when gradients are averaged, got {self.period}", "period")
        if self.codec != "none":
            raise SettingsError(f"cannot carry gradients, only changes of models, got {self.codec}", "codec")
        usual = {"outer": "plain", "fragments": 1, "inner": "kept", "overlap": False, "pace": "equal", "drift": "left",
                 "site_period": None}  # fmt: skip
        self._as_usual(usual, "is for averages of models, not of gradients")
        object.__setattr__(self, "period", "1")

    def _as_usual(self, usual: Mapping[str, object], why: str) -> None:
        for name, value in usual.items():
            if (got := getattr(self, name)) != value:
                raise SettingsError(f"{why}, got {got}; leave it out", name)

    def _hierarchical(self) -> None:
        """Peers of a site are as far as each other, and compare nothing but whole models."""
        policy = parse_period(self.period)
        if self.site is None:
            raise SettingsError("needs to know who is where: say so with --site or in [[groups]]", "site_period")
        if isinstance(policy, Fixed) and (self.site_period or 0) >= policy.steps:
            raise SettingsError(f"must be below the period, {policy.steps}, got {self.site_period}", "site_period")
        refused = {
            f"period {self.period}, which looks at how far single peers go": policy.watches,
            "fragments": self.fragments > 1,
            "overlap": self.overlap,
            "pace own": self.pace == "own",
            "drift corrected, whose mean is that of all": self.drift == "corrected",
        }
        for what, wished in refused.items():
            if wished:
                raise SettingsError(f"cannot be with {what}: leave out one of the two", "site_period")

    def _overlapped(self) -> None:
        """When a round ends, the next local steps are under way: how many, it cannot say any more."""
        if not isinstance(parse_period(self.period), Fixed):
            raise SettingsError(f"must be a number of local steps with --overlap, got {self.period}", "period")
        if self.fragments > 1:
            raise SettingsError("cannot be with --overlap, which averages whole models: leave out one", "fragments")
        if self.inner == "reset":
            raise SettingsError("cannot be reset with --overlap: a round ends amid the next local steps", "inner")
        if self.pace == "own":
            raise SettingsError("cannot be own with --overlap: how many steps are next is agreed on too late", "pace")

    @classmethod
    def read(cls, toml: Path | None, flags: Mapping[str, object]) -> Settings:
        """Flags (None: not given) over the TOML file over the defaults. Raises SettingsError naming flag or line."""
        try:
            entries = without_groups(read_toml(toml), flags) if toml is not None else []
        except ValueError as error:
            raise SettingsError(str(error)) from None
        return cls.from_entries(entries, flags)

    @classmethod
    def from_entries(cls, entries: Iterable[Entry], flags: Mapping[str, object]) -> Settings:
        """The same from what stands in a TOML file, or in a table of one."""
        values, places = _by_name(entries)
        for name, value in flags.items():
            if name not in _FIELDS:
                raise SettingsError(_unknown(name))
            if value is not None:
                values[name], places[name] = value, f"--{name.replace('_', '-')}"
        try:
            return cls(**values)
        except SettingsError as error:
            raise SettingsError(error.problem, error.name, places.get(error.name, "")) from None

    def of_peer(self, index: int) -> Settings:
        """What the peer with this number goes by: of several links and sites, its own."""
        several = {"link": self.link, "site": self.site}
        own = {name: one_of(kinds, index) for name, kinds in several.items() if kinds is not None}
        return dataclasses.replace(self, **own)  # type: ignore[arg-type]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """What `to_json` wrote. Raises SettingsError on anything else."""
        return cls(**_exactly(_FIELDS, _parsed(text)))

    def agreed(self) -> dict[str, Any]:
        """The settings that all peers of a run share."""
        return {name: getattr(self, name) for name, field in _FIELDS.items() if field.metadata["agreed"]}

    def agreed_json(self) -> str:
        return json.dumps(self.agreed())

    def with_agreed(self, agreed: Mapping[str, object] | str) -> Settings:
        """These settings with the shared ones of a run, as `agreed` or `agreed_json` gave them. They may come from a
        stranger: raises SettingsError, never another error."""
        values = _parsed(agreed) if isinstance(agreed, str) else agreed
        return dataclasses.replace(self, **_exactly(self.agreed(), values))


_FIELDS = {field.name: field for field in dataclasses.fields(Settings)}


def _by_name(entries: Iterable[Entry]) -> tuple[dict[str, Any], dict[str, str]]:
    values, places = {}, {}
    for entry in entries:
        name = entry.key.replace("-", "_")
        if name not in _FIELDS:
            raise SettingsError(_unknown(entry.key), place=f"{entry.place}:")
        if name in values:
            raise SettingsError("is given twice, with a dash and with an underscore", place=f"{entry.place}: {name}")
        values[name], places[name] = entry.value, f"{entry.place}: {name}"
    return values, places


def _unknown(key: str) -> str:
    close = difflib.get_close_matches(key[:100].replace("-", "_"), _FIELDS, n=1)
    hint = f'did you mean "{close[0]}"?' if close else f"known are {', '.join(_FIELDS)}"
    return f"unknown key {json.dumps(key[:60])}; {hint}"


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise SettingsError(f"these settings are not JSON: {shown(text)}") from None


def _exactly(names: Mapping[str, object], values: object) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise SettingsError(f"these settings are not a table: {shown(values)}")
    odd = [f"lack {name}" for name in names if name not in values]
    odd += [f"have {shown(key)}, unknown here" for key in values if key not in names]
    if odd:
        raise SettingsError(f"these settings {odd[0]}: is it the same version of Samovar that wrote them?")
    return dict(values)
