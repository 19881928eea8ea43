"""``samovar plan --protocol gossip``: predicts, for each topology that is asked for, the rounds, seconds and bytes
until 1 % of the models' distance from their mean is left, from the size of the model and each peer's link."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.table import Column

from ...aggregation.mixing.edge_list import EdgeList
from ...aggregation.mixing.registry import GIVEN_BY_NAME, parse_topology
from ...aggregation.mixing.slim_fly import SlimFly, core
from ...aggregation.mixing.spectrum import rho, rounds_to
from ...aggregation.mixing.topology import Neighbours, Topology, Vertex, among
from ...aggregation.schedules.cost import Links
from ..conversations.edge_files import with_edges
from ..records.units import bytes_text, count_text, seconds_text
from .fitting import Folded

SHARE = 0.01
"""The share of the models' initial distance from their mean that is left when they count as together."""


@dataclass(frozen=True, slots=True)
class GossipPlan:
    """A topology's predicted cost. `neighbours`: of the peer that has most; `gap`: 1 minus the factor by which a round
    of mixing multiplies the models' distance from their mean, so the greater, the faster; `rounds`: exchanges until 1 %
    of that distance is left, infinite: never; `round_s`: seconds of one exchange; `seconds`: of all `rounds`; `bytes`:
    sent in all rounds by the peer that sends most; `note`: a remark for the user, "": none."""

    topology: str
    neighbours: int
    gap: float
    rounds: float
    round_s: float
    seconds: float
    bytes: float
    note: str = ""


def planned(name: str, links: Links, size: int) -> GossipPlan:
    """The plan of the topology `name`, with its options, for a model of `size` bytes, for one peer on each of the
    `links`. Raises as `names_of` for a topology that cannot be used."""
    topology, count = _topology(name, links), links.world
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
    """The plans of the topologies `names`, the fastest first; see `planned`."""
    return sorted((planned(name, links, size) for name in names), key=lambda plan: plan.seconds)


def names_of(text: str) -> list[str]:
    """The names of the topologies that `text` asks for: ``all`` stands for those that need no options, any other text
    for one topology, with its options. Raises ValueError for an unknown name, for invalid options, and for a file of
    edges that cannot be read or is invalid."""
    if text == "all":
        return [*GIVEN_BY_NAME]
    parse_topology(with_edges(text))
    return [text]


def graphs_of(plans: Sequence[GossipPlan], links: Links) -> Mapping[str, Neighbours]:
    """By title, the graph of each plan's topology, for a drawing; the first round's, where the graph changes from round
    to round."""
    return {
        f"{plan.topology:.40}: {_rounds(plan)}": _topology(plan.topology, links).neighbours(links.world, 1)
        for plan in plans
    }


def _topology(name: str, links: Links) -> Topology:
    """The topology that the user asks for, of peers with these links."""
    return among(parse_topology(with_edges(name)), (Vertex(at, round(Bps)) for at, Bps in enumerate(links.up_Bps)))


def as_json(plans: Sequence[GossipPlan]) -> dict[str, object]:
    """The plans, of which the first is the best, as plain values; numbers that are infinite are null. There must be a
    plan."""
    rows = [{key: None if value == math.inf else value for key, value in asdict(plan).items()} for plan in plans]
    return {"best": plans[0].topology, "topologies": rows}


def table(plans: Sequence[GossipPlan]) -> Folded:
    """The table of these plans, in their order; the first one is marked as the best."""
    heads = ("neighbours", "gap", "rounds", "an exchange", "together after", "sent by a peer")
    numbers = [Column(head, justify="right", no_wrap=True) for head in heads]
    made = Folded(Column(""), Column("topology", no_wrap=True), *numbers, repeated=2)
    for number, plan in enumerate(plans):
        together = "never" if plan.seconds == math.inf else seconds_text(plan.seconds)
        sent = "" if plan.bytes == math.inf else bytes_text(round(plan.bytes))
        cells = (str(plan.neighbours), f"{plan.gap:.3g}", _rounds(plan), seconds_text(plan.round_s), together, sent)
        best = number == 0
        made.add_row("→" if best else "", f"{plan.topology:.40}", *cells, style="bold" if best else "")
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
    asked = parse_topology(with_edges(name))
    if isinstance(asked, EdgeList) and (left := len([one for one in asked.numbers if one >= count])):
        return f"the edges of {count_text(left, 'peer')} beyond --peers {count} are left out"
    if not isinstance(asked, SlimFly):
        return ""
    if (q := core(count)) is None:
        return "there is no Slim Fly of fewer than 18 peers: each is the neighbour of all"
    size = 2 * q * q
    return f"a Slim Fly of {size} peers, and {count - size} that hang on two of it each" if size < count else ""
