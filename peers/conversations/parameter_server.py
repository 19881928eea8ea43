"""Building the parameter server from the settings: a server or a worker, by the peer's role."""

from __future__ import annotations

from ...aggregation.rows import Table
from ...protocols.channel import Channel
from ...protocols.conversation import Conversation
from ...protocols.members.attributes import SERVER
from ...protocols.members.joining import Entry
from ...protocols.members.membership import Membership
from ...protocols.members.presence import Presence
from ...protocols.parameter_server.client import Client
from ...protocols.parameter_server.keys import Keys, Model
from ...protocols.parameter_server.messages import PARAMETER_SERVER
from ...protocols.parameter_server.placement import ranges_of
from ...protocols.parameter_server.serving import Parts, Serving, restored
from ...protocols.parameter_server.store import Store
from ...protocols.parameter_server.tenure import Tenure
from ...protocols.parameter_server.worker import Options, State, Worker
from .parameter_server_settings import ParameterServerSettings
from .registry import Registered, Setup


def build(setup: Setup) -> Conversation:
    """One peer's conversation: a server's or a worker's, by its role. Raises ValueError for a checkpoint that does not
    fit."""
    wished, facts, endpoint = ParameterServerSettings.of(setup.settings), setup.facts, setup.endpoint
    parameters = facts.layout.size if facts.parameters is None else facts.parameters
    tables = tuple(Table(name, *values.shape) for name, values in facts.tables.items())
    dtype = next((values.dtype for values in facts.tables.values()), facts.layout.dtype)
    keys = Keys(ranges_of(facts.layout.size, parameters), parameters, dtype, tables)
    channel = Channel(endpoint, PARAMETER_SERVER)
    membership = setup.membership
    assert isinstance(membership, Membership), "placement goes by views, which all members agree on"
    presence = Presence(membership, Entry(endpoint, membership), endpoint.interval_s)
    if membership.me.attributes.role == SERVER:
        store = Store(keys, wished.function)
        return Serving(
            _parts(setup, wished, store, channel), membership, presence, setup.clock, setup.settings.evaluate_every
        )
    algorithm = wished.algorithm.value.under(wished.bound)
    if tables and (algorithm.meets or algorithm.pulls_every > 1):
        raise ValueError(f"--algorithm {wished.algorithm.text} does not pull at each turn, as a task with rows() needs")
    options = Options(
        algorithm=algorithm,
        consistency=wished.bound,
        function=wished.function,
        parameters=parameters,
        steps=setup.steps,
        evaluate_every=setup.settings.evaluate_every if "evaluation" in facts.can else 0,
        tables=tables,
    )
    state = State(0, 0, facts.vector)
    if setup.resumed is not None:
        clock, step = setup.resumed.numbers["parameter_server"]
        state = State(clock, step, setup.resumed.tensors["parameter_server/model"])
    if setup.steps is not None and state.step > setup.steps:
        gone = f"this run has gone {state.step} local steps"
        raise ValueError(f"{gone}, and is to end after {setup.steps}: give more --steps")
    client = Client(channel, presence, keys, wished.held)
    return Worker(client, presence, setup.clock, options, state)


def _parts(setup: Setup, wished: ParameterServerSettings, store: Store, channel: Channel) -> Parts:
    """The objects of which a server is made up. Raises ValueError for a checkpoint that does not fit."""
    resumed, initial = setup.resumed, Model(setup.facts.vector, setup.facts.tables)
    if resumed is not None:
        restored(store, resumed.tensors, resumed.numbers["parameter_server"])
    tenure = Tenure(channel, len(store.keys), wished.held)
    algorithm, first = wished.algorithm.value.under(wished.bound), None if store.copies else initial
    return Parts.around(channel, store, tenure, wished.bound, algorithm, setup.stalls, first)


CONVERSATION = Registered(
    settings=ParameterServerSettings,
    build=build,
    ends_together=False,
    columns={
        "change": "Norm of the change",
        "rows": "Rows of tables",
        "updates": "Updates",
        "staleness": "Staleness",
        "ranges": "Ranges",
    },
    simulation="samovar.sims.conversations.parameter_server",
)
