"""Crowds of SWIM for tests: who knows whom, and what was told."""

from samovar.protocols.swim.timing import Timing
from samovar.sims.world.crowd import Bystander, Crowd

TEMPO = Timing(period_s=1.0)


def crowd_of(count: int, **more: object) -> Crowd:
    crowd = Crowd(count, timing=TEMPO, **more)
    crowd.acquaint()
    return crowd


def told(crowd: Crowd, kind: type, of: int | None = None) -> list[tuple[float, int]]:
    """When, and by whom, such an event was told of this peer."""
    peer = None if of is None else crowd.peers[of].id
    return [
        (when_s, who)
        for when_s, who, event in crowd.events
        if isinstance(event, kind) and (peer is None or event.peer == peer)
    ]


def number(peer: str) -> int:
    """The number of the peer with this id."""
    return int(peer, 16)


def members_of(peer: Bystander) -> set[int]:
    """The numbers of the members that a peer knows."""
    return {number(one) for one in peer.swim.table.entries}


def all_know_all(crowd: Crowd) -> bool:
    here = {peer.index for peer in crowd.peers if peer.here}
    return all(members_of(peer) == here - {peer.index} for peer in crowd.peers if peer.here)
