"""Simulated peers that benchmarks run: endpoints on a virtual network, and their part in the averaging."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch

from samovar.aggregation.outer import Plain
from samovar.aggregation.periods.fixed import Fixed
from samovar.aggregation.schedules.registry import SCHEDULES
from samovar.aggregation.vector import Layout, Part
from samovar.protocols.channel import Channel
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.local_sgd.ends import Ends
from samovar.protocols.local_sgd.local_sgd import LocalSGD
from samovar.protocols.local_sgd.rounds import LOCAL_SGD
from samovar.protocols.local_sgd.state import State
from samovar.protocols.members.membership import Membership, Terms
from samovar.protocols.members.messages import MEMBERS
from samovar.protocols.members.view import Attributes, Member
from samovar.protocols.meter import Meter
from samovar.protocols.stalls.messages import STALLS
from samovar.protocols.stalls.stalls import Stalls
from samovar.sims.world.network import Network
from samovar.sims.world.transport import SimulatedTransport


def endpoint(network: Network, index: int) -> Endpoint:
    return Endpoint(SimulatedTransport(network, f"peer-{index}"), patience_s=10.0, rng=random.Random(index))


async def connected(network: Network, count: int, partners: Callable[[int], list[int]]) -> list[Endpoint]:
    endpoints = [endpoint(network, index) for index in range(count)]
    for index, one in enumerate(endpoints):
        await one.open()
        for other in partners(index):
            one.dial(f"peer-{other}", "")
    return endpoints


async def joined(
    one: Endpoint,
    index: int,
    *,
    first: int,
    founders: int,
    layout: Layout,
    schedule: str,
    steps: int,
    buckets: Sequence[Part] = (),
) -> LocalSGD:
    """One peer's part in the averaging of the group that the peer `first` founds; it averages after every step."""
    member = Member(one.id, str(index), one.address, Attributes(data_shard=index - first), 0)
    terms = Terms(run=str(first), layout=layout.digest, model="", founders=founders)
    membership = Membership(Channel(one, MEMBERS), member, terms)
    stalls = Stalls(Channel(one, STALLS), membership, Meter(), lambda: sgd.state.round)
    sgd = LocalSGD(
        Channel(one, LOCAL_SGD), membership, stalls,
        layout=layout, schedule=lambda view: SCHEDULES[schedule], period=Fixed(1), outer=Plain(),
        state=State(0, 0, torch.zeros(layout.size), (), Fixed(1).start()), ends=Ends(steps=steps), buckets=buckets,
    )  # fmt: skip
    if index == first:
        sgd.membership.found()
    else:
        await sgd.enter(f"peer-{first}")
    return sgd
