"""A scenario: the whole input of a simulated run, as one value that is printed before the run. Equal scenarios give
equal runs, to the last bit."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import groupby

from ...peers.settings.link_text import one_of, parse_duration, parse_link
from ...peers.settings.settings import Settings
from ...protocols.link_spec import LinkSpec
from .noise import QUIET, Noise


class Kind(StrEnum):
    """The kinds of faults."""

    CRASH = "crash"  # as kill -9
    PAUSE = "pause"  # as SIGSTOP, and SIGCONT after `for_s`
    RESTART = "restart"  # crash, and begin again after `for_s`, with its checkpoint
    REPLACE = "replace"  # the same without its disk
    SLOW = "slow"  # numerical work takes `factor` times as long
    CUT_OFF = "cut_off"  # partition: the targets on one side, all others on the other
    DEAFEN = "deafen"  # asymmetric: the targets are heard and hear nothing
    RING = "ring"  # every peer reaches only its neighbours to the left and right: majorities that overlap
    CLOG = "clog"  # what the targets send is held up
    NOISE = "noise"  # frames are lost, doubled, overtaken and garbled
    LINK = "link"  # the targets' links change
    FULL_DISK = "full_disk"  # checkpoints cannot be written
    CLOCK = "clock"  # the targets' wall clocks, or all, jump by `factor` seconds and drift
    PART = "part"  # no two of the targets can reach each other; all others can reach them
    HANG = "hang"  # the targets' numerical work does not end; their other code runs on
    OUTAGE = "outage"  # all crash, and restart the run after `for_s`, from checkpoints of different rounds
    HOSTILE = "hostile"  # the targets, or admitted keys, send well-formed messages of every kind with any values
    SPOIL = "spoil"  # one element of the targets' next contribution becomes `factor`: huge, or not finite


ROLES = ("coordinator", "founder", "newest", "second")
"""Targets of a fault besides numbers of peers. `second`: the peer that would coordinate without the coordinator."""
SPEAKERS = ("sender", "receiver")
"""Further targets for a fault that strikes at a message."""
PARTING = (Kind.CUT_OFF, Kind.DEAFEN, Kind.RING, Kind.PAUSE, Kind.CLOG, Kind.NOISE, Kind.LINK, Kind.PART)
"""Faults by which live peers may be declared dead."""
FOR_ALL = (Kind.RING, Kind.NOISE, Kind.OUTAGE)
"""Faults of the whole world, whatever their targets."""
AIMLESS = (*FOR_ALL, Kind.CLOCK, Kind.HOSTILE)
"""Faults that need no target."""
AT_ONCE = (Kind.CRASH, Kind.CLOCK, Kind.SPOIL)
"""Faults without a duration."""
FACTORS = (Kind.SLOW, Kind.CLOCK, Kind.SPOIL)
"""Faults that use a factor."""


USUAL_LINK = "100mbit,5ms"
"""The default link."""
TOY_SIZE, TOY_SIZE_MAX = 6, 10_000_000
PRIORITIES_MAX = 1000


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment at which the message of that kind and number was `sent`, or else received. Messages are counted from
    1, over all peers, from the fault's `at_s` on, and only once a message of the kind `after`, if given, was
    received."""

    message: str
    number: int
    sent: bool
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. It strikes at a message, before the delivery with that number, at that local step of its first target,
    or at a time, whichever is given.

    who: numbers of peers, or roles. for_s: duration; 0: for good. drift: seconds a second. Fields that a kind does not
    use are cleared, so that equivalent faults are equal.
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
        }
        for field in fields(self):
            if forget.get(field.name):
                object.__setattr__(self, field.name, field.default)
        object.__setattr__(self, "who", tuple(dict.fromkeys(self.who)))
        if all(when is None for when in (self.at_message, self.at_event, self.at_step, self.at_s)):
            object.__setattr__(self, "at_s", 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group of equal peers: their number, site, link, duration of a local step, and memory of each (0: enough)."""

    peers: int
    site: str = ""
    link: LinkSpec
    step_s: float = 0.005
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The whole input of a simulated run.

    `settings`: as for a run on real machines; `settings.peers` of the groups' peers found the run. trunks: between two
    sites, shared by all. arrivals: number of a peer -> when it joins; the others are there from the start.
    faults_until_s: when all faults are healed and no more occur; None: never. buggify: whether the library's own code
    does legal but unlikely things. toy_size: inputs of the toy task's model, used when there is no other task.
    priorities: messages are delivered by priorities of their ways, with so many changes of these
    (`sims.world.priorities`); None: in order of arrival.
    """

    settings: Settings
    groups: tuple[Group, ...]
    trunks: tuple[tuple[str, str, LinkSpec], ...] = ()
    arrivals: tuple[tuple[int, float], ...] = ()
    faults: tuple[Fault, ...] = ()
    faults_until_s: float | None = None
    buggify: bool = False
    toy_size: int = TOY_SIZE
    priorities: int | None = None

    @classmethod
    def plain(cls, settings: Settings) -> Scenario:
        """A scenario of equal peers without faults."""
        step_s = parse_duration(settings.step_time)
        links = groupby(usual_link(settings, index) for index in range(settings.peers))
        groups = (Group(peers=len(list(alike)), link=parse_link(link), step_s=step_s) for link, alike in links)
        return cls(settings=settings, groups=tuple(groups))

    @property
    def peers(self) -> int:
        return sum(group.peers for group in self.groups)

    @property
    def peaceful(self) -> bool:
        """Whether there are no faults."""
        return not self.faults and not self.buggify and not any(group.memory_bytes for group in self.groups)

    @property
    def has_hostile_member(self) -> bool:
        """Whether a member is hostile: the others cannot detect its lies, and can only continue."""
        return any(fault.kind is Kind.HOSTILE and fault.who for fault in self.faults)

    @property
    def buggify_until_s(self) -> float:
        """When buggify ends, together with all faults."""
        if not self.buggify:
            return 0.0
        return math.inf if self.faults_until_s is None else self.faults_until_s

    @property
    def brief(self) -> bool:
        """Whether all faults that part or stop peers last, taken together, less than any patience. Frames sent on a
        slower link arrive late, however soon it is fast again."""
        links = [fault.link for fault in self.faults if fault.kind == Kind.LINK and fault.link is not None]
        if any(map(self._is_slower, links)):
            return False
        out_s = [fault.for_s for fault in self.faults if fault.kind in PARTING]
        return 0.0 not in out_s and sum(out_s) <= 2 * self.settings.patience_s

    def _is_slower(self, link: LinkSpec) -> bool:
        rates = [group.link.bandwidth_Bps for group in self.groups]
        return link.bandwidth_Bps is not None and any(rate is None or link.bandwidth_Bps < rate for rate in rates)

    def group_of(self, index: int) -> Group:
        """The group of the peer with this number."""
        for group in self.groups:
            if index < group.peers:
                return group
            index -= group.peers
        return self.groups[-1]


def usual_link(settings: Settings, index: int) -> str:
    """The default link of the peer, or group of peers, with this number."""
    return one_of(settings.link or USUAL_LINK, index)
