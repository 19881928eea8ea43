"""Peers that have links to a few others only: the links make one graph, and mend it when peers are lost."""

import random

import pytest
from crowds import TEMPO, number, told

from samovar.protocols.members.view import Attributes, Member
from samovar.protocols.swim.dial_limit import DialLimit
from samovar.protocols.swim.effects import DeclaredDead, HeardDead, Suspected
from samovar.protocols.swim.messages import AskProbe, Found, Link, Linked, Near, Probe, Walk
from samovar.protocols.wire.frames import PeerMisbehaved
from samovar.sims.world.crowd import Crowd

LINKS, MOST = 5, 11


def founded(count: int, *, seed: int = 0, loss: float = 0.0) -> Crowd:
    """Each has come in through a random one of those before it, all within five periods, and the run has started."""
    crowd = Crowd(count, timing=TEMPO, seed=seed, loss=loss, links=LINKS, founders=count)
    chance = random.Random(seed)
    crowd.begin(crowd.peers[0])
    for index in range(1, count):
        crowd.network.at(5.0 * index / count, crowd.join, index, chance.randrange(index))
    crowd.run(30.0)
    return crowd


def links_of(crowd: Crowd) -> dict[int, set[int]]:
    return {
        peer.index: {number(one) for one in peer.swim.table.entries if crowd.by_id[one].here}
        for peer in crowd.peers
        if peer.here
    }


def parts_of(links: dict[int, set[int]]) -> int:
    """Of how many connected parts the graph consists."""
    left, parts = set(links), 0
    while left:
        parts, ahead = parts + 1, [left.pop()]
        while ahead:
            new = links[ahead.pop()] & left
            left -= new
            ahead += new
    return parts


def are_well(crowd: Crowd) -> bool:
    """Whether the links make one graph, each for both of its ends, and each peer has about as many as it wishes."""
    links = links_of(crowd)
    both = all(one in links[other] for one, others in links.items() for other in others)
    return both and parts_of(links) == 1 and all(LINKS <= len(others) <= LINKS + 2 for others in links.values())


@pytest.fixture(scope="module")
def crowd() -> Crowd:
    return founded(150)


def test_newcomers_make_one_graph_of_links_for_both_ends(crowd: Crowd) -> None:
    assert are_well(crowd)
    assert all(peer.swim.gathering.started for peer in crowd.peers)
    assert told(crowd, Suspected) == []


def test_a_failure_is_found_by_neighbours_and_heard_of_by_all_and_the_graph_mends() -> None:
    crowd = founded(120, seed=1)
    crowd.end(7)
    crowd.run(45.0)
    assert told(crowd, Suspected, 7)[0][0] - 30.0 < 2 * (LINKS + 2), "the bound of round robin"
    heard = {who for _, who in told(crowd, HeardDead, 7) + told(crowd, DeclaredDead, 7)}
    assert heard == {*range(120)} - {7}
    assert are_well(crowd)


def test_lost_probes_make_few_suspects_and_no_dead_by_links_too() -> None:
    crowd = founded(100, seed=2, loss=0.05)
    before, probes = len(told(crowd, Suspected)), sum(peer.swim.detector.probes for peer in crowd.peers)
    crowd.run(230.0)
    probes = sum(peer.swim.detector.probes for peer in crowd.peers) - probes
    assert probes >= 19_900
    assert len(told(crowd, Suspected)) - before < 0.001 * probes
    assert told(crowd, DeclaredDead) == []
    assert are_well(crowd)


def test_two_thirds_of_the_peers_make_one_graph_again_when_a_third_is_lost_at_once() -> None:
    crowd = founded(150, seed=3)
    for index in range(0, 150, 3):
        crowd.end(index)
    crowd.run(90.0)
    assert are_well(crowd)


def test_both_sides_of_a_partition_go_on_and_merge_when_it_has_healed() -> None:
    crowd = founded(60, seed=4)
    crowd.network.cut = lambda sender, to: number(sender) % 2 != number(to) % 2
    crowd.run(80.0)
    for side in (0, 1):
        links = {one: others for one, others in links_of(crowd).items() if one % 2 == side}
        assert parts_of(links) == 1
        assert all(other % 2 == side for others in links.values() for other in others)
    crowd.network.cut = lambda sender, to: False
    crowd.run(140.0)
    assert are_well(crowd)


def test_a_restarted_peer_comes_in_again_under_its_key_with_a_new_life() -> None:
    crowd = founded(40, seed=5)
    peer = crowd.restart(11, contact=3)
    crowd.run(60.0)
    assert are_well(crowd)
    for other in crowd.peers:
        if peer.id in other.swim.table.entries:
            assert other.swim.table.entries[peer.id].member.life == 2


def test_a_newcomer_whose_contact_is_lost_at_once_stays_alone_without_a_storm() -> None:
    """It knows nobody else: its user has to join it again."""
    crowd = founded(40, seed=6)
    fresh = crowd.restart(11, contact=3)
    crowd.end(3)
    crowd.run(60.0)
    assert not fresh.swim.table.entries
    sent = crowd.network.sent["Link"]
    fresh.here = False
    crowd.run(120.0)
    assert crowd.network.sent["Link"] - sent <= 2 * (LINKS + 2) * 60 / 8, "former neighbours ask now and then"


def test_keys_that_are_let_in_and_new_connections_are_bounded() -> None:
    """Two hundred come and go."""
    crowd = founded(60, seed=7)
    calls: dict[str, list[tuple[float, str]]] = {}
    carry, known = crowd.network.carry, {}

    def counted(sender: str, to: str, message: object, channel: str) -> None:
        met = known.setdefault(sender, set())
        if isinstance(message, Link | AskProbe | Probe) and to not in met:
            met.add(to)
            calls.setdefault(sender, []).append((crowd.network.now_s, to))
        carry(sender, to, message, channel)

    crowd.network.carry = counted  # type: ignore[method-assign]
    for turn in range(200):
        crowd.network.at(31.0 + turn / 2, crowd.restart, turn % 40, 40 + turn % 20)
    most = 0
    for second in range(31, 141):
        crowd.run(float(second))
        most = max(most, *(len(peer.let_in) for peer in crowd.peers))
    assert most <= MOST * (MOST + 1) + 64 + 64 + 16
    for times in calls.values():
        starts_s = [when_s for when_s, _ in times]
        assert all(sum(since_s <= one < since_s + 60.0 for one in starts_s) <= 45 + MOST for since_s in starts_s)
    crowd.run(170.0)
    assert are_well(crowd)


def test_dials_are_bounded_by_the_minute() -> None:
    dial_limit = DialLimit(30)
    assert sum(dial_limit.take(0.0) for _ in range(100)) == 15
    assert sum(dial_limit.take(float(second)) for second in range(1, 121) for _ in range(5)) == 60


def test_no_peer_sends_more_when_there_are_more_peers() -> None:
    sent = {}
    for count in (40, 160):
        crowd = founded(count, seed=8)
        crowd.network.measured = True
        crowd.run(50.0)
        sent[count] = crowd.network.sent_bytes / count / 20.0
    assert sent[160] == pytest.approx(sent[40], rel=0.02)


def somebody(name: str) -> Member:
    return Member(name, "somebody", "sim://somebody", Attributes(), 0, "", 1)


@pytest.mark.parametrize(
    "message",
    [
        lambda me, it: Walk(somebody("x"), 6, (it,)),
        lambda me, it: Walk(somebody(it), 7, (it,)),
        lambda me, it: Walk(somebody(it), 6, ()),
        lambda me, it: Walk(somebody("x"), 0, ("x",) * 8),
        lambda me, it: Walk(somebody("x"), 3, ("x", "y")),
        lambda me, it: Walk(somebody("x" * 65), 6, ("x" * 65,)),
        lambda me, it: Found(somebody("x"), ()),
        lambda me, it: Found(somebody("x"), ("y",)),
        lambda me, it: Found(somebody("x"), (me,) * 8),
        lambda me, it: Link(somebody("x"), 0, 0),
        lambda me, it: Link(somebody(it), 2**63 - 1, 0),
        lambda me, it: Linked(True, somebody("x"), 0),
        lambda me, it: Linked(True, somebody(it), 2**63 - 1),
        lambda me, it: Linked(True, somebody(it), 0, somebody("")),
        lambda me, it: Near(tuple(somebody(f"x{one}") for one in range(MOST + 1))),
        lambda me, it: Near((somebody("x/y"),)),
    ],
)
def test_a_message_that_no_honest_peer_sends_is_a_fault_of_its_sender(crowd: Crowd, message: object) -> None:
    peer = crowd.peers[5]
    before, neighbour = peer.swim.table.words(), next(iter(peer.swim.table.entries))
    with pytest.raises(PeerMisbehaved):
        crowd.inside(peer, lambda: peer.swim.heard(neighbour, message(peer.id, neighbour)))
    assert peer.swim.table.words() == before


def test_a_stranger_that_no_member_vouches_for_gets_no_link_and_no_walk(crowd: Crowd) -> None:
    peer = crowd.peers[5]
    before = dict(peer.swim.table.entries)
    for message in (Link(somebody("stranger"), 0, 0), Walk(somebody("stranger"), 6, ("stranger",))):
        crowd.inside(peer, lambda message=message: peer.swim.heard("stranger", message))
    assert peer.swim.table.entries == before
