"""The parameter server in simulations: its promises, rare places and drawn settings."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from ...aggregation.consistency import parse_consistency
from ...peers.conversations.parameter_server_settings import ParameterServerSettings
from ...protocols.parameter_server.algorithms.registry import AnyAlgorithm, parse_algorithm
from ..checkers.membership import MEMBERSHIP
from ..checkers.parameter_server import PARAMETER_SERVER
from ..scenarios.scenario import Group
from .simulation import OF_ROUNDS, Simulation

_CONSISTENCIES = ("bsp", "ssp:1", "ssp:4", "bounded:2", "async")
_ALGORITHMS = ("sync", "sync", "backup:1", "downpour:1:2", "staleness_aware", "softsync:2", "easgd:0.2:2")
_MAPPED_EVERY = 8
"""One seed in so many draws an algorithm of map and reduce."""
_MAPPED: tuple[dict[str, str | None], ...] = (
    {"algorithm": "statistical_query:descent", "consistency": "bsp", "server_update": "sgd:0.05", "filters": None},
    {"algorithm": "sandblaster:3", "consistency": "bsp", "server_update": None, "filters": None},
)
_SHARED_EVERY = 20
"""One seed in so many draws the algorithm in shared memory, which has no servers."""
_RANGES = (16, 16, 16, 16, 4, 1)
"""Models in simulations are small: without this each would be one range."""
_FILTERED_EVERY = 7
"""One seed in so many draws filters of pushes."""
_FILTERS = ("significant:0.05,skip:0.3", "top_k:0.2", "skip:0.5,int8")
_UPDATES = ("add", "sgd:0.05", "momentum:0.02", "adagrad:0.05", "adam:0.01")


def draw(chance: random.Random, seed: int, groups: Sequence[Group]) -> Mapping[str, Any]:
    """Draws the parameter server's own settings for the scenario of `seed` (`Draw`). `groups` is not used."""
    servers = chance.choice((1, 2, 2, 3))
    drawn: dict[str, Any] = {"servers": servers, "algorithm": chance.choice(_ALGORITHMS)}
    drawn["copies"] = chance.choice((None, None, 1, servers))
    algorithm = parse_algorithm(drawn["algorithm"])
    drawn["consistency"] = chance.choice([text for text in _CONSISTENCIES if _goes_with(algorithm, text)])
    drawn["server_update"] = chance.choice(_UPDATES)
    drawn["ranges"] = _RANGES[seed % len(_RANGES)]
    if seed % _FILTERED_EVERY == _FILTERED_EVERY - 1 and not drawn["algorithm"].startswith("easgd"):
        drawn["filters"] = _FILTERS[seed // _FILTERED_EVERY % len(_FILTERS)]
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


SIMULATION = Simulation(
    checkers=(*PARAMETER_SERVER, *MEMBERSHIP),
    places=("a push came again", "a range has moved"),
    too_rare=("a chain was repaired", "a push came before an earlier one"),
    out_of_reach=OF_ROUNDS,
    messages=("Push", "Pushed", "Pull", "Pulled", "Apply", "Applied", "Install", "Settled", "Survey", "Holdings"),
    draw=draw,
    steps_an_exchange=lambda settings: ParameterServerSettings.of(settings).algorithm.value.period,
    of_large={"ranges": 16},
    simpler=(
        {"copies": None},
        {"ranges": 16},
        {"algorithm": "sync"},
        {"consistency": None},
        {"server_update": None},
        {"filters": None},
    ),
)
