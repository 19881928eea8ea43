"""A scenario: the whole input of a simulated run, as one value. Equal scenarios give equal runs, to the last bit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import groupby

from ...peers.run_settings.roles import role_of
from ...peers.run_settings.settings import Settings
from ...peers.settings.link_text import one_of, parse_duration, parse_link, rate_text, size_text
from ...protocols.link_spec import LinkSpec
from ...protocols.members.attributes import SERVER
from .lies import Lie
from .noise import QUIET, Noise


class Kind(StrEnum):
    """The kinds of faults, by their names in a scenario file. *Targets*: the peers in `Fault.who`."""

    CRASH = "crash"  # the targets' processes end, as by kill -9
    PAUSE = "pause"  # the targets' processes stop, as by SIGSTOP, and continue after `for_s`
    RESTART = "restart"  # the targets crash, and start again after `for_s` with their checkpoints
    REPLACE = "replace"  # the targets crash, and start again after `for_s` with empty disks
    SLOW = "slow"  # numerical work takes `factor` times as long
    CUT_OFF = "cut_off"  # a partition: the targets cannot reach the other peers, nor be reached
    DEAFEN = "deafen"  # an asymmetric partition: the targets are heard and hear nothing
    RING = "ring"  # every peer reaches only the half of the others that is next to it by number: majorities overlap
    CLOG = "clog"  # frames that the targets send are held up until the fault ends
    NOISE = "noise"  # frames are lost, duplicated, reordered and corrupted
    LINK = "link"  # the targets' links change
    FULL_DISK = "full_disk"  # checkpoints cannot be written
    CLOCK = "clock"  # the targets' wall clocks, or all, jump by `factor` seconds and drift
    SEPARATE = "part"  # no two of the targets can reach each other; all others can reach them
    HANG = "hang"  # the targets' numerical work does not end; their event loops run on
    OUTAGE = "outage"  # all peers crash, and resume the run after `for_s`, from checkpoints of different rounds
    HOSTILE = "hostile"  # the targets, or admitted keys of no member, send well-formed messages with any values
    SPOIL = "spoil"  # one element of the targets' next contribution becomes `factor`: huge, or not finite


ROLES = ("coordinator", "founder", "newest", "second")
"""Targets of a fault that are named by their role in the run. `founder`, `newest`: the running peer whose process was
started first, or last; `second`: the peer that would coordinate if the coordinator were gone."""
SPEAKERS = ("sender", "receiver")
"""Targets of a fault that strikes at a message: the peers at its two ends."""
SEPARATING = (Kind.CUT_OFF, Kind.DEAFEN, Kind.RING, Kind.PAUSE, Kind.CLOG, Kind.NOISE, Kind.LINK, Kind.SEPARATE)
"""Faults that may make live peers be declared dead, because they do not reach each other in time."""
FOR_ALL = (Kind.RING, Kind.NOISE, Kind.OUTAGE)
"""Faults that concern all peers, whatever their targets."""
AIMLESS = (*FOR_ALL, Kind.CLOCK, Kind.HOSTILE)
"""Faults that may have no targets."""
AT_ONCE = (Kind.CRASH, Kind.CLOCK, Kind.SPOIL)
"""Faults without a duration."""
FACTORS = (Kind.SLOW, Kind.CLOCK, Kind.SPOIL)
"""Faults that use `Fault.factor`."""


USUAL_LINK = "100mbit,5ms"
"""The link of a peer for which none is given."""
TOY_SIZE, TOY_SIZE_MAX = 6, 10_000_000
PRIORITIES_MAX = 1000


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment at which the message of kind `message` with this `number` is sent, or received if not `sent`. Messages
    of that kind are counted from 1, over all peers, from the fault's `at_s` on; if `after` is given, only from the time
    at which a message of the kind `after` has been received."""

    message: str
    number: int
    sent: bool
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. It begins at a message (`at_message`), right before the delivery with number `at_event`, at the local
    step `at_step` of its first target, or at the virtual time `at_s`. The first of these fields that is given counts;
    without any it begins at time 0. (With `at_message`, the messages are counted from `at_s` on.)

    `who`: its targets, numbers of peers or roles. `for_s`: its duration, 0: it does not end before all faults are
    healed (`Scenario.faults_until_s`). `factor`: how many times as long work takes (`SLOW`), the seconds of a jump
    (`CLOCK`), or the new value of an element (`SPOIL`). `drift`: of a clock, in seconds a second. `noise`: that of all
    frames (`NOISE`); `link`: the targets' new link (`LINK`). `lie`: what the targets say again and again
    (`HOSTILE`); None: messages with any values. Fields that the kind does not use are cleared, so that equivalent
    faults are equal.
    """

    kind: Kind
    who: tuple[int | str, ...] = ()
    at_s: float | None = None
    at_event: int | None = None
    at_step: int | None = None
    at_message: Moment | None = None
    for_s: float = 0.0
    factor: float = 1.0
    drift: float = 0.0
    noise: Noise = QUIET
    link: LinkSpec | None = None
    lie: Lie | None = None

    def __post_init__(self) -> None:
        forget = {
            "at_event": self.at_message is not None,
            "at_step": self.at_message is not None or self.at_event is not None,
            "at_s": self.at_message is None and not (self.at_event is None and self.at_step is None),
            "for_s": self.kind in AT_ONCE,
            "factor": self.kind not in FACTORS,
            "drift": self.kind is not Kind.CLOCK,
            "noise": self.kind is not Kind.NOISE,
            "link": self.kind is not Kind.LINK,
            "lie": self.kind is not Kind.HOSTILE or not self.who,
        }
        for field in fields(self):
            if forget.get(field.name):
                object.__setattr__(self, field.name, field.default)
        object.__setattr__(self, "who", tuple(dict.fromkeys(self.who)))
        if all(when is None for when in (self.at_message, self.at_event, self.at_step, self.at_s)):
            object.__setattr__(self, "at_s", 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group of equal peers: their number, their site, their role ("server"; "": they train), and for each its link,
    the virtual seconds of a local step, its memory (0: unlimited), whether others can dial it, and its budget: bytes a
    second in each direction, and bytes a day of both (0: any)."""

    peers: int
    site: str = ""
    link: LinkSpec
    step_s: float = 0.005
    memory_bytes: int = 0
    dialable: bool = True
    budget_Bps: float = 0.0
    budget_a_day_bytes: int = 0
    role: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The whole input of a simulated run.

    `settings`: the settings of the run; `settings.founders` of the groups' peers, servers among them, found it.
    `groups`: the peers, numbered from 0 in this order. `trunks`: (site, site, link), a link between two sites that
    their peers share. `arrivals`: (number of a peer, virtual time at which its process starts); all others start at
    time 0. `faults`: see `Fault`. `faults_until_s`: virtual time at which all faults are healed and no more occur;
    None: never. `buggify`: the library's own code does legal but unlikely things, until `faults_until_s`. `toy_size`:
    number of inputs of the toy task's model, if there is no other task; `thaws`: its bias is unfrozen during the run;
    `evaluates`: it has a metric.
    `priorities`: number of changes of the random priorities by which messages are delivered (`sims.world.priorities`);
    None: messages are delivered in order of arrival.
    """

    settings: Settings
    groups: tuple[Group, ...]
    trunks: tuple[tuple[str, str, LinkSpec], ...] = ()
    arrivals: tuple[tuple[int, float], ...] = ()
    faults: tuple[Fault, ...] = ()
    faults_until_s: float | None = None
    buggify: bool = False
    toy_size: int = TOY_SIZE
    thaws: bool = False
    evaluates: bool = False
    priorities: int | None = None

    @classmethod
    def plain(cls, settings: Settings) -> Scenario:
        """The scenario of a run with these settings, without sites, latecomers and faults."""
        step_s = parse_duration(settings.step_time)
        kinds = groupby((usual_link(settings, index), role_of(settings, index)) for index in range(settings.founders))
        groups = (
            Group(peers=len(list(alike)), link=parse_link(link), step_s=step_s, role=role)
            for (link, role), alike in kinds
        )
        return cls(settings=settings, groups=tuple(groups))

    @property
    def peers(self) -> int:
        """The number of all peers, those that arrive later included."""
        return sum(group.peers for group in self.groups)

    def settings_of(self, index: int) -> Settings:
        """The settings of the peer with this number: the run's, and its group's budget."""
        group, own = self.group_of(index), {}
        if group.budget_Bps:
            own["budget"] = rate_text(group.budget_Bps)
        if group.budget_a_day_bytes:
            own["budget_per_day"] = size_text(group.budget_a_day_bytes)
        return self.settings.changed(**own) if own else self.settings

    @property
    def peaceful(self) -> bool:
        """Whether the scenario has no faults, no buggify and no limits of memory."""
        return not self.faults and not self.buggify and not any(group.memory_bytes for group in self.groups)

    @property
    def has_hostile_member(self) -> bool:
        """Whether a member is hostile. The others cannot detect all its lies, so fewer promises hold."""
        return any(fault.kind is Kind.HOSTILE and fault.who for fault in self.faults)

    @property
    def buggify_until_s(self) -> float:
        """The virtual time in seconds at which buggify ends, together with all faults; infinite: never; 0: there is no
        buggify."""
        if not self.buggify:
            return 0.0
        return math.inf if self.faults_until_s is None else self.faults_until_s

    @property
    def brief(self) -> bool:
        """Whether all faults of the kinds `SEPARATING` end by themselves, and their durations sum to at most two
        patiences. A change to a slower link never counts as brief, because frames that were sent on it arrive late even
        if it is soon fast again."""
        links = [fault.link for fault in self.faults if fault.kind == Kind.LINK and fault.link is not None]
        if any(map(self._is_slower, links)):
            return False
        out_s = [fault.for_s for fault in self.faults if fault.kind in SEPARATING]
        return 0.0 not in out_s and sum(out_s) <= 2 * self.settings.patience_s

    def _is_slower(self, link: LinkSpec) -> bool:
        rates = [group.link.bandwidth_Bps for group in self.groups]
        return link.bandwidth_Bps is not None and any(rate is None or link.bandwidth_Bps < rate for rate in rates)

    def group_of(self, index: int) -> Group:
        """The group of the peer with this number; the last group for a number beyond the peers of all groups."""
        for group in self.groups:
            if index < group.peers:
                return group
            index -= group.peers
        return self.groups[-1]


def founded_by(settings: Settings, groups: Sequence[Group], arrivals: Sequence[tuple[int, float]]) -> Settings:
    """`settings` with the numbers of founders that `groups` give without the peers that arrive later: of those that
    train, and of servers if the conversation has any. `arrivals`: (number of a peer, virtual time). Raises
    SettingsError when a needed kind of peer is missing."""
    late = {index for index, _ in arrivals}
    roles = [group.role for group in groups for _ in range(group.peers)]
    there = Counter(role for index, role in enumerate(roles) if index not in late)
    servers = {"servers": there[SERVER]} if settings.own.server_count() or there[SERVER] else {}
    return settings.changed(peers=there[""], **servers)


def usual_link(settings: Settings, index: int) -> str:
    """The link, as text, of the peer or group of peers with the number `index`: by ``settings.link``, or else
    `USUAL_LINK`. Of several links in the setting, peers get one after the other, then the first again."""
    return one_of(settings.link or USUAL_LINK, index)
