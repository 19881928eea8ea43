"""Gossip in simulations: its promises, rare places and drawn settings."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...aggregation.mixing.registry import GIVEN_BY_NAME, parse_topology
from ...aggregation.mixing.topology import needs_capacities
from ...peers.conversations.gossip_settings import USUAL_TOPOLOGY, GossipSettings
from ...protocols.gossip.algorithms.registry import ALGORITHMS, parse_algorithm
from ..checkers.gossip import GOSSIP
from ..checkers.membership import MEMBERSHIP
from ..checkers.swim import SWIM
from ..scenarios.scenario import Fault, Group, Kind, Moment, Scenario
from .simulation import OF_ROUNDS, Simulation

_BY_SWIM = 1 / 3
_PERIODS = ("1", "2", "4", "8", "adaptive", "auto")


def draw(chance: random.Random, seed: int, groups: Sequence[Group]) -> Mapping[str, Any]:
    """Draws gossip's own settings for the scenario of `seed` (`Draw`), by name. `groups` is not used."""
    drawn: dict[str, Any] = {"algorithm": chance.choice(sorted(ALGORITHMS)), "period": chance.choice(_PERIODS)}
    algorithm = parse_algorithm(drawn["algorithm"])
    if algorithm.bears_codecs:
        drawn["topology"] = chance.choice(("ring", "torus", "regular:4", "complete"))
        drawn["codec"] = chance.choice(("none", "int8", "top_k:0.1", "sign"))
    elif not algorithm.own_graph:
        drawn["topology"] = chance.choice([*sorted(GIVEN_BY_NAME), "edges:0-1"])
    return drawn | _membership(random.Random(f"membership {seed}"), drawn)


def _membership(chance: random.Random, drawn: Mapping[str, Any]) -> dict[str, Any]:
    """Settings for the membership by SWIM in a third of all scenarios, and in half of these with links to a few peers,
    if the other settings go with that; else none."""
    if chance.random() > _BY_SWIM or needs_capacities(parse_topology(drawn.get("topology", USUAL_TOPOLOGY))):
        return {}
    if chance.random() < 0.5 or parse_algorithm(drawn["algorithm"]).drawn == 0:
        return {"membership": "swim"}
    return {"membership": f"swim:{chance.choice((3, 4))}", "topology": USUAL_TOPOLOGY}


def _cut_off_takers(scenario: Scenario, chance: random.Random) -> Scenario:
    """A peer is cut off for several patiences as it confirms that it has taken a share of push-sum."""
    if not GossipSettings.of(scenario.settings).algorithm.value.splits:
        return scenario
    moment = Moment("Took", chance.randint(1, 30), sent=True)
    for_s = chance.uniform(2.0, 6.0) * scenario.settings.patience_s
    cut = Fault(kind=Kind.CUT_OFF, who=("sender",), at_message=moment, for_s=for_s)
    return replace(scenario, faults=(*scenario.faults, cut))


SIMULATION = Simulation(
    checkers=(*GOSSIP, *MEMBERSHIP, *SWIM),
    places=(
        "a neighbour gave nothing",
        "a share came back",
        "a member was suspected",
        "a suspicion was refuted",
        "a helper reached whom a peer did not",
        "a member was declared dead",
    ),
    too_rare=(
        "a difference led from an unknown estimate",
        "a lost member is back",
        "a member began a new life",
        "a neighbour has written over its vector",
        "an estimate began anew at a newcomer's",
        "a peer goes on from far newer models",
        "a peer asks one that it knew for a link",
        "an accuser lost its word",
        "neighbours by capacity",
    ),
    out_of_reach=OF_ROUNDS,
    messages=("Want", "Given", "Took", "Capable"),
    draw=draw,
    harshness={"cut-off takers of shares": (0.7, _cut_off_takers)},
    steps_an_exchange=lambda settings: GossipSettings.of(settings).period.value.start().period,
    simpler=(
        {"algorithm": "d_psgd", "codec": "none"},
        {"topology": USUAL_TOPOLOGY},
        {"membership": "views"},
        {"period": "1"},
    ),
)
