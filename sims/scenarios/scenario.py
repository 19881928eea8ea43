"""A scenario: all that decides how a simulated run goes. One value, printed before anything runs; the same scenario
gives the same run, to the last bit."""

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
    """What the nemesis can do."""

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
    LINK = "link"  # the targets' connection becomes another
    FULL_DISK = "full_disk"  # checkpoints cannot be written
    CLOCK = "clock"  # the targets' wall clocks, or all, jump by `factor` seconds and drift
    PART = "part"  # no two of the targets reach each other; all others reach each of them
    HANG = "hang"  # the targets' numerical work does not end; all else of them goes on
    OUTAGE = "outage"  # all crash, and begin the run again after `for_s`, with checkpoints of different rounds
    HOSTILE = "hostile"  # the targets, or keys that were let in, say well-formed messages of every kind and any value
    SPOIL = "spoil"  # one element of what the targets bring next is `factor`: huge, or not finite


ROLES = ("coordinator", "founder", "newest", "second")
"""Whom a fault may be aimed at beside numbers of peers. `second`: who would coordinate without the coordinator."""
SPEAKERS = ("sender", "receiver")
"""Likewise, where it falls at a message."""
PARTING = (Kind.CUT_OFF, Kind.DEAFEN, Kind.RING, Kind.PAUSE, Kind.CLOG, Kind.NOISE, Kind.LINK, Kind.PART)
"""What makes peers hold others for dead that live."""
FOR_ALL = (Kind.RING, Kind.NOISE, Kind.OUTAGE)
"""What befalls the world, whomever it is aimed at."""
AIMLESS = (*FOR_ALL, Kind.CLOCK, Kind.HOSTILE)
"""What need not be aimed at anybody."""
AT_ONCE = (Kind.CRASH, Kind.CLOCK, Kind.SPOIL)
"""What does not last."""
FACTORS = (Kind.SLOW, Kind.CLOCK, Kind.SPOIL)
"""What has a use for a factor."""


USUAL_LINK = "100mbit,5ms"
"""When nobody says how peers are connected."""
TOY_SIZE, TOY_SIZE_MAX = 6, 10_000_000
PRIORITIES_MAX = 1000


@dataclass(frozen=True, slots=True)
class Moment:
    """When the message of that kind with that number was just `sent`, or else was just received: counted from 1, over
    all peers, from the fault's `at_s` on, and from the first of the kind `after` on that was received, if any is
    given."""

    message: str
    number: int
    sent: bool
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that happens: at a message, before the delivery of that number, when the first target takes that local
    step, or at a time, whichever is given.

    who: numbers of peers, or roles. for_s: how long it lasts; 0: for good. drift: seconds a second. What a kind has no
    use for is dropped, so that faults that do the same are equal.
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
    """Peers of one kind: how many, at which site, on which link, how long a local step takes, how much memory each has
    (0: enough)."""

    peers: int
    site: str = ""
    link: LinkSpec
    step_s: float = 0.005
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """`settings`: what a run on real machines would be given as well; `settings.peers` of the groups' peers found it.

    trunks: between two sites, shared by all. arrivals: number of a peer -> when it comes; the others are there from the
    start. faults_until_s: when all that can be healed is, and nothing breaks any more; None: never. buggify: whether
    our own code does what is legal but unlikely. toy_size: inputs of the toy task's model, which is trained when there
    is no other. priorities: messages are delivered by priorities of their ways, with so many changes of these
    (`sims.world.priorities`); None: as they come.
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
        """All peers alike and nothing goes wrong."""
        step_s = parse_duration(settings.step_time)
        links = groupby(usual_link(settings, index) for index in range(settings.peers))
        groups = (Group(peers=len(list(alike)), link=parse_link(link), step_s=step_s) for link, alike in links)
        return cls(settings=settings, groups=tuple(groups))

    @property
    def peers(self) -> int:
        return sum(group.peers for group in self.groups)

    @property
    def peaceful(self) -> bool:
        """Whether nothing is to go wrong."""
        return not self.faults and not self.buggify and not any(group.memory_bytes for group in self.groups)

    @property
    def has_hostile_member(self) -> bool:
        """Whether a member is to say what is not true: the others cannot know, and only go on."""
        return any(fault.kind is Kind.HOSTILE and fault.who for fault in self.faults)

    @property
    def buggify_until_s(self) -> float:
        """Until when our own code does what is unlikely: it is healed as all else is."""
        if not self.buggify:
            return 0.0
        return math.inf if self.faults_until_s is None else self.faults_until_s

    @property
    def brief(self) -> bool:
        """Whether all that parts peers, or makes them stand still, is together over before anybody gives up. What has
        left on a slower link comes when it can, however soon that is as fast again."""
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
    """The link of the peer, or group of peers, with this number, of which nothing else is said."""
    return one_of(settings.link or USUAL_LINK, index)
