"""Simulated peers that are members of something, and do nothing else, for tests of memberships."""

from collections import Counter
from collections.abc import Iterable

from simulated import LINK, endpoint_in

from samovar.peers.settings.link_text import parse_link
from samovar.protocols.channel import Channel, Envelope
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.members.errors import MembershipError
from samovar.protocols.members.invitation import Invitation
from samovar.protocols.members.membership import Membership
from samovar.protocols.members.messages import MEMBERS, Leave
from samovar.protocols.members.neighbours import Neighbours
from samovar.protocols.members.terms import Terms
from samovar.protocols.members.view import Attributes, Member, View
from samovar.protocols.swim.entry import SwimEntry
from samovar.protocols.swim.membership import SwimMembership
from samovar.protocols.swim.messages import SWIM
from samovar.protocols.transport import PeerId
from samovar.sims.world.network import Network

NAMES = ("p0", "p1", "p2", "p3")


def attributes_of(name: str, role: str = "") -> Attributes:
    return Attributes(role=role, site=f"site of {name}", data_shard=NAMES.index(name))


class Village:
    """Peers on one network. `members`: of each one that is there, its end of the membership."""

    def __init__(self) -> None:
        self.network = Network(parse_link(LINK), 1)
        self.endpoints = dict[str, Endpoint]()
        self._lives = Counter[str]()

    async def opened(self, name: str) -> Endpoint:
        self._lives[name] += 1
        endpoint = self.endpoints[name] = endpoint_in(self.network, name, self._lives[name])
        await endpoint.open()
        for other in NAMES:
            endpoint.admit(other)
        return endpoint

    def crash(self, name: str) -> None:
        self.network.close(name)
        self.gone(name)

    def gone(self, name: str) -> None:
        self.endpoints.pop(name).abort()

    def over(self) -> None:
        for name in [*self.endpoints]:
            self.gone(name)


class Town(Village):
    """Peers that decide views."""

    def __init__(self, founders: int) -> None:
        super().__init__()
        self.founders, self.members = founders, dict[str, Membership]()

    async def come(self, name: str, role: str = "", contact: str = NAMES[0]) -> Membership:
        """Found the run, or join it through the contact."""
        endpoint = await self.opened(name)
        me = Member(endpoint.id, name, endpoint.address, attributes_of(name, role), 0)
        terms = Terms(run="test", layout="", model="", founders=self.founders)
        membership = self.members[name] = Membership(Channel(endpoint, MEMBERS), me, terms)
        if name == NAMES[0]:
            membership.found()
        else:
            endpoint.dial(contact, f"sim://{contact}")
            await membership.knock(contact)
            await membership.join(contact)
        return membership

    def gone(self, name: str) -> None:
        self.members.pop(name).close()
        super().gone(name)

    async def all_have(self, *names: str) -> View:
        """Wait until all peers have a settled view with these members."""
        for membership in self.members.values():
            await membership.until(lambda of=membership: of.settled and {*of.view.ids} == {*names})
        return self.members[names[0]].view


class Swarm(Village):
    """Peers whose membership is by SWIM. `links`: of each; None: each knows all. Nobody knows another one's key but the
    founder's, and those of `known` peers, which anybody lets in."""

    def __init__(self, founders: int, links: int | None = None, known: Iterable[str] = NAMES) -> None:
        super().__init__()
        self.founders, self.links, self.known = founders, links, [*known]
        self.members = dict[str, SwimMembership]()

    async def opened(self, name: str) -> Endpoint:
        endpoint = self.endpoints[name] = endpoint_in(self.network, name, seed=len(self.endpoints))
        await endpoint.open()
        for other in self.known:
            endpoint.admit(other)
        return endpoint

    async def come(self, name: str, contact: str = NAMES[0], invitation: Invitation | None = None) -> SwimMembership:
        """Found the run, or join it through the contact."""
        members = await self.made(name, invitation)
        await self.enter(name, contact)
        return members

    async def made(self, name: str, invitation: Invitation | None = None) -> SwimMembership:
        endpoint, number = await self.opened(name), int(name[1:])
        own = Attributes(site=f"site of {name}", data_shard=number)
        me = Member(endpoint.id, name, endpoint.address, own, 0)
        terms = Terms(run="test", layout="", model="", founders=self.founders)
        members = self.members[name] = SwimMembership(Channel(endpoint, SWIM), me, terms, self.links, invitation)
        return members

    async def enter(self, name: str, contact: str) -> None:
        if name == contact:
            self.members[name].found()
        else:
            self.endpoints[name].dial(contact, f"sim://{contact}")
            await SwimEntry(self.endpoints[name], self.members[name]).enter(contact)

    def gone(self, name: str) -> None:
        self.members.pop(name).close()
        super().gone(name)

    async def all_know_all(self) -> None:
        """Wait until each knows all others."""
        for members in self.members.values():
            await members.until(lambda of=members: {*of.view.ids} == {*self.members})


class Listed:
    """The simplest membership: peers that are given once and for all. One that is lost, or leaves, does not return."""

    def __init__(self, endpoint: Endpoint, members: Iterable[Member]) -> None:
        everybody = {member.id: member for member in members}
        self.me, self.neighbours = everybody.pop(endpoint.id), Neighbours()
        self._there, self._channel = everybody, Channel(endpoint, MEMBERS)
        endpoint.on_lost.append(self.lost)
        self._channel.on(Leave, self._on_leave)

    def begin(self) -> None:
        for member in self._there.values():
            self._channel.endpoint.dial(member.id, member.address)
        self._channel.watch({*self._there})
        self.neighbours.become(self._there.values(), lambda member: "")

    async def at_least(self, count: int) -> None:
        if len(self._there) < count:
            raise MembershipError(f"{len(self._there)} others are left, and nobody comes")

    def lost(self, peer: PeerId, why: str) -> None:
        self._there.pop(peer, None)
        self.neighbours.become(self._there.values(), lambda member: why)

    async def leave(self, why: str) -> None:
        for peer in self._there:
            self._channel.post(peer, Leave(why))

    def _on_leave(self, envelope: Envelope) -> None:
        self.lost(envelope.sender, f"left: {envelope.message.why}")


class Hamlet(Village):
    """Peers that have a list of each other."""

    def __init__(self) -> None:
        super().__init__()
        self.members = dict[str, Listed]()

    async def gathered(self, *names: str) -> None:
        for name in names:
            await self.opened(name)
        members = [Member(one.id, one.id, one.address, attributes_of(one.id), 0) for one in self.endpoints.values()]
        self.members = {name: Listed(self.endpoints[name], members) for name in names}
