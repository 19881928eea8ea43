"""Every setting of a run: its default, what it may be, and a line of help."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..aggregation.options import OptionError
from ..aggregation.periods.adacomm import AdaComm
from ..aggregation.periods.policy import PERIOD_LIMIT
from ..aggregation.schedules.known import SCHEDULES
from ..protocols.reduction.bound import NORM_LIMIT
from . import rules
from .rules import Rule, shown

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
class Fields:
    """Each is checked on its own when made: raises SettingsError."""

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
        "kept", rules.one_of("kept", "averaged", "reset"), "The optimizer's own state at each average.", agreed=True
    )
    overlap: bool = _setting(
        False, rules.flag(), "Take the next local steps while the last ones are averaged.", agreed=True
    )
    mixing: float | None = _setting(
        None,
        rules.share(),
        "With --overlap, this much of a peer's own model and else the mean. [default: the mean and its steps since]",
        agreed=True,
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
    norm_limit: float = _setting(
        NORM_LIMIT,
        rules.times(10, 1e30),
        "A peer whose model's norm is so many times that of the last common one, or of 1, is left out.",
        agreed=True,
    )
    compute_patience_s: float | None = _setting(
        None,
        rules.seconds(1e9),
        "Seconds of local steps after which the others go on without a peer; if not given, they wait.",
        agreed=True,
    )
    quorum: int | None = _setting(
        None, rules.whole(1, 1_000_000), "Peers that may go on without the others. [default: more than half]"
    )
    give_up_after_s: float | None = _setting(
        None,
        rules.seconds(1e7),
        "Seconds to wait for peers that cannot be reached, when too few are left; if not given, without end.",
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
            except OptionError as error:
                raise SettingsError(f"is refused: {error}", field.name) from None
            except ValueError:
                raise SettingsError(f"must be {rule.said}, got {shown(value)}", field.name) from None
