"""Building gossip from the settings."""

from __future__ import annotations

from ...protocols.channel import Channel
from ...protocols.collectives.bound import Bound
from ...protocols.gossip.conversation import Gossip, Options
from ...protocols.gossip.exchange import NeighbourExchange
from ...protocols.gossip.messages import GOSSIP, Published
from ...protocols.gossip.neighbourhood import Neighbourhood
from ...protocols.gossip.pairs import PairNeighbourhood
from ...protocols.gossip.shares import Shares
from ...protocols.gossip.state import State, restored
from ...protocols.members.joining import Entry
from .gossip_settings import GossipSettings
from .registry import Registered, Setup


def build(setup: Setup) -> Gossip:
    """One peer's conversation. Raises ValueError when its checkpoint has more local steps than the run is to take."""
    settings, wished, facts = setup.settings, GossipSettings.of(setup.settings), setup.facts
    algorithm, parameters = wished.algorithm.value, facts.parameters
    if parameters is None:
        parameters = facts.layout.size
    state = State(0, 0, algorithm.begin(facts.vector, parameters), wished.period.value.start())
    if setup.resumed is not None:
        saved = restored(setup.resumed.tensors, *setup.resumed.numbers["gossip"])
        if saved.held.tensors.keys() != state.held.tensors.keys():
            raise ValueError(
                f"this run began with another --algorithm than {wished.algorithm.text}: go on with that one"
            )
        state = saved
    if setup.steps is not None and state.step > setup.steps:
        gone = f"this run has gone {state.step} local steps"
        raise ValueError(f"{gone}, and is to end after {setup.steps}: give more --steps")
    first = Published(state.round, state.step, algorithm.rest(state.held))
    options = Options(
        period=wished.period.value,
        parameters=parameters,
        steps=setup.steps,
        evaluate_every=settings.evaluate_every if "evaluation" in facts.can else 0,
    )
    shares = Shares() if algorithm.splits else None
    channel, by_rounds = Channel(setup.endpoint, GOSSIP), not algorithm.pairs
    exchange = NeighbourExchange(channel, first, wished.difference_codec, shares, by_rounds=by_rounds)
    graph, bound = algorithm.graph(wished.topology.value), Bound(wished.norm_limit)
    neighbourhood = (
        PairNeighbourhood(exchange, setup.membership, setup.stalls, graph, bound)
        if algorithm.pairs
        else Neighbourhood(exchange, setup.membership, setup.stalls, graph, bound, shares)
    )
    entry = Entry(setup.endpoint, setup.membership)
    return Gossip(neighbourhood, setup.membership, entry, setup.clock, algorithm, options, state)


CONVERSATION = Registered(
    settings=GossipSettings,
    build=build,
    ends_together=False,
    columns={"period": "Local steps", "neighbours": "Neighbours", "moved": "Change by a mix (share of the norm)"},
    simulation="samovar.sims.conversations.gossip",
)
