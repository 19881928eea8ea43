"""Making a drawn scenario harsher, by combinations of faults that are rare but occur within a month on real
machines."""

from __future__ import annotations

import math
import random
from collections.abc import Collection
from dataclasses import replace

from ..conversations.simulation import Harsher, simulation_of
from ..scenarios.noise import Noise
from ..scenarios.scenario import Fault, Group, Kind, Moment, Scenario, founded_by

_CHANGE = ("Propose", "Promise", "Adopt", "Adopted", "Install", "Install")
_WAY_IN = ("Join", "Welcome", "Introduce", "Manifest", "AskPart", "Part")
_QUICK = (
    Kind.RESTART,
    Kind.RESTART,
    Kind.REPLACE,
    Kind.CUT_OFF,
    Kind.DEAFEN,
    Kind.CLOG,
    Kind.NOISE,
    Kind.CRASH,
    Kind.PAUSE,
)
_AMID = (Kind.CRASH, Kind.RESTART, Kind.RESTART, Kind.CUT_OFF, Kind.CUT_OFF, Kind.DEAFEN, Kind.PAUSE, Kind.CLOG)
_HUGE = (math.inf, 1.7e38, 1e30)


def harsher(scenario: Scenario, *, but: Collection[str] = ()) -> Scenario:
    """`scenario` made harsher by entries of `HARSHNESS`, and then of its conversation's own: each is added with its
    probability, drawn by the scenario's seed, except those named in `but`. Crashes for good of more peers than there
    are are left out again."""
    for name, (odds, add) in (HARSHNESS | {**simulation_of(scenario.settings).harshness}).items():
        chance = random.Random(f"{name} {scenario.settings.seed}")
        if chance.random() < odds and name not in but:
            scenario = add(scenario, chance)
    return _no_more_crashes_than_peers(scenario)


def _no_more_crashes_than_peers(scenario: Scenario) -> Scenario:
    left, kept = scenario.peers, list[Fault]()
    for fault in scenario.faults:
        left -= len(fault.who) if fault.kind is Kind.CRASH else 0
        kept += [fault] if left >= 0 or fault.kind is not Kind.CRASH else []
    return replace(scenario, faults=tuple(kept))


def _with(scenario: Scenario, *faults: Fault) -> Scenario:
    return replace(scenario, faults=(*scenario.faults, *faults))


def _anybody(scenario: Scenario, chance: random.Random) -> int | str:
    return chance.choice((chance.randrange(scenario.peers), "coordinator", "coordinator", "newest"))


def _joiners_at_once(scenario: Scenario, chance: random.Random) -> Scenario:
    """Up to half of all peers join within 10 ms. In some scenarios they crash soon afterwards, or the coordinator
    crashes while it adds them."""
    settings = scenario.settings
    late = range(max(2, settings.own.server_count() + 1, scenario.peers // 2), scenario.peers)
    at_s = chance.uniform(0.1, 4.0)
    arrivals = tuple((index, at_s + chance.uniform(0.0, 0.01)) for index in late)
    scenario = replace(scenario, settings=founded_by(settings, scenario.groups, arrivals), arrivals=arrivals)
    what = chance.choice(("nothing", "all go", "all go", "the host goes", "the host goes"))
    if not late or what == "nothing":
        return scenario
    kind, for_s = chance.choice((Kind.CRASH, Kind.RESTART)), _quick_s(scenario, chance)
    if what == "all go":
        gone_s = at_s + chance.uniform(0.0, 2.0) * settings.patience_s
        return _with(scenario, Fault(kind=kind, who=tuple(late), at_s=gone_s, for_s=for_s))
    moment = Moment("Install", chance.randint(1, scenario.peers - 1), sent=True, after=chance.choice(("", "Learned")))
    return _with(scenario, Fault(kind=kind, who=("sender",), at_s=at_s, at_message=moment, for_s=for_s))


def _quick_s(scenario: Scenario, chance: random.Random) -> float:
    return chance.choice((0.02, 0.1, 0.5, 1.0)) * scenario.settings.patience_s


def _quick_faults(scenario: Scenario, chance: random.Random) -> Scenario:
    """Restarts under the same key that take less than a patience, and other faults as short."""

    def fault() -> Fault:
        at_event = chance.randint(1, 800) if chance.random() < 0.6 else None
        kind = chance.choice(_QUICK)
        more = chance.randrange(scenario.peers) if chance.random() < 0.3 else 0
        return Fault(
            kind=kind,
            who=(_anybody(scenario, chance), *(chance.randrange(scenario.peers) for _ in range(more))),
            at_event=at_event,
            at_s=None if at_event else chance.uniform(0.1, 12.0),
            for_s=_quick_s(scenario, chance),
            noise=Noise(loss=0.2, duplicate=0.1, reorder=0.2, corrupt=0.01),
        )

    return _with(scenario, *(fault() for _ in range(chance.randint(2, 6))))


def _amid_messages(scenario: Scenario, chance: random.Random) -> Scenario:
    """The sender or the receiver of a message fails at the moment of that message, which belongs to a view change, to
    an exchange or to an admission. An earlier failure of another peer makes a view change necessary."""
    patience_s, peers = scenario.settings.patience_s, scenario.peers
    own = simulation_of(scenario.settings).messages

    def fault() -> Fault:
        messages = chance.choices((_CHANGE, own or _CHANGE, _WAY_IN), (8, 2, 1))[0]
        return Fault(
            kind=chance.choice(_AMID),
            who=(chance.choice(("sender", "sender", "receiver")),),
            at_message=Moment(chance.choice(messages), chance.randint(1, 3 * peers), chance.random() < 0.6),
            for_s=chance.choice((0.05, 0.5, 1.5, 4.0)) * patience_s,
        )

    gone = Fault(
        kind=chance.choice((Kind.CRASH, Kind.RESTART, Kind.CUT_OFF)),
        who=(_anybody(scenario, chance),),
        at_event=chance.randint(20, 60 * peers),
        for_s=chance.choice((0.1, 1.0, 3.0)) * patience_s,
    )
    return _with(scenario, gone, *(fault() for _ in range(chance.randint(1, 4))))


def _late_leaders(scenario: Scenario, chance: random.Random) -> Scenario:
    """A peer fails amid an exchange, and the peer that leads the resulting view change is delayed until another peer
    leads one, or has led it."""
    patience_s, peers = scenario.settings.patience_s, scenario.peers
    own = simulation_of(scenario.settings).messages
    if not own:
        return scenario
    gone = Fault(
        kind=chance.choice((Kind.CRASH, Kind.RESTART, Kind.CUT_OFF)),
        who=(chance.choice(("sender", "receiver", *range(peers))),),
        at_message=Moment(chance.choice(own), chance.randint(1, peers), chance.random() < 0.5),
        for_s=chance.uniform(0.5, 3.0) * patience_s,
    )
    message, kind = chance.choice(
        (
            *(("Install", Kind.CUT_OFF),) * 4,
            ("Install", Kind.DEAFEN),
            *(("Adopt", Kind.CLOG),) * 2,
            ("Adopt", Kind.PAUSE),
            ("Propose", Kind.PAUSE),
            ("Propose", Kind.CLOG),
        )
    )
    until = (1.5, 4.0) if message == "Install" else (0.9, 1.8)
    held_up = Fault(
        kind=kind,
        who=("sender",),
        at_message=Moment(message, min(chance.randint(1, peers), chance.randint(1, peers)), sent=True, after=own[0]),
        for_s=chance.uniform(*until) * patience_s,
    )
    healed_s = max(scenario.faults_until_s or 0.0, 10.0 * patience_s)
    return _with(replace(scenario, faults_until_s=healed_s), gone, held_up)


def _duels(scenario: Scenario, chance: random.Random) -> Scenario:
    """The coordinator is paused until another peer leads a view change. That peer's proposal is still on its way when
    the coordinator wakes up and decides a different one, which no other peer hears of before the first proposal
    arrives."""
    patience_s, at_s = scenario.settings.patience_s, chance.uniform(0.2, 2.5)
    pause = Fault(kind=Kind.PAUSE, who=("coordinator",), at_s=at_s, for_s=chance.uniform(1.15, 1.4) * patience_s)

    def held_up(message: str, shortest: float, longest: float) -> Fault:
        return Fault(
            kind=Kind.CLOG,
            who=("sender",),
            at_s=at_s + 0.5 * patience_s,
            at_message=Moment(message, 1, sent=True),
            for_s=chance.uniform(shortest, longest) * patience_s,
        )

    healed_s = max(scenario.faults_until_s or 0.0, 10.0 * patience_s)
    scenario = replace(scenario, faults_until_s=healed_s)
    return _with(scenario, pause, held_up("Adopt", 0.5, 1.2), held_up("Install", 0.8, 1.5))


def _broken_pairs(scenario: Scenario, chance: random.Random) -> Scenario:
    """Two peers cannot reach each other, for a while or until all faults are healed."""
    patience_s, others = scenario.settings.patience_s, list(range(scenario.peers))
    pair: tuple[int | str, ...] = ("coordinator", "second")
    if chance.random() < 0.4:
        pair = tuple(chance.sample(others, 2))
    for_s = chance.choice((0.5, 1.5, 3.0, 10.0, 0.0)) * patience_s
    return _with(scenario, Fault(kind=Kind.SEPARATE, who=pair, at_event=chance.randint(1, 500), for_s=for_s))


def _hung_steps(scenario: Scenario, chance: random.Random) -> Scenario:
    """A local step of one peer hangs, for some patiences or until all faults are healed. In most scenarios the other
    peers wait only so long (`compute_patience_s`)."""
    patience_s = scenario.settings.patience_s
    for_s, who = chance.choice((1.0, 10.0, 0.0)) * patience_s, chance.randrange(scenario.peers)
    if chance.random() < 0.7:
        scenario = replace(scenario, settings=scenario.settings.changed(compute_patience_s=2.0 * patience_s))
    return _with(scenario, Fault(kind=Kind.HANG, who=(who,), at_step=chance.randint(1, 20), for_s=for_s))


def _bad_numbers(scenario: Scenario, chance: random.Random) -> Scenario:
    who = chance.randrange(scenario.peers)
    return _with(
        scenario, Fault(kind=Kind.SPOIL, who=(who,), at_step=chance.randint(1, 20), factor=chance.choice(_HUGE))
    )


def _hostile_keys(scenario: Scenario, chance: random.Random) -> Scenario:
    """Hostile senders, which are either a member or keys that an invite has admitted, send well-formed messages with
    any values."""
    patience_s = scenario.settings.patience_s
    who = (chance.randrange(scenario.peers),) if chance.random() < 0.3 else ()
    at_s, for_s = chance.uniform(0.1, 3.0), chance.uniform(0.5, 3.0) * patience_s
    return _with(scenario, Fault(kind=Kind.HOSTILE, who=who, at_s=at_s, for_s=for_s))


def _bad_disks(scenario: Scenario, chance: random.Random) -> Scenario:
    """The disks of all peers are full for a while; or several peers restart at once, some of them with empty disks."""
    everybody = tuple(range(scenario.peers))
    if chance.random() < 0.5:
        full = Fault(kind=Kind.FULL_DISK, who=everybody, at_s=chance.uniform(0.1, 5.0), for_s=chance.uniform(0.1, 5.0))
        return _with(scenario, full)
    at_event, for_s = chance.randint(50, 600), _quick_s(scenario, chance)
    some = chance.sample(everybody, chance.randint(1, scenario.peers))
    without = chance.randint(0, len(some))
    faults = ((Kind.REPLACE, tuple(some[:without])), (Kind.RESTART, tuple(some[without:])))
    return _with(scenario, *(Fault(kind=kind, who=who, at_event=at_event, for_s=for_s) for kind, who in faults if who))


def _uneven_checkpoints(scenario: Scenario, chance: random.Random) -> Scenario:
    """All peers crash and resume the run from checkpoints of different rounds. In half of the scenarios one crashes
    afterwards."""
    settings = scenario.settings.changed(checkpoint_every_s=0.0)
    outage = Fault(kind=Kind.OUTAGE, at_event=chance.randint(100, 120 * scenario.peers), for_s=settings.patience_s / 2)
    after = Fault(
        kind=Kind.CRASH, who=(_anybody(scenario, chance),), at_event=chance.randint(200, 200 * scenario.peers)
    )
    return _with(replace(scenario, settings=settings), outage, *([after] if chance.random() < 0.5 else []))


def _evaluations(scenario: Scenario, chance: random.Random) -> Scenario:
    """Models are evaluated, between exchanges and at the end."""
    settings = scenario.settings.changed(evaluate_every=chance.choice((1, 2, 5)))
    return replace(scenario, settings=settings, evaluates=True)


def _priorities(scenario: Scenario, chance: random.Random) -> Scenario:
    return replace(scenario, priorities=chance.choice((0, 1, 3, 10)))


def undialable(scenario: Scenario, chance: random.Random) -> Scenario:
    """A copy of `scenario` whose last peers cannot be dialled: a random number, fewer than half of all. At least one of
    three peers or more, and none of fewer."""
    most = (scenario.peers - 1) // 2
    groups, left = list[Group](), chance.randint(min(1, most), most)
    for group in reversed(scenario.groups):
        few = min(left, group.peers)
        left -= few
        split = replace(group, peers=few, dialable=False), replace(group, peers=group.peers - few)
        groups += [one for one in split if one.peers]
    return replace(scenario, groups=tuple(reversed(groups)))


HARSHNESS: dict[str, Harsher] = {
    "joiners at once": (0.2, _joiners_at_once),
    "quick faults": (0.5, _quick_faults),
    "amid messages": (0.4, _amid_messages),
    "late leaders": (0.4, _late_leaders),
    "duels": (0.4, _duels),
    "broken pairs": (0.3, _broken_pairs),
    "hung steps": (0.1, _hung_steps),
    "bad numbers": (0.1, _bad_numbers),
    "bad disks": (0.15, _bad_disks),
    "hostile keys": (0.2, _hostile_keys),
    "uneven checkpoints": (0.15, _uneven_checkpoints),
    "priorities": (0.35, _priorities),
    "evaluations": (0.25, _evaluations),
    "undialable": (0.08, undialable),
}
"""What makes scenarios of all conversations harsher; a conversation may have more (`Simulation.harshness`)."""
