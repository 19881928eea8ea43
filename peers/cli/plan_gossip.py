"""``samovar plan --protocol gossip``: predicts how fast models come together along each topology on given links."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.table import Column

from ...aggregation.mixing.registry import TOPOLOGIES, parse_topology
from ...aggregation.mixing.slim_fly import core
from ...aggregation.mixing.spectrum import rho, rounds_to
from ...aggregation.mixing.topology import Neighbours
from ...aggregation.schedules.cost import Links
from ..records.units import bytes_text, seconds_text
from .fitting import Folded

SHARE = 0.01
"""The share of the models' distance from their mean at which they count as together."""


@dataclass(frozen=True, slots=True)
class GossipPlan:
    """A topology's predicted cost. `gap`: 1 - rho; `rounds`: until 1 % of the distance is left, infinite: never;
    `round_s`: seconds of the exchange; `seconds`: of all these rounds; `bytes`: the most that a peer sends in all of
    them; `note`: what the user should know of it."""

    topology: str
    neighbours: int
    gap: float
    rounds: float
    round_s: float
    seconds: float
    bytes: float
    note: str = ""


def planned(name: str, links: Links, size: int) -> GossipPlan:
    """The plan of the topology `name` for a model of `size` bytes."""
    topology, count = parse_topology(name), links.world
    graph = topology.neighbours(count, 1)
    factor, rounds = rho(topology, count), rounds_to(topology, count, SHARE)
    exact = math.ceil(math.log2(count)) if topology.varies and factor <= 0 and count > 1 else 1
    rounds = float(max(exact, math.ceil(rounds))) if rounds < math.inf else rounds
    round_s, sent = _exchange_s(graph, links, size), max(map(len, _takers(graph)), default=0)
    most = max(map(len, graph), default=0)
    return GossipPlan(
        name, most, 1 - factor, rounds, round_s, rounds * round_s, rounds * sent * size, _note(name, count)
    )


def all_planned(names: Sequence[str], links: Links, size: int) -> list[GossipPlan]:
    """The plans of these topologies, the fastest first."""
    return sorted((planned(name, links, size) for name in names), key=lambda plan: plan.seconds)


def names_of(text: str) -> list[str]:
    """The topologies that the user asks for: ``all``, or one with its options. Raises ValueError."""
    if text == "all":
        return [*TOPOLOGIES]
    parse_topology(text)
    return [text]


def graphs_of(plans: Sequence[GossipPlan], count: int) -> Mapping[str, Neighbours]:
    """The graph of each, for a drawing; of a topology that varies, that of the first round."""
    return {f"{plan.topology}: {_rounds(plan)}": parse_topology(plan.topology).neighbours(count, 1) for plan in plans}


def as_json(plans: Sequence[GossipPlan]) -> dict[str, object]:
    """The plans as plain values; numbers that are infinite are null."""
    rows = [{key: None if value == math.inf else value for key, value in asdict(plan).items()} for plan in plans]
    return {"best": plans[0].topology, "topologies": rows}


def table(plans: Sequence[GossipPlan]) -> Folded:
    heads = ("neighbours", "gap", "rounds", "an exchange", "together after", "sent by a peer")
    numbers = [Column(head, justify="right", no_wrap=True) for head in heads]
    made = Folded(Column(""), Column("topology", no_wrap=True), *numbers, repeated=2)
    for number, plan in enumerate(plans):
        together = "never" if plan.seconds == math.inf else seconds_text(plan.seconds)
        sent = "" if plan.bytes == math.inf else bytes_text(round(plan.bytes))
        cells = (str(plan.neighbours), f"{plan.gap:.3g}", _rounds(plan), seconds_text(plan.round_s), together, sent)
        best = number == 0
        made.add_row("→" if best else "", plan.topology, *cells, style="bold" if best else "")
    return made


def _rounds(plan: GossipPlan) -> str:
    return "never" if plan.rounds == math.inf else f"{plan.rounds:,.0f}"


def _exchange_s(graph: Neighbours, links: Links, size: int) -> float:
    """Seconds from the first peer's question to the last peer's last byte, where all ask at once: a question, then all
    vectors, each peer's over its own link one after the other."""
    out = [len(of) for of in _takers(graph)]
    slowest = 0.0
    for vertex, of in enumerate(graph):
        far = max((2 * max(links.alpha_s[vertex], links.alpha_s[other]) for other in of), default=0.0)
        up = max((out[other] * size / links.up_Bps[other] for other in of), default=0.0)
        slowest = max(slowest, far + max(up, len(of) * size / links.down_Bps[vertex]))
    return slowest + 2 * links.overhead_s


def _takers(graph: Neighbours) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in graph]
    for vertex, of in enumerate(graph):
        for other in of:
            found[other].append(vertex)
    return found


def _note(name: str, count: int) -> str:
    if not name.startswith("slim_fly"):
        return ""
    if (q := core(count)) is None:
        return "there is no Slim Fly of fewer than 18 peers: each is the neighbour of all"
    size = 2 * q * q
    return f"a Slim Fly of {size} peers, and {count - size} that hang on two of it each" if size < count else ""
