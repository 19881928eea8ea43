"""Many machines that join by one invite at the same moment, as a cluster's nodes do: all get in."""

import asyncio
import contextlib

import pytest
import torch
from simulated import layout_of
from tiers import soaked

from samovar.aggregation.outer import Plain
from samovar.aggregation.periods.fixed import Fixed
from samovar.aggregation.schedules.registry import SCHEDULES
from samovar.peers.launch.join_target import JoinTarget
from samovar.peers.launch.keys import Invite
from samovar.peers.launch.session import open_endpoint
from samovar.peers.machine.open_files import raise_file_limit
from samovar.peers.run_settings.settings import Settings
from samovar.protocols.channel import Channel
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.local_sgd.local_sgd import Contribution, LocalSGD
from samovar.protocols.local_sgd.rounds import LOCAL_SGD
from samovar.protocols.local_sgd.state import State
from samovar.protocols.members.hello import Greeter
from samovar.protocols.members.invitation import Invitation
from samovar.protocols.members.membership import Membership, Terms
from samovar.protocols.members.messages import MEMBERS
from samovar.protocols.members.view import Attributes, Member
from samovar.protocols.meter import Meter
from samovar.protocols.stalls.messages import STALLS
from samovar.protocols.stalls.stalls import Stalls
from samovar.protocols.zeromq.transport import KeyPair

pytestmark = pytest.mark.timeout(90)

LAYOUT = layout_of(10)
SETTINGS = Settings(listen="tcp://127.0.0.1:0", advertise="127.0.0.1")


class Light:
    """A peer of a real run whose local steps take no time."""

    def __init__(self, endpoint: Endpoint, name: str, guest: str | None = None) -> None:
        self.endpoint = endpoint
        member = Member(endpoint.id, name, endpoint.address, Attributes(), 0)
        period = Fixed(10)
        terms = Terms(run="storm", layout=LAYOUT.digest, model="a number", founders=1)
        invitation = None if guest is None else Invitation(guest)
        self.membership = Membership(Channel(endpoint, MEMBERS), member, terms, invitation=invitation)
        self.sgd = LocalSGD(
            Channel(endpoint, LOCAL_SGD),
            self.membership,
            Stalls(Channel(endpoint, STALLS), self.membership, Meter(), lambda: self.sgd.state.round),
            layout=LAYOUT,
            schedule=lambda view: SCHEDULES["sharded"],
            period=period,
            outer=Plain(),
            state=State(0, 0, torch.zeros(LAYOUT.size), (), period.start()),
        )
        Greeter(endpoint, run="storm", settings="{}")

    async def round(self) -> None:
        now = asyncio.get_running_loop().time()
        await self.sgd.average(Contribution(self.sgd.state.vector + 1, 1.0, 1.0, 0.1, now, None))

    def close(self) -> None:
        self.membership.close()
        self.endpoint.abort()


async def founded(stack: contextlib.AsyncExitStack, key: KeyPair, guest: str) -> Light:
    endpoint = open_endpoint(SETTINGS, key.secret)
    await endpoint.open()
    founder = Light(endpoint, "founder", guest)
    stack.callback(founder.close)
    founder.membership.found()
    await founder.sgd.gather()
    return founder


async def joined(stack: contextlib.AsyncExitStack, name: str, address: str, invite: str) -> Light:
    door = JoinTarget.of(address, invite, None, SETTINGS)
    endpoint = await door.enter(SETTINGS)
    stack.callback(endpoint.abort)
    assert (await door.ask_run(endpoint)).run == "storm"
    light = Light(endpoint, name)
    stack.callback(light.close)
    await light.sgd.enter(door.contact)
    return light


async def going_on(light: Light) -> None:
    while True:
        await asyncio.sleep(0.05)
        now = asyncio.get_running_loop().time()
        await light.sgd.average(Contribution(light.sgd.state.vector + 1, 1.0, 1.0, 0.1, now, None))


@pytest.mark.parametrize("joiners", [12, soaked(32)])
async def test_many_newcomers_at_once_by_one_invite_all_get_in_and_take_part(joiners: int) -> None:
    raise_file_limit()
    key, working = KeyPair.new(), list[asyncio.Task[None]]()
    invite = Invite.to(key.public)
    async with contextlib.AsyncExitStack() as stack:
        founder = await founded(stack, key, invite.guest.public)
        working.append(asyncio.create_task(going_on(founder)))

        async def come(number: int) -> None:
            light = await joined(stack, f"{number}", founder.endpoint.address, invite.to_text())
            working.append(asyncio.create_task(going_on(light)))

        await asyncio.gather(*(come(number) for number in range(joiners)))
        await founder.membership.until(lambda: len(founder.membership.view.ids) == joiners + 1)
        assert founder.endpoint.refused == {}
        assert founder.membership.removals == []
        together = founder.sgd.state.round + 2
        await founder.membership.until(lambda: founder.sgd.state.round >= together)
        assert len(founder.membership.view.ids) == joiners + 1
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
