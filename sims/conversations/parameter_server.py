"""The parameter server in simulations: its promises, rare places and drawn settings."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...aggregation.consistency import parse_consistency
from ...peers.conversations.parameter_server_settings import ParameterServerSettings
from ...protocols.parameter_server.algorithms.registry import AnyAlgorithm, parse_algorithm
from ..checkers.membership import MEMBERSHIP
from ..checkers.parameter_server import PARAMETER_SERVER
from ..checkers.parameter_server_workers import WORKERS
from ..scenarios.scenario import Fault, Group, Kind, Scenario, founded_by
from .simulation import OF_ROUNDS, Simulation

_CONSISTENCIES = ("bsp", "ssp:1", "ssp:4", "bounded:2", "async")
_ALGORITHMS = ("sync", "sync", "backup:1", "downpour:1:2", "staleness_aware", "softsync:2", "easgd:0.2:2")
_MAPPED_EVERY = 8
"""One seed in so many draws an algorithm of map and reduce."""
_WHOLE = {"filters": None, "pull_filters": None}
_MAPPED: tuple[dict[str, str | None], ...] = (
    {"algorithm": "statistical_query:descent", "consistency": "bsp", "server_update": "sgd:0.05", **_WHOLE},
    {"algorithm": "sandblaster:3", "consistency": "bsp", "server_update": None, **_WHOLE},
)
_WITHOUT_RANGES = tuple(mapped["algorithm"] for mapped in _MAPPED)
_SHARED_EVERY = 20
"""One seed in so many draws the algorithm in shared memory, which has no servers."""
_RANGES = (16, 16, 16, 16, 4, 1)
"""Models in simulations are small: without this each would be one range."""
_MANY_RANGES, _MANY_WORKERS = 1024, 10
"""The ranges of a scenario with many of them, and its workers."""
_FILTERED_EVERY = 7
"""One seed in so many draws filters of pushes."""
_FILTERS = ("significant:0.05,skip:0.3", "top_k:0.2", "skip:0.5,int8")
_PULLS_FILTERED_EVERY = 5
"""One seed in so many draws filters of pulls."""
_PULL_FILTERS = ("changed", "significant:0.05", "significant:0.02,int8", "fp16")
_UPDATES = ("add", "sgd:0.05", "momentum:0.02", "adagrad:0.05", "adam:0.01")


def draw(chance: random.Random, seed: int, groups: Sequence[Group]) -> Mapping[str, Any]:
    """Draws the parameter server's own settings for the scenario of `seed` (`Draw`), by name. `groups` is not used."""
    servers = chance.choice((1, 2, 2, 3))
    drawn: dict[str, Any] = {"servers": servers, "algorithm": chance.choice(_ALGORITHMS)}
    drawn["copies"] = chance.choice((None, None, 1, servers))
    algorithm = parse_algorithm(drawn["algorithm"])
    drawn["consistency"] = chance.choice([text for text in _CONSISTENCIES if _goes_with(algorithm, text)])
    drawn["server_update"] = chance.choice(_UPDATES)
    drawn["ranges"] = _RANGES[seed % len(_RANGES)]
    if seed % _FILTERED_EVERY == _FILTERED_EVERY - 1 and not drawn["algorithm"].startswith("easgd"):
        drawn["filters"] = _FILTERS[seed // _FILTERED_EVERY % len(_FILTERS)]
    if seed % _PULLS_FILTERED_EVERY == _PULLS_FILTERED_EVERY - 1:
        drawn["pull_filters"] = _PULL_FILTERS[seed // _PULLS_FILTERED_EVERY % len(_PULL_FILTERS)]
    if seed % _MAPPED_EVERY == _MAPPED_EVERY - 1:
        drawn |= _MAPPED[seed // _MAPPED_EVERY % len(_MAPPED)]
    if seed % _SHARED_EVERY == _SHARED_EVERY - 1:
        drawn = {"servers": 1, "algorithm": "hogwild:free:2"}
    return drawn


def _goes_with(algorithm: AnyAlgorithm, consistency: str) -> bool:
    try:
        algorithm.under(parse_consistency(consistency))
    except ValueError:
        return False
    return True


def _hung_worker(scenario: Scenario, chance: random.Random) -> Scenario:
    """A worker hangs for far longer than the others wait for its steps, and nothing else goes wrong. In half of the
    scenarios there is one range, so that the coordinator may hold none, or only a copy that no worker reads."""
    settings, servers = scenario.settings, scenario.settings.own.server_count()
    patience_s, who = settings.patience_s, chance.randrange(servers, scenario.peers)
    few = {"ranges": 1} if chance.random() < 0.5 else {}
    hang = Fault(kind=Kind.HANG, who=(who,), at_step=chance.randint(1, 6), for_s=15.0 * patience_s)
    if ParameterServerSettings.of(settings).bound.slack is None or scenario.has_hostile_member:
        return scenario
    return replace(
        scenario,
        settings=settings.changed(compute_patience_s=2.0 * patience_s, **few),
        faults=(hang,),
        faults_until_s=60.0 * patience_s,
        buggify=False,
    )


def _slow_worker(scenario: Scenario, chance: random.Random) -> Scenario:
    """The steps of the last worker take so long that the others, which do not wait for each of them, are done long
    before it."""
    *others, last = scenario.groups
    slack = ParameterServerSettings.of(scenario.settings).bound.slack
    if slack == 0 or scenario.settings.own.server_count() == 0:
        return scenario
    slow = replace(last, peers=1, step_s=chance.uniform(12.0, 20.0))
    groups = (*others, replace(last, peers=last.peers - 1), slow) if last.peers > 1 else (*others, slow)
    return replace(scenario, groups=groups, settings=scenario.settings.changed(steps=12))


def _filters_and_a_restart(scenario: Scenario, chance: random.Random) -> Scenario:
    """A worker whose filters keep much back is restarted from a checkpoint that is older than its last pushes. Nothing
    else goes wrong."""
    settings, servers = scenario.settings, scenario.settings.own.server_count()
    name = ParameterServerSettings.of(settings).algorithm.text
    if servers == 0 or name.startswith("easgd") or name in _WITHOUT_RANGES or scenario.has_hostile_member:
        return scenario
    who, patience_s = chance.randrange(servers, scenario.settings.founders), settings.patience_s
    restart = Fault(kind=Kind.RESTART, who=(who,), at_step=chance.randint(8, 14), for_s=0.1 * patience_s)
    settings = settings.changed(filters=chance.choice(_FILTERS), steps=24, checkpoint_every_s=chance.uniform(0.7, 1.5))
    groups = tuple(replace(group, step_s=0.1) for group in scenario.groups)
    return replace(scenario, settings=settings, groups=groups, faults=(restart,), buggify=False)


def _many_ranges(scenario: Scenario, chance: random.Random) -> Scenario:
    """As many ranges as there may be, and so many workers that the clocks of all in the ranges of one chain are more
    than a message can list. Nothing goes wrong, and two steps suffice, as each range takes its time."""
    settings = scenario.settings
    if settings.own.server_count() < 2 or ParameterServerSettings.of(settings).algorithm.text in _WITHOUT_RANGES:
        return scenario
    *others, last = scenario.groups
    workers = scenario.peers - settings.own.server_count()
    groups = (*others, replace(last, peers=last.peers + max(0, _MANY_WORKERS - workers)))
    settings = founded_by(settings, groups, scenario.arrivals)
    own = {"ranges": _MANY_RANGES, "algorithm": "sync", "consistency": "bsp", "copies": None, **_WHOLE}
    settings = settings.changed(steps=2, **own)
    return replace(scenario, settings=settings, groups=groups, toy_size=_MANY_RANGES, faults=(), buggify=False)


SIMULATION = Simulation(
    checkers=(*PARAMETER_SERVER, *WORKERS, *MEMBERSHIP),
    places=("a push came again", "a range has moved"),
    too_rare=("a chain was repaired", "a push came before an earlier one"),
    out_of_reach=OF_ROUNDS,
    messages=("Push", "Pushed", "Pull", "Pulled", "Apply", "Applied", "Install", "Settled", "Survey", "Holdings"),
    draw=draw,
    steps_an_exchange=lambda settings: ParameterServerSettings.of(settings).algorithm.value.period,
    of_large={"ranges": 16},
    harshness={
        "a hung worker": (0.06, _hung_worker),
        "slow workers": (0.05, _slow_worker),
        "filters and a restart": (0.04, _filters_and_a_restart),
        "many ranges": (0.025, _many_ranges),
    },
    simpler=(
        {"copies": None},
        {"ranges": 16},
        {"algorithm": "sync"},
        {"consistency": None},
        {"server_update": None},
        {"filters": None},
        {"pull_filters": None},
    ),
)
