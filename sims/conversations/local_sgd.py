"""The declaration of local SGD over allreduce for simulations."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...aggregation.codecs.registry import CODECS, parse_codec
from ...aggregation.schedules.registry import SCHEDULES
from ...peers.conversations.local_sgd_settings import LocalSGDSettings
from ...peers.run_settings.settings import Settings
from ...protocols.link_spec import LinkSpec
from ..checkers.local_sgd import LOCAL_SGD
from ..checkers.local_sgd_fetches import FETCHES
from ..checkers.local_sgd_liars import WHATEVER_A_LIAR_SAYS
from ..checkers.local_sgd_lies import WHILE_A_MEMBER_LIES
from ..checkers.membership import MEMBERSHIP
from ..scenarios.lies import Lie
from ..scenarios.scenario import TOY_SIZE, Fault, Group, Kind, Moment, Scenario, founded_by
from ..world.repeated_lies import REPEATED
from .simulation import Simulation

_PERIODS = (1, 2, 4, 8)
_BEFORE_LIES, _LIES_FOR, _ROUNDS_A_PATIENCE = 2.0, 6.0, 4.0
"""Patiences before a member begins to lie again and again, and for which it does; the most rounds in a patience."""


def draw(chance: random.Random, seed: int, groups: Sequence[Group]) -> Mapping[str, Any]:
    """Draws local SGD's own settings for the scenario of `seed` (`Draw`), by name, from `chance` and from generators of
    their own. The sites are those of `groups`."""
    chance.choice(
        ("allreduce",)
    )  # so that each seed keeps the scenario that it had when the conversation was drawn here
    schedule, codec = chance.choice(sorted(SCHEDULES)), chance.choice(("none", "none", "none", *CODECS))
    outer = random.Random(f"outer step {seed}").choice(("plain", "plain", "plain", "nesterov"))
    pace = random.Random(f"pace {seed}").choice(("equal", "equal", "own"))
    overlap = pace == "equal" and random.Random(f"overlap {seed}").random() < 0.25
    period, site_chance = chance.choice(_PERIODS), random.Random(f"site period {seed}")
    drawn: dict[str, Any] = {"schedule": schedule, "codec": codec, "outer": outer, "overlap": overlap, "pace": pace}
    drawn["period"] = str(period)
    adaptive = random.Random(f"adaptive period {seed}")
    by_site = not overlap and pace == "equal" and period != 1 and site_chance.random() < 0.5
    if by_site:
        drawn["site"] = ";".join(";".join([group.site] * group.peers) for group in groups)
        drawn["site_period"] = site_chance.randrange(1, period)
    plain = codec == "none" and outer == "plain" and not overlap and not by_site
    if plain and random.Random(f"drift {seed}").random() < 0.25:
        drawn["drift"] = "corrected"
    elif pace == "equal" and not by_site:
        drawn |= _streaming(codec, overlap, random.Random(f"fragments {seed}"))
    if not by_site and not overlap and adaptive.random() < 0.1:
        drawn |= _adaptive(adaptive, plain and pace == "equal" and drawn.get("fragments", 1) == 1)
    return drawn


def _adaptive(chance: random.Random, whole: bool) -> Mapping[str, Any]:
    """A period that is chosen during the run, and as many steps as it takes to change. `whole`: each round takes the
    mean of whole models."""
    steps = chance.randint(60, 120)
    if whole and chance.random() < 1 / 3:
        return {"period": "auto", "steps": steps}
    return {"period": "adaptive", "period_initial": 8, "period_block_s": 0.2, "steps": steps}


def _thaws(seed: int, settings: Settings) -> bool:
    """Whether a parameter is unfrozen in the scenario of `seed`, if the settings allow it."""
    own = LocalSGDSettings.of(settings)
    allowed = own.optimizer_state() != "averaged" and own.drift == "left" and own.average == "model"
    return allowed and random.Random(f"thaws {seed}").random() < 0.12


def _streaming(codec: str, overlap: bool, chance: random.Random) -> Mapping[str, Any]:
    """A number of fragments, if the codec allows any, and an overlap share if there is overlap."""
    drawn: dict[str, Any] = {}
    fragments = chance.choice((1, 1, 1, 2, 3))
    if codec == "none" or parse_codec(codec).family != "sketch":
        drawn["fragments"] = fragments
    if overlap:
        drawn["overlap_share"] = chance.choice((None, 0.5))
    return drawn


def _dead_before_the_start(scenario: Scenario, chance: random.Random) -> Scenario:
    """Half of the peers that have gathered lose the other half before the run has started, and the most senior one is
    replaced when it may have gone on without them. The other founders come later. Nothing else goes wrong."""
    settings = scenario.settings
    patience_s, there = settings.patience_s, 4 if settings.peers > 4 and chance.random() < 0.5 else 2
    half = tuple(range(there // 2))
    late = tuple((index, 8.0 * patience_s + chance.random()) for index in range(there, scenario.peers))
    at_s, gone_s = chance.uniform(0.8, 1.2) * patience_s, chance.uniform(1.2, 2.2) * patience_s
    cut = Fault(kind=Kind.CUT_OFF, who=half, at_s=at_s, for_s=gone_s + 0.1 * patience_s)
    lost = Fault(kind=Kind.REPLACE, who=half, at_s=at_s + gone_s, for_s=chance.choice((0.02, 0.1, 0.5)) * patience_s)
    if settings.peers <= there or scenario.has_hostile_member or not all(one.dialable for one in scenario.groups):
        return scenario
    return replace(scenario, arrivals=late, faults=(cut, lost), faults_until_s=20.0 * patience_s, buggify=False)


def _committed_and_lost(scenario: Scenario, chance: random.Random) -> Scenario:
    """The coordinator has committed a round when the others lose it, and so is alone with the result: of the others all
    but one restart, and that one has not heard enough to compute it. Nothing else goes wrong."""
    settings, n = scenario.settings, scenario.settings.peers
    patience_s, rounds = settings.patience_s, chance.randint(0, 3)
    number, deaf = rounds * (n - 1) + 1, chance.randrange(1, max(2, n))
    told = Moment("Commit", number, sent=True)
    faults = (
        Fault(kind=Kind.DEAFEN, who=(deaf,), at_message=Moment("Have", number, sent=True), for_s=0.4 * patience_s),
        Fault(kind=Kind.CUT_OFF, who=("sender",), at_message=told, for_s=4.0 * patience_s),
        Fault(
            kind=Kind.RESTART,
            who=tuple(index for index in range(1, n) if index != deaf),
            at_message=told,
            for_s=chance.choice((0.02, 0.1, 0.2)) * patience_s,
        ),
    )
    if n < 3 or n < scenario.peers or scenario.has_hostile_member:
        return scenario
    return replace(scenario, faults=faults, faults_until_s=30.0 * patience_s, buggify=False)


def _coarse_clock(scenario: Scenario, chance: random.Random) -> Scenario:
    """Where each peer has its own pace, the steps of the last one take less than its clock can tell, so that it never
    measures its speed."""
    *others, last = scenario.groups
    if LocalSGDSettings.of(scenario.settings).pace != "own":
        return scenario
    rest = (replace(last, peers=last.peers - 1),) if last.peers > 1 else ()
    return replace(scenario, groups=(*others, *rest, replace(last, peers=1, step_s=0.0)))


def _lies_over_and_over(scenario: Scenario, chance: random.Random) -> Scenario:
    """A member that does not lead tells one lie again and again, and in a larger view another one does so with another
    lie afterwards, for many rounds. Nothing else goes wrong."""
    settings, n = scenario.settings, scenario.peers
    if n < 4:
        return scenario
    patience_s, liars = settings.patience_s, 2 if n > 4 else 1
    link = LinkSpec(bandwidth_Bps=1.25e7, latency_s=chance.choice((0.0005, 0.002, 0.01)) * patience_s)
    who, told = chance.sample(range(1, n), liars), chance.sample(list(Lie), liars)
    lies = tuple(
        Fault(
            kind=Kind.HOSTILE,
            who=(one,),
            at_s=(_BEFORE_LIES + number * _LIES_FOR) * patience_s,
            for_s=_LIES_FOR * patience_s,
            lie=lie,
        )
        for number, (one, lie) in enumerate(zip(who, told, strict=True))
    )
    rounds = round((_BEFORE_LIES + liars * _LIES_FOR + 1.0) * _ROUNDS_A_PATIENCE)
    settings = settings.changed(steps=rounds, period="1", site_period=None)
    step_s = patience_s / _ROUNDS_A_PATIENCE
    groups = tuple(replace(group, link=link, step_s=step_s, memory_bytes=0, dialable=True) for group in scenario.groups)
    quiet = replace(scenario, buggify=False, priorities=None, trunks=(), arrivals=(), toy_size=TOY_SIZE, thaws=False)
    settings = founded_by(settings, groups, ())
    return replace(quiet, settings=settings, groups=groups, faults=lies, faults_until_s=None)


def _period(settings: Settings) -> int:
    return LocalSGDSettings.of(settings).period.value.start().period


SIMULATION = Simulation(
    checkers=(*LOCAL_SGD, *MEMBERSHIP, *FETCHES),
    whatever_a_member_says=(*WHATEVER_A_LIAR_SAYS, *WHILE_A_MEMBER_LIES),
    places=(
        "a donor was lost",
        "a result was handed on by a change",
    ),
    too_rare=(
        "a bad sum was made again",
        "a late part",
        "a learner lost all members",
        "the peers of a site did not agree on who sums",
        "a mate went on without the mean that it holds",
        "a parameter was not unfrozen by all at once",
        "members heard different wishes",
        "a parameter was unfrozen during the run",
        "a peer cannot know whether a mate took what both summed",
        "a result differed and was not taken",
        "a site does not tell any more what it took at a turn",
        "a site took what its last attempt had come to",
        "a site's means differed and none was taken",
        "a site's sum was bad and none was taken",
        "a sum was bad",
        "no donor had the state",
        "nobody contributed to a round",
        "whose numbers cannot be right was given up",
    ),
    of_world=(REPEATED,),
    sites=(
        "an attempt begins late",
        "an early deadline for a part",
    ),
    messages=("Have", "Commit"),
    draw=draw,
    steps_an_exchange=_period,
    thaws=_thaws,
    harshness={
        "parted before the start": (0.04, _dead_before_the_start),
        "a commit before restarts": (0.08, _committed_and_lost),
        "a coarse clock": (0.1, _coarse_clock),
        "lies over and over": (0.1, _lies_over_and_over),
    },
    simpler=(
        {"overlap_share": None},
        {"overlap": False, "overlap_share": None},
        {"fragments": 1},
        {"pace": "equal"},
        {"site_period": None},
        {"drift": "left"},
        {"period": "1", "site_period": None},
        {"schedule": "ring"},
        {"codec": "none"},
        {"outer": "plain"},
    ),
)
