"""Scenes: what members do in a simulation, in virtual time, and the roster of one of them."""

from collections.abc import Awaitable, Callable
from typing import Any

from simulated import LINK, endpoint_in, simulate

from samovar.peers.settings.link_text import parse_link
from samovar.protocols.channel import Channel
from samovar.protocols.members.messages import MEMBERS
from samovar.protocols.members.roster import Roster
from samovar.protocols.members.view import Attributes, Member, View
from samovar.sims.world.network import Network


def scene(play: Callable[[], Awaitable[Any]], within_s: float = 2_000.0) -> Any:
    return simulate(play(), within_s=within_s)


def roster_of(count: int, generation: int = 5, *, started: bool = True) -> Roster:
    channel = Channel(endpoint_in(Network(parse_link(LINK), 1), "p0"), MEMBERS)
    roster = Roster(channel, Member("p0", "p0", "", Attributes(), 1))
    roster.view = View(
        generation,
        tuple(Member(f"p{i}", f"p{i}", "", Attributes(data_shard=i), 1, life=i + 1) for i in range(count)),
        started,
    )
    return roster
