"""One member among others that a test plays."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from company import Company
from conformance import over
from simulated import LINK, endpoint_in, simulate

from samovar.peers.settings.link_text import parse_link
from samovar.protocols.channel import Envelope
from samovar.protocols.local_sgd.commit import Commit, Have
from samovar.protocols.local_sgd.local_sgd import LocalSGD
from samovar.protocols.local_sgd.rounds import LOCAL_SGD
from samovar.protocols.members.messages import MEMBERS, Adopted, Promise
from samovar.protocols.members.view import Attributes, Decree, Member, Version, View
from samovar.sims.world.network import Network


class Puppet:
    """p1 of three members, of whom p0 and p2 are played by the test."""

    def __init__(self) -> None:
        self.network = Network(parse_link(LINK), 1)
        self.company = Company(3)
        self.company.network = self.network
        self.walker = self.company.walker(1)
        self.others = {name: endpoint_in(self.network, name) for name in ("p0", "p2")}
        self.heard: list[tuple[str, Any]] = []
        for other in self.others.values():
            for kind, channel in ((Promise, MEMBERS), (Adopted, MEMBERS), (Have, LOCAL_SGD)):
                over(other, channel).on(kind, partial(self._hear, other.id))

    def _hear(self, name: str, envelope: Envelope) -> None:
        self.heard.append((name, envelope.message))

    @property
    def sgd(self) -> LocalSGD:
        return self.walker.sgd

    async def open(self) -> None:
        for endpoint in (self.walker.endpoint, *self.others.values()):
            await endpoint.open()
            for other in ("p0", "p1", "p2"):
                endpoint.dial(other, f"sim://{other}")
        own = self.walker.membership.me.life
        members = tuple(
            Member(f"p{i}", f"p{i}", f"sim://p{i}", Attributes(data_shard=i), i + 1, life=own if i == 1 else i)
            for i in range(3)
        )
        self.walker.membership._take(decree(3, members), "p0")

    async def tell(self, sender: str, message: object) -> list[Any]:
        """Say something to p1 and return what it answers."""
        self.heard.clear()
        channel = LOCAL_SGD if isinstance(message, Commit) else MEMBERS
        over(self.others[sender], channel).post("p1", message)
        await asyncio.sleep(0.5)
        return [heard for name, heard in self.heard if name == sender]

    def close(self) -> None:
        self.walker.membership.close()
        for endpoint in (self.walker.endpoint, *self.others.values()):
            endpoint.abort()


def with_puppet(scene: Any) -> None:
    async def main() -> None:
        puppet = Puppet()
        await puppet.open()
        try:
            await scene(puppet)
        finally:
            puppet.close()

    simulate(main())


NOTHING = Version(0, 0)


def decree(generation: int, members: tuple[Member, ...]) -> Decree:
    return Decree(View(generation, members, True), NOTHING, tuple(member.id for member in members), ())
