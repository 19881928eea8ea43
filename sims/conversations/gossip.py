"""Gossip in simulations: its promises, rare places and drawn settings."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from ...aggregation.mixing.registry import GIVEN_BY_NAME
from ...peers.conversations.gossip_settings import GossipSettings
from ...protocols.gossip.algorithms.registry import ALGORITHMS, parse_algorithm
from ..checkers.gossip import GOSSIP
from ..scenarios.scenario import Group
from .simulation import Simulation

_PERIODS = ("1", "2", "4", "8", "adaptive", "auto")


def draw(chance: random.Random, seed: int, groups: Sequence[Group]) -> Mapping[str, Any]:
    """The own settings of gossip in the scenario of `seed`."""
    drawn: dict[str, Any] = {"algorithm": chance.choice(sorted(ALGORITHMS)), "period": chance.choice(_PERIODS)}
    algorithm = parse_algorithm(drawn["algorithm"])
    if algorithm.bears_codecs:
        drawn["topology"] = chance.choice(("ring", "torus", "regular:4", "complete"))
        drawn["codec"] = chance.choice(("none", "int8", "top_k:0.1", "sign"))
    elif not algorithm.own_graph:
        drawn["topology"] = chance.choice([*sorted(GIVEN_BY_NAME), "edges:0-1"])
    return drawn


SIMULATION = Simulation(
    checkers=GOSSIP,
    places=("a neighbour gave nothing", "a share came back"),
    too_rare=(
        "a neighbour has written over its vector",
        "a peer goes on from far newer models",
        "neighbours by capacity",
    ),
    messages=("Want", "Given", "Took", "Capable"),
    draw=draw,
    steps_an_exchange=lambda settings: GossipSettings.of(settings).period.value.start().period,
    simpler=({"algorithm": "d_psgd", "codec": "none"}, {"topology": "exponential"}, {"period": "1"}),
)
