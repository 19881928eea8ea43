"""The settings of gossip."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from ...aggregation.codecs.codec import Codec
from ...aggregation.mixing.capacity import Capacity
from ...aggregation.mixing.edge_list import EdgeList
from ...aggregation.mixing.random_graphs import Epidemic, RandomRegular, SmallWorld
from ...aggregation.mixing.registry import TOPOLOGIES, parse_topology
from ...aggregation.mixing.topology import Topology, needs_capacities
from ...aggregation.periods.policy import PeriodPolicy
from ...protocols.collectives.bound import NORM_LIMIT
from ...protocols.gossip.algorithms.algorithm import Algorithm
from ...protocols.gossip.algorithms.differences import DifferenceCodec
from ...protocols.gossip.algorithms.registry import ALGORITHMS, parse_algorithm
from ..memberships import Kind, parse_membership
from ..settings import validators as rules
from ..settings.common import CommonSettings
from ..settings.fields import NO_STOP, OwnSettings, SettingsError, another_algorithm, setting
from ..settings.validators import Parsed, Rule, parsed
from .edge_files import with_edges
from .period_settings import PeriodSettings

USUAL_TOPOLOGY = "exponential"


def _topology() -> Rule:
    said = f"one of {', '.join(TOPOLOGIES)}, with options as in regular:4 or edges:FILE"
    take = parsed(parse_topology)
    return Rule(lambda value: take(with_edges(value) if isinstance(value, str) else value), said, "NAME", str)


def _algorithm() -> Rule:
    said = f"one of {', '.join(ALGORITHMS)}, with options as in moshpit:3"
    return Rule(parsed(parse_algorithm), said, "NAME", str)


def _membership() -> Rule:
    said = "views, or swim, which may say how many links a peer has, as in swim:8"
    return Rule(parsed(parse_membership), said, "NAME", str)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GossipSettings(PeriodSettings):
    """The settings of gossip (``--protocol gossip``). `period` is 8 by default, and not adaptive as in
    `PeriodSettings`."""

    first: ClassVar[tuple[str, ...]] = ("algorithm", "topology", "period")
    groups: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "When peers average": ("period", "period_initial", "period_block_s"),
        "What they average": ("algorithm",),
        "Connections": ("topology", "membership", "codec"),
        "Faults, in seconds": ("norm_limit",),
    }
    instead: ClassVar[Mapping[str, str]] = {"stop": NO_STOP}

    algorithm: Parsed[Algorithm] = setting("d_psgd", _algorithm(), "Gossip algorithm, as choco.", agreed=True)
    topology: Parsed[Topology] = setting(USUAL_TOPOLOGY, _topology(), "The graph of neighbours.", agreed=True)
    membership: Parsed[Kind] = setting("views", _membership(), "views, or swim for many peers.", agreed=True)
    codec: Parsed[Codec | None] = setting("none", rules.codec(), "With choco: encoding of differences.", agreed=True)
    period: Parsed[PeriodPolicy] = setting("8", rules.period(), "Local steps between two mixes.", agreed=True)
    norm_limit: float = setting(NORM_LIMIT, rules.times(10, 1e30), "Largest growth of a model's norm.", agreed=True)

    def goes_on_from(self, before: OwnSettings) -> str:
        """A line for the user if a run of the gossip settings `before` goes on with these by another algorithm; "": the
        algorithm is the same. Refuses nothing: most algorithms keep a peer's model alone, and
        `conversations.gossip.build` refuses a checkpoint of one that keeps more, or less."""
        assert isinstance(before, GossipSettings)
        return another_algorithm(before.algorithm.text, self.algorithm.text)

    def check(self, common: CommonSettings) -> None:
        by_links = self.membership.value.links(common.peers) is not None
        if by_links:
            self._check_links(common.peers)
        self._check_codec(by_links=by_links)
        self._check_edges(common.peers)
        if needs_capacities(self.topology.value) and self.membership.text != "views":
            raise SettingsError(f"{self.topology.text} goes by a view, which --membership swim has not", "topology")
        if common.budget_per_day is not None and by_links:
            why = f"has a peer leave and come back, and by {self.membership.text} its few links are gone then"
            raise SettingsError(why, "budget_per_day")
        if self.algorithm.value.own_graph and self.topology.text != USUAL_TOPOLOGY:
            raise SettingsError(f"has no use with {self.algorithm.text}, which has a graph of its own", "topology")

    def membership_kind(self) -> Kind:
        return self.membership.value

    def idle_here(self, common: CommonSettings) -> str:
        own_graph, others = self.algorithm.value.own_graph, common.peers - 1
        graph = self.algorithm.value.graph(self.topology.value)
        wished = graph.degree if isinstance(graph, Capacity | Epidemic | RandomRegular | SmallWorld) else 0
        if not 0 < others < wished or self.membership.value.links(common.peers) is not None:
            return ""
        text = self.algorithm.text if own_graph else self.topology.text
        each = "the only other one" if others == 1 else f"all {others} others"
        return f"{text} asks for {wished} neighbours of a peer, which mixes with {each}"

    def _check_links(self, peers: int) -> None:
        """Refuse settings for which a peer must know all peers."""
        swim = f"{self.membership.text} with {peers} peers"
        if self.topology.text != USUAL_TOPOLOGY:
            raise SettingsError(f"has no use by {swim}: each has a few links, and these are the graph", "topology")
        if self.algorithm.value.drawn == 0:
            why = f"has to know all peers, and by {swim} each has a few links"
            raise SettingsError(f"{self.algorithm.text} {why}", "algorithm")

    def _check_codec(self, *, by_links: bool) -> None:
        codec, topology = self.codec.value, self.topology.value
        if codec is None:
            return
        if not self.algorithm.value.bears_codecs:
            able = " or ".join(name for name in ALGORITHMS if parse_algorithm(name).bears_codecs)
            raise SettingsError(f"{self.codec.text} is for --algorithm {able}, whose mixes bear coarse models", "codec")
        if codec.family == "sketch":
            raise SettingsError(f"cannot be {self.codec.text}, which needs the mean of all peers", "codec")
        if not by_links and (topology.varies or topology.directed):
            why = "sends differences from round to round: it needs a topology that is undirected and stays"
            raise SettingsError(f"{self.codec.text} {why}, as regular:4 or torus", "codec")
        try:
            self.algorithm.value.suited(codec)
        except ValueError as error:
            raise SettingsError(f"{self.codec.text} {error}: no mix bears that", "codec") from None

    def _check_edges(self, peers: int) -> None:
        topology = self.topology.value
        if isinstance(topology, EdgeList) and (last := max(topology.numbers)) >= peers:
            raise SettingsError(f"has edges of peer {last}, beyond the {peers} peers, counted from 0", "topology")

    @property
    def difference_codec(self) -> DifferenceCodec | None:
        """The codec of the differences that CHOCO-SGD sends; None: vectors are sent without encoding."""
        codec = self.codec.value
        assert codec is None or codec.family != "sketch"
        return codec
