"""Building gossip from the settings."""

from __future__ import annotations

from ...aggregation.mixing.topology import needs_capacities
from ...protocols.channel import Channel
from ...protocols.collectives.bound import Bound
from ...protocols.gossip.algorithms.differences import Differences
from ...protocols.gossip.capacities import Capacities
from ...protocols.gossip.conversation import Gossip, Options
from ...protocols.gossip.exchange import NeighbourExchange
from ...protocols.gossip.graph import Graph, OfLinks, OfTopology
from ...protocols.gossip.messages import GOSSIP, Published
from ...protocols.gossip.neighbourhood import Neighbourhood
from ...protocols.gossip.pairs import PairNeighbourhood
from ...protocols.gossip.periods import Periods
from ...protocols.gossip.shares import Shares
from ...protocols.gossip.state import State, restored
from ...protocols.members.membership import Membership
from ..records.columns import KNOWN
from .gossip_settings import GossipSettings
from .registry import Registered, Setup


def build(setup: Setup) -> Gossip:
    """The gossip conversation of one peer. Raises ValueError when its checkpoint has more local steps than the run is
    to take, and when the algorithm that wrote it keeps other tensors (`Held.tensors`) than this run's. Algorithms that
    keep none, such as d_psgd and moshpit, may go on from each other's checkpoints."""
    settings, wished, facts = setup.settings, GossipSettings.of(setup.settings), setup.facts
    algorithm, parameters = wished.algorithm.value.suited(wished.difference_codec), facts.parameters
    if parameters is None:
        parameters = facts.layout.size
    state = State(0, 0, algorithm.begin(facts.vector, parameters), wished.period.value.start())
    if setup.resumed is not None:
        saved = restored(setup.resumed.tensors, *setup.resumed.numbers["gossip"], parameters=parameters)
        if saved.held.tensors.keys() != state.held.tensors.keys():
            raise ValueError(
                f"this run began with another --algorithm than {wished.algorithm.text}: go on with that one"
            )
        state = saved
    if setup.steps is not None and state.step > setup.steps:
        gone = f"this run has gone {state.step} local steps"
        raise ValueError(f"{gone}, and is to end after {setup.steps}: give more --steps")
    over = setup.steps is not None and state.step >= setup.steps  # so this peer publishes no other vector
    first = Published(state.round, state.step, algorithm.rest(state.held), last=over)
    options = Options(
        periods=Periods(wished.period.value, parameters, setup.clock),
        parameters=parameters,
        steps=setup.steps,
        evaluate_every=settings.evaluate_every if "evaluation" in facts.can else 0,
    )
    shares = Shares() if algorithm.splits else None
    channel, by_rounds = Channel(setup.endpoint, GOSSIP), not algorithm.pairs
    codec, steps = wished.difference_codec, setup.steps
    differences = None if codec is None else Differences(codec, parameters)
    exchange = NeighbourExchange(channel, first, differences, shares, by_rounds=by_rounds, steps=steps)
    graph, bound = graph_of(setup, wished), Bound(wished.norm_limit)
    neighbourhood = (
        PairNeighbourhood(exchange, setup.membership, setup.stalls, graph, bound, parameters)
        if algorithm.pairs
        else Neighbourhood(exchange, setup.membership, setup.stalls, graph, bound, shares)
    )
    if isinstance(setup.membership, Membership) and needs_capacities(algorithm.graph(wished.topology.value)):
        neighbourhood.on_round.append(Capacities(channel, setup.membership).consider)
    return Gossip(neighbourhood, setup.membership, setup.way, setup.clock, algorithm, options, state)


def graph_of(setup: Setup, wished: GossipSettings) -> Graph:
    """The graph whose neighbours one peer mixes with. Where SWIM gives each peer only a few links, it is these links;
    else it is the algorithm's (`Algorithm.graph`): its own, or the topology that the settings choose, of which AD-PSGD
    takes one random neighbour in each round."""
    algorithm = wished.algorithm.value
    if wished.membership.value.links(setup.settings.peers) is not None:
        return OfLinks(setup.membership, algorithm.drawn)
    graph = algorithm.graph(wished.topology.value)
    return OfTopology(graph, setup.membership, in_groups=algorithm.in_groups)


CONVERSATION = Registered(
    settings=GossipSettings,
    build=build,
    ends_together=False,
    trains_on=True,
    columns={
        "period": "Local steps",
        "neighbours": "Neighbours",
        "moved": "Change by a mix (share of the norm)",
        KNOWN: "",
    },
    simulation="samovar.sims.conversations.gossip",
)
