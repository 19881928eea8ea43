"""Building the parameter server from the settings: a server or a worker, by the peer's role, or a worker in memory that
all share."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...aggregation.filters.filter import Filters
from ...aggregation.rows import Table
from ...protocols.channel import Channel
from ...protocols.conversation import Conversation
from ...protocols.members.attributes import SERVER
from ...protocols.members.joining import Entry
from ...protocols.members.membership import Membership
from ...protocols.members.presence import Presence
from ...protocols.parameter_server.algorithms.algorithm import Algorithm, MapReduce, Shared
from ...protocols.parameter_server.client import Client
from ...protocols.parameter_server.coordinator import Coordinator
from ...protocols.parameter_server.filtering import Filtering, Residual
from ...protocols.parameter_server.keys import Keys, Model
from ...protocols.parameter_server.lending import Lending
from ...protocols.parameter_server.mapper import Mapper, Mapping
from ...protocols.parameter_server.messages import PARAMETER_SERVER
from ...protocols.parameter_server.options import Options
from ...protocols.parameter_server.orders import Orders
from ...protocols.parameter_server.partitions import named_mappers, names_of
from ...protocols.parameter_server.placement import ranges_of
from ...protocols.parameter_server.portions import Portions, Taker
from ...protocols.parameter_server.serving import REACHED, Parts, Serving, restored
from ...protocols.parameter_server.sharer import Sharer, Sharing
from ...protocols.parameter_server.state import State
from ...protocols.parameter_server.store import Store
from ...protocols.parameter_server.tenure import Tenure
from ...protocols.parameter_server.worker import Worker
from ...protocols.testpoints import witnessed
from ..machine.process_memory import Returns
from ..records.columns import SINCE_LAST
from .parameter_server_settings import ParameterServerSettings
from .registry import Registered, Setup


def build(setup: Setup) -> Conversation:
    """One peer's conversation: a server's or a worker's, by its role, or that of a worker without servers if the
    algorithm runs in shared memory. Raises ValueError for a server's checkpoint that `serving.restored` refuses, for a
    worker's that has more local steps than the run is to take (one that maps partitions reads no checkpoint), and for a
    task that does not fit the algorithm. A checkpoint of another algorithm is refused only by these checks."""
    wished, facts, endpoint = ParameterServerSettings.of(setup.settings), setup.facts, setup.endpoint
    rule = wished.algorithm.value.under(wished.bound)
    if isinstance(rule, Shared):
        return _sharer(setup, rule)
    keys, initial = _begun(setup, wished.algorithm.text, rule)
    channel, (membership, presence) = Channel(endpoint, PARAMETER_SERVER), _present(setup)
    every = setup.settings.evaluate_every
    setup.stalls.by_clocks = wished.bound.slack is not None
    if membership.me.attributes.role == SERVER:
        return Serving(_parts(setup, channel, rule, keys, initial), membership, presence, setup.clock, every)
    client = Client(channel, presence, keys, wished.held)
    evaluate_every = every if "evaluation" in facts.can else 0
    if isinstance(rule, MapReduce):
        taker = Taker(channel, wished.held) if rule.coordinated else None
        return Mapper(client, presence, setup.clock, _mapping(setup, rule, evaluate_every, taker), facts.vector)
    state = _state(setup)
    options = _options(setup, rule, keys, evaluate_every, state.residual)
    return Worker(client, presence, setup.clock, options, state)


def _present(setup: Setup) -> tuple[Membership, Presence]:
    membership, endpoint = setup.membership, setup.endpoint
    assert isinstance(membership, Membership), "placement goes by views, which all members agree on"
    return membership, Presence(membership, Entry(endpoint, membership), endpoint.interval_s)


def _sharer(setup: Setup, algorithm: Shared) -> Conversation:
    """A worker in memory that all share. Raises ValueError for a model that cannot lie there, and for a checkpoint of a
    run that has gone further than this one is to."""
    if "sharing" not in setup.facts.can:
        name = ParameterServerSettings.of(setup.settings).algorithm.text
        why = "all of it are parameters of one type, without averaged buffers and frozen parameters"
        raise ValueError(f"--algorithm {name} needs a model on the CPU that can lie in one vector: {why}")
    begun, (_, presence) = _state(setup), _present(setup)
    every = setup.settings.evaluate_every if "evaluation" in setup.facts.can else 0
    options = Sharing(algorithm=algorithm, steps=setup.steps or 0, evaluate_every=every)
    channel = Channel(setup.endpoint, PARAMETER_SERVER)
    lending = Lending(channel, presence, setup.memories, begun.model, lambda: sharer.progress)
    sharer = Sharer(lending, presence, setup.clock, options, (begun.clock, begun.step))
    return sharer


def _begun(setup: Setup, name: str, rule: Algorithm | MapReduce) -> tuple[Keys, Model]:
    """The ranges of the servers' values, and the values with which a new run begins. Raises ValueError for a model that
    the algorithm `name` has no use for."""
    facts, fewest = setup.facts, ParameterServerSettings.of(setup.settings).ranges
    parameters = facts.layout.size if facts.parameters is None else facts.parameters
    if isinstance(rule, MapReduce):
        if parameters < facts.layout.size:
            raise ValueError(f"--algorithm {name} trains no model with averaged buffers, such as those of batch norm")
        vector = rule.start(facts.vector)
        summed = parameters if rule.of_loss else vector.numel()
        return Keys(ranges_of(vector.numel(), summed, fewest), summed, facts.layout.dtype), Model(vector, {})
    tables = tuple(Table(name, *values.shape) for name, values in facts.tables.items())
    if tables and (rule.meets or rule.pulls_every > 1):
        raise ValueError(f"--algorithm {name} does not pull at each turn, as a task with rows() needs")
    dtype = next((values.dtype for values in facts.tables.values()), facts.layout.dtype)
    ranges = ranges_of(facts.layout.size, parameters, fewest)
    own = ParameterServerSettings.of(setup.settings)
    codec = None if own.filters is None else own.filters.value.codec
    pulls = own.pull_filters
    if pulls is not None and not ranges and pulls.value.codec is None:
        why = "all values of this model are rows, of which a pull has just those that are needed"
        raise ValueError(f"--pull-filters {pulls.text} has nothing to filter: {why}; name a codec")
    keys = Keys(ranges, parameters, dtype, tables, codec, None if pulls is None else pulls.value)
    return keys, Model(facts.vector, facts.tables)


def _options(setup: Setup, algorithm: Algorithm, keys: Keys, evaluate_every: int, residual: Residual) -> Options:
    """`residual`: what the filters of the run that is resumed have held back. Without filters now, all of it passes."""
    wished, facts = ParameterServerSettings.of(setup.settings), setup.facts
    parameters = facts.layout.size if facts.parameters is None else facts.parameters
    filters = None if wished.filters is None else wished.filters.value
    if filters is None and residual and not algorithm.meets:
        filters = Filters(())
    return Options(
        algorithm=algorithm,
        consistency=wished.bound,
        function=wished.function(facts.defined),
        parameters=parameters,
        steps=setup.steps,
        evaluate_every=evaluate_every,
        tables=keys.tables,
        filters=None if filters is None else Filtering(filters, keys, parameters),
    )


def _state(setup: Setup) -> State:
    """A worker's position. Raises ValueError for a checkpoint of a run that has gone further than this one is to."""
    if setup.resumed is None:
        return State(0, 0, setup.facts.vector)
    clock, step = setup.resumed.numbers["parameter_server"]
    if setup.steps is not None and step > setup.steps:
        gone = f"this run has gone {step} local steps"
        raise ValueError(f"{gone}, and is to end after {setup.steps}: give more --steps")
    tensors = setup.resumed.tensors
    residual = Residual.of(tensors, setup.facts.tables)
    return State(clock, step, tensors["parameter_server/model"], residual=residual, own=clock > 0)


def _mapping(setup: Setup, algorithm: MapReduce, evaluate_every: int, taker: Taker | None) -> Mapping:
    """Raises ValueError for a task without query()."""
    if not algorithm.of_loss and "queries" not in setup.facts.can:
        raise ValueError("--algorithm statistical_query needs a task with a function query(rows)")
    return Mapping(
        algorithm=algorithm,
        partitions=algorithm.partitions(setup.settings.peers),
        steps=_steps(setup, algorithm),
        evaluate_every=evaluate_every,
        taker=taker,
    )


def _steps(setup: Setup, algorithm: MapReduce) -> int:
    """The steps of the run: as many as the algorithm takes, or as the user asks for."""
    asked = setup.steps or 0
    return asked if algorithm.steps is None else min(asked, algorithm.steps)


def _parts(setup: Setup, channel: Channel, rule: Algorithm | MapReduce, keys: Keys, initial: Model) -> Parts:
    """The objects of which a server is made up. Raises ValueError for a checkpoint that does not fit."""
    wished, resumed = ParameterServerSettings.of(setup.settings), setup.resumed
    names = names_of(rule.partitions(setup.settings.peers)) if isinstance(rule, MapReduce) else ()
    coordinated = isinstance(rule, MapReduce) and rule.coordinated
    function, limit = wished.function(setup.facts.defined), wished.norm_limit
    store = Store(keys, function, names, coordinated=coordinated, norm_limit=limit)
    if resumed is not None:
        restored(store, resumed.tensors, resumed.numbers["parameter_server"])
        store.reached = int(resumed.numbers.get(REACHED, 0))
    tenure = Tenure(channel, len(keys), wished.held, partial(named_mappers, () if coordinated else names))
    first = None if store.copies else initial
    parts = Parts.around(channel, store, tenure, wished.bound, rule, setup.stalls, first)
    if not witnessed():  # of a simulation all peers are in one process
        parts.chains.on_entries.append(Returns())
    if not isinstance(rule, MapReduce) or not rule.coordinated:
        return parts
    orders = Orders(channel, store, tenure, parts.chains)
    portions = Portions(channel, store, tenure, parts.intake)
    return replace(parts, more=(orders, portions, Coordinator(channel, tenure, orders, _steps(setup, rule))))


CONVERSATION = Registered(
    settings=ParameterServerSettings,
    build=build,
    ends_together=False,
    columns={
        "change": "Norm of the change",
        "rows": "Rows of tables",
        "held_back": "Held back (elements)",
        "updates": f"Updates of its ranges ({SINCE_LAST})",
        "staleness": "Staleness",
        "ranges": "Ranges",
    },
    simulation="samovar.sims.conversations.parameter_server",
)
