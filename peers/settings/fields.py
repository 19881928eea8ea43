"""Every setting of a run: its default, its rule, and a line of help."""

from __future__ import annotations

import dataclasses
from typing import Any

from ...aggregation.options import OptionError
from ...aggregation.periods.adacomm import AdaComm
from ...aggregation.periods.policy import PERIOD_LIMIT
from ...aggregation.schedules.registry import SCHEDULES
from ...protocols.collectives.bound import NORM_LIMIT
from ...protocols.members.invitation import KEYS_MAX
from . import validators as rules
from .validators import Rule, shown

PROTOCOLS = ("allreduce",)
"""The choices of ``--protocol``; a sweep of simulations draws from them."""


class SettingsError(ValueError):
    """An invalid setting: one line, for a person. `problem` follows the name in a sentence."""

    def __init__(self, problem: str, name: str = "", place: str = "") -> None:
        super().__init__(f"{place or name} {problem}".strip())
        self.problem, self.name = problem, name


def _setting(default: Any, rule: Rule, help: str, *, agreed: bool = False, former: str = "") -> Any:
    """`help`: a few words that fit behind the flag in a line of 80 columns. `agreed`: all peers of a run have the same
    value. `former`: the setting's previous name, which is still accepted. A default of None allows None."""
    metadata = {"rule": rule, "help": help, "agreed": agreed, "former": former}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The settings of a run. Construction checks each on its own and raises SettingsError."""

    peers: int = _setting(4, rules.peers(), "Peers that gather before the first round.", agreed=True)
    protocol: str = _setting("allreduce", rules.one_of(*PROTOCOLS), "What peers say to each other.", agreed=True)
    schedule: str = _setting(
        "auto", rules.one_of("auto", *SCHEDULES), "The allreduce; samovar plan lists all.", agreed=True
    )
    codec: str = _setting("none", rules.codec(), "Encoding of what is sent, e.g. int8.", agreed=True)
    outer: str = _setting("plain", rules.outer(), "What a mean does to the model.", agreed=True)
    fragments: int = _setting(1, rules.whole(1, 1000), "Parts of the model, one a round.", agreed=True)
    inner: str = _setting(
        "kept", rules.one_of("kept", "averaged", "reset"), "The optimizer's own state then.", agreed=True
    )
    overlap: bool = _setting(False, rules.flag(), "Take the next local steps while the last are averaged.", agreed=True)
    overlap_share: float | None = _setting(
        None,
        rules.share(),
        "With --overlap: the share of a peer's own model.",
        agreed=True,
        former="mixing",
    )
    average: str = _setting(
        "model",
        rules.one_of("model", "gradients"),
        "Gradients: for scripts only.",
        agreed=True,
    )
    period: str = _setting(
        "adaptive",
        rules.period(),
        "Local steps between two averages.",
        agreed=True,
    )
    period_initial: int = _setting(
        16, rules.whole(1, AdaComm().period_max), "Local steps of the first adaptive period.", agreed=True
    )
    period_block_s: float = _setting(2.0, rules.seconds(1e6), "Seconds between its changes, at least.", agreed=True)
    pace: str = _setting(
        "equal",
        rules.one_of("equal", "own"),
        "Local steps: alike, or by speed.",
        agreed=True,
    )
    site_period: int | None = _setting(
        None,
        rules.whole(1, PERIOD_LIMIT),
        "Local steps between two averages within a site.",
        agreed=True,
    )
    drift: str = _setting(
        "left",
        rules.one_of("left", "corrected"),
        "Pull of unlike data, or SCAFFOLD.",
        agreed=True,
    )
    steps: int = _setting(2000, rules.whole(1, 10**12), "Local steps that each peer takes.", agreed=True)
    seed: int = _setting(0, rules.whole(0, 2**63 - 1), "What all random choices derive from.", agreed=True)
    device: str = _setting("auto", rules.devices(), "cpu, cuda:N, or several with commas.")
    threads: int = _setting(0, rules.whole(0, 1024), "PyTorch threads of each peer; 0: cores / peers.")
    patience_s: float = _setting(5.0, rules.seconds(86_400), "A peer's silence until it is lost.")
    norm_limit: float = _setting(
        NORM_LIMIT,
        rules.times(10, 1e30),
        "Largest growth of a model's norm.",
        agreed=True,
    )
    compute_patience_s: float | None = _setting(
        None,
        rules.seconds(1e9),
        "Longest wait for local steps. [default: endless]",
        agreed=True,
    )
    quorum: int | None = _setting(None, rules.whole(1, 1_000_000), "Peers that may go on alone. [default: over half]")
    give_up_after_s: float | None = _setting(
        None,
        rules.seconds(1e7),
        "Longest wait of too few peers. [default: endless]",
    )
    memory_limit: str | None = _setting(None, rules.size(), "Most memory of a peer, as in 8GB. [default: endless]")
    listen: str = _setting("tcp://*:0", rules.address(), "Where to listen; port 0: any.")
    advertise: str | None = _setting(None, rules.host(), "Host that others dial. [default: this machine's]")
    insecure: bool = _setting(False, rules.flag(), "No keys, no encryption: whoever reaches a peer may join.")
    key: str | None = _setting(None, rules.file("a key file"), "This peer's own key file. [default: a new key]")
    authorized: str | None = _setting(
        None, rules.file("a file of public keys"), "Public keys, one a line, that join without an invite."
    )
    invite_uses: int | None = _setting(
        None, rules.whole(1, KEYS_MAX), "Most keys that the invite lets in; none given: any."
    )
    invite_for: str | None = _setting(
        None, rules.span(366 * 86_400), "How long the invite holds, as in 2h. [default: endless]"
    )
    run: str | None = _setting(
        None, rules.file("a folder", "FOLDER"), "Folder of what it writes. [default: runs/TASK-NNN]"
    )
    evaluate_every: int = _setting(10, rules.whole(1, 10**9), "Rounds between two evaluations.", agreed=True)
    checkpoint_every_s: float = _setting(30.0, rules.seconds(1e9, zero=True), "Seconds between checkpoints, at least.")
    link: str | None = _setting(
        None,
        rules.link(),
        "Connections, in turn, as in '10mbit,40ms;1gbit,1ms'.",
    )
    site: str | None = _setting(None, rules.sites(), "Where each peer is; several in turn: 'paris;rome'.")
    step_time: str = _setting("1ms", rules.step_time(), "Time of a local step, or measured.")
    report: bool = _setting(True, rules.flag(), "Write report.html at the end.")

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
