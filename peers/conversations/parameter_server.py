"""Building the parameter server from the settings: a server or a worker, by the peer's role."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from ...protocols.channel import Channel
from ...protocols.conversation import Conversation
from ...protocols.members.attributes import SERVER
from ...protocols.members.joining import Entry
from ...protocols.members.membership import Membership
from ...protocols.members.presence import Presence
from ...protocols.parameter_server.algorithms.algorithm import Algorithm, MapReduce
from ...protocols.parameter_server.chain import Chains
from ...protocols.parameter_server.client import Client
from ...protocols.parameter_server.coordinator import Coordinator
from ...protocols.parameter_server.intake import Intake
from ...protocols.parameter_server.mapper import Mapper, Mapping
from ...protocols.parameter_server.messages import PARAMETER_SERVER
from ...protocols.parameter_server.orders import Orders
from ...protocols.parameter_server.partitions import named_mappers, names_of
from ...protocols.parameter_server.placement import ranges_of
from ...protocols.parameter_server.portions import Portions, Taker
from ...protocols.parameter_server.reads import Reads
from ...protocols.parameter_server.serving import InView, Parts, Serving, restored
from ...protocols.parameter_server.store import Store
from ...protocols.parameter_server.takeover import Takeover
from ...protocols.parameter_server.tenure import Tenure
from ...protocols.parameter_server.worker import Options, State, Worker
from .parameter_server_settings import ParameterServerSettings
from .registry import Registered, Setup


def build(setup: Setup) -> Conversation:
    """One peer's conversation: a server's or a worker's, by its role. Raises ValueError for a checkpoint that does not
    fit, and for a task that does not fit the algorithm."""
    wished, facts, endpoint = ParameterServerSettings.of(setup.settings), setup.facts, setup.endpoint
    algorithm = wished.algorithm.value.under(wished.bound)
    parameters, initial = facts.layout.size if facts.parameters is None else facts.parameters, facts.vector
    maps = algorithm if isinstance(algorithm, MapReduce) else None
    if isinstance(algorithm, MapReduce):
        if parameters < facts.layout.size:
            raise ValueError(
                f"--algorithm {wished.algorithm.text} has no use for averaged buffers, and this model has some"
            )
        initial = algorithm.start(facts.vector)
        parameters = facts.layout.size if algorithm.of_loss else initial.numel()
    ranges = ranges_of(initial.numel(), parameters)
    channel = Channel(endpoint, PARAMETER_SERVER)
    membership = setup.membership
    assert isinstance(membership, Membership), "placement goes by views, which all members agree on"
    presence = Presence(membership, Entry(endpoint, membership), endpoint.interval_s)
    every = setup.settings.evaluate_every
    if membership.me.attributes.role == SERVER:
        names = () if maps is None else names_of(maps.partitions(setup.settings.peers))
        coordinated = maps is not None and maps.coordinated
        store = Store(ranges, facts.layout.dtype, parameters, wished.function, names, coordinated=coordinated)
        return Serving(_parts(setup, wished, store, channel, initial), membership, presence, setup.clock, every)
    client = Client(channel, presence, ranges, facts.layout.dtype, wished.held)
    evaluate_every = every if "evaluation" in facts.can else 0
    if isinstance(algorithm, MapReduce):
        taker = Taker(channel, wished.held) if algorithm.coordinated else None
        return _mapper(setup, algorithm, client, presence, evaluate_every, taker)
    options = Options(
        algorithm=algorithm,
        consistency=wished.bound,
        function=wished.function,
        parameters=parameters,
        steps=setup.steps,
        evaluate_every=evaluate_every,
    )
    state = State(0, 0, facts.vector)
    if setup.resumed is not None:
        clock, step = setup.resumed.numbers["parameter_server"]
        state = State(clock, step, setup.resumed.tensors["parameter_server/model"])
    if setup.steps is not None and state.step > setup.steps:
        gone = f"this run has gone {state.step} local steps"
        raise ValueError(f"{gone}, and is to end after {setup.steps}: give more --steps")
    return Worker(client, presence, setup.clock, options, state)


def _mapper(
    setup: Setup, algorithm: MapReduce, client: Client, presence: Presence, evaluate_every: int, taker: Taker | None
) -> Mapper:
    """A worker of an algorithm of map and reduce. Raises ValueError for a task without query()."""
    if not algorithm.of_loss and "queries" not in setup.facts.can:
        raise ValueError("--algorithm statistical_query needs a task with a function query(rows)")
    options = Mapping(
        algorithm=algorithm,
        partitions=algorithm.partitions(setup.settings.peers),
        steps=_steps(setup, algorithm),
        evaluate_every=evaluate_every,
        taker=taker,
    )
    return Mapper(client, presence, setup.clock, options, setup.facts.vector)


def _parts(setup: Setup, wished: ParameterServerSettings, store: Store, channel: Channel, initial: Tensor) -> Parts:
    """The objects of which a server is made up. `initial` [k]: the values with which a new run begins. Raises
    ValueError for a checkpoint that does not fit."""
    resumed, rule = setup.resumed, wished.algorithm.value.under(wished.bound)
    if resumed is not None:
        restored(store, resumed.tensors, resumed.numbers["parameter_server"])
    mapped = partial(named_mappers, () if store.coordinated else store.partitions)
    tenure = Tenure(channel, len(store.ranges), wished.held, mapped)
    reads = Reads(channel, store, tenure, wished.bound, setup.stalls)
    chains = Chains(channel, store, tenure)
    chains.on_entries.append(reads.look)
    intake = Intake(channel, store, tenure, chains, rule)
    takeover = Takeover(channel, store, tenure, chains, None if resumed is not None else initial)
    more = _coordinating(setup, channel, rule, Parts(store, tenure, chains, intake, reads, takeover))
    return Parts(store, tenure, chains, intake, reads, takeover, more)


def _coordinating(setup: Setup, channel: Channel, rule: Algorithm | MapReduce, parts: Parts) -> tuple[InView, ...]:
    """The further objects of a server in a run that a coordinator leads."""
    if not isinstance(rule, MapReduce) or not rule.coordinated:
        return ()
    store, tenure, chains = parts.store, parts.tenure, parts.chains
    orders = Orders(channel, store, tenure, chains)
    chains.on_entries.append(lambda ranges: orders.look())
    tenure.on_settled.append(orders.look)
    portions = Portions(channel, store, tenure, parts.intake)
    return orders, portions, Coordinator(channel, tenure, orders, _steps(setup, rule))


def _steps(setup: Setup, algorithm: MapReduce) -> int:
    """The steps of the run: as many as the algorithm takes, or as the user asks for."""
    asked = setup.settings.steps_max or 0
    return asked if algorithm.steps is None else min(asked, algorithm.steps)


CONVERSATION = Registered(
    settings=ParameterServerSettings,
    build=build,
    ends_together=False,
    columns={
        "change": "Norm of the change",
        "updates": "Updates",
        "staleness": "Staleness",
        "ranges": "Ranges",
    },
    simulation="samovar.sims.conversations.parameter_server",
)
