"""The settings that every conversation has. A conversation's own settings stand in its module of `conversations`."""

from __future__ import annotations

import dataclasses

from ...protocols.addresses import NOWHERE
from ...protocols.members.invitation import KEYS_MAX
from . import unit_rules as units
from . import validators as rules
from .edge import ANYWHERE, check_budget
from .fields import Declared, OwnSettings, SettingsError, Spoken, setting

USUAL_STEPS = 2000
"""Local steps of a peer in a run for which no end is given."""
_HERE = "train join"
_FOUNDING = "train simulate"
_ALL = "train join simulate"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CommonSettings(Declared):
    """The settings that every conversation has. Construction checks each value by itself; `check` compares them. Both
    raise SettingsError."""

    peers: int = setting(4, rules.peers(), "Peers that gather before the first round.", agreed=True)
    protocol: Spoken = setting(
        "allreduce", rules.protocol(), "Also: gossip, parameter_server.", agreed=True, verbs=_ALL
    )
    steps: int | None = setting(
        None, rules.whole(1, 10**12), f"Local steps of each peer, not of all. [default: {USUAL_STEPS}]", agreed=True
    )
    arguments: str = setting(
        "", rules.arguments(), "What the task or script is given, after --.", agreed=True, verbs=""
    )
    seed: int = setting(0, rules.whole(0, 2**63 - 1), "Seed of all random choices.", agreed=True)
    device: str = setting("auto", rules.devices(), "cpu, cuda:N, or several with commas.", verbs=_HERE)
    threads: int = setting(
        0,
        rules.whole(0, 1024),
        "A peer's PyTorch threads; 0: cores / peers.",
        verbs=_HERE,
        joining="PyTorch threads; 0: all cores, or a share.",
    )
    patience_s: float = setting(5.0, rules.seconds(86_400), "A peer's silence until it is lost.")
    compute_patience_s: float | None = setting(
        None,
        rules.seconds(1e9),
        "Longest wait for local steps. [default: endless]",
        agreed=True,
    )
    quorum: int | None = setting(
        None, rules.whole(1, 1_000_000), "Peers that may go on alone. [default: over half]", verbs=_FOUNDING
    )
    give_up_after_s: float | None = setting(
        None, rules.seconds(1e7), "Longest wait of too few peers. [default: endless]", verbs=_HERE
    )
    memory_limit: str | None = setting(
        None, units.size(), "Most memory of a peer, as in 8GB. [default: endless]", verbs=_HERE
    )
    listen: str | None = setting(
        None,
        units.address(),
        "Where peers listen. [default: any free port]",
        verbs=_HERE,
        joining="Listen here; none: dial only. [default: a free port]",
    )
    advertise: str | None = setting(None, units.host(), "Host that others dial. [default: this machine's]", verbs=_HERE)
    relay_limit: str | None = setting(
        None, units.rate(), "Most to relay for each peer. [default: endless]", verbs=_HERE
    )
    edge: bool = setting(False, rules.flag(), "Dials only; one thread, little memory.", verbs="join")
    budget: str | None = setting(
        None, units.rate(), "Most sent, and received, a second. [default: endless]", verbs=_ALL
    )
    budget_per_day: str | None = setting(
        None, units.size(), "Sent and received in 24 hours. [default: endless]", verbs=_ALL
    )
    insecure: bool = setting(
        False, rules.flag(), "No keys, no encryption: whoever reaches a peer may join.", verbs="train"
    )
    key: str | None = setting(
        None, rules.file("a key file"), "This peer's own key file. [default: a new key]", verbs=_HERE
    )
    authorized: str | None = setting(
        None,
        rules.file("a file of public keys"),
        "Public keys, one a line, that join without an invite.",
        verbs="train",
    )
    invite_uses: int | None = setting(
        None, rules.whole(1, KEYS_MAX), "Most keys that the invite lets in; none given: any.", verbs="train"
    )
    invite_for: str | None = setting(
        None, units.span(366 * 86_400), "How long the invite holds, as in 2h. [default: endless]", verbs="train"
    )
    run: str | None = setting(
        None, rules.file("a folder", "FOLDER"), "Folder of what it writes. [default: runs/TASK-NNN]"
    )
    evaluate_every: int = setting(10, rules.whole(1, 10**9), "Rounds between two evaluations.", agreed=True)
    checkpoint_every_s: float = setting(
        30.0, rules.seconds(1e9, zero=True), "Seconds between checkpoints, at least.", verbs=_HERE
    )
    link: str | None = setting(
        None,
        units.link(),
        "Connection; peers in turn: '10mbit,40ms;1gbit,1ms'.",
        joining="The connection to imitate, as in 10mbit,40ms.",
    )
    site: str | None = setting(
        None, rules.sites(), "Where it is; peers in turn: 'paris;rome'.", joining="Where it is, as in paris."
    )
    step_time: str = setting("1ms", units.step_time(), "Time of a local step, or measured.", verbs="simulate")
    report: bool = setting(True, rules.flag(), "Write report.html at the end.")

    @property
    def listens_at(self) -> str:
        """The address at which a peer listens: the setting `listen`, or else `NOWHERE` for an edge peer, which only
        dials, and any free port (`ANYWHERE`) for any other."""
        return self.listen or (NOWHERE if self.edge else ANYWHERE)

    def check(self) -> None:
        """Raises SettingsError for the first setting that contradicts another one."""
        if self.quorum is not None and self.quorum > self.peers:
            raise SettingsError(f"must be at most the number of peers, {self.peers}, got {self.quorum}", "quorum")
        for name in ("key", "authorized", "invite_uses", "invite_for"):
            if self.insecure and getattr(self, name) is not None:
                raise SettingsError("has no use in an insecure run: leave out one of the two", name)
        check_budget(self)
        if self.listens_at == NOWHERE and self.advertise is not None:
            raise SettingsError(f"has no use with --listen {NOWHERE}: nobody can dial this peer", "advertise")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChosenSettings(CommonSettings):
    """The settings with which a conversation is built: the common ones, and the chosen conversation's `own`."""

    own: OwnSettings
