"""SWIM as a state machine, among a hundred peers on a lean network: failures are found, the living stay, words are
refuted."""

import math
from collections import Counter

import pytest
from crowds import TEMPO, all_know_all, crowd_of, members_of, number, told
from tiers import soaked

from samovar.protocols.swim.effects import DeclaredDead, HeardDead, Known, Suspected
from samovar.protocols.swim.timing import Timing
from samovar.sims.world.crowd import Crowd


@pytest.mark.parametrize("eager", [soaked(0), 3])
def test_a_failure_is_found_within_the_bound_and_known_to_all_a_few_periods_later(eager: int) -> None:
    """Of n peers each probes another one in each period, so none probes a given one with the probability
    (1 - 1/(n-1))^(n-1), about 1/e: the expected time until it is probed is 1 / (1 - 1/e) = 1.58 periods."""
    found_s, known_s = [], []
    for seed in range(12):
        crowd = Crowd(60, timing=Timing(period_s=1.0, eager=eager), seed=seed)
        crowd.acquaint()
        crowd.run(5.0)
        crowd.peers[7].here = False
        crowd.run(25.0)
        found_s.append(told(crowd, Suspected, 7)[0][0] - 5.0)
        heard = told(crowd, HeardDead, 7) + told(crowd, DeclaredDead, 7)
        assert {who for _, who in heard} == {*range(60)} - {7}
        known_s.append(max(when_s for when_s, _ in heard) - told(crowd, DeclaredDead, 7)[0][0])
        assert all_know_all(crowd)
    assert sum(found_s) / len(found_s) < 1.58 + 1 + 0.5, "a period later the probe has failed"
    assert max(known_s) <= math.log2(60)


def test_lost_probes_make_few_suspects_and_no_dead() -> None:
    """With a loss of p = 0.05 of each message a probe of a live peer fails if it or its answer is lost, and on each of
    three detours one of four messages: (1 - (1-p)^2) (1 - (1-p)^4)^3 = 0.0975 * 0.1855^3 = 6.2e-4 of all probes."""
    crowd = crowd_of(100, loss=0.05, seed=1)
    crowd.run(300.0)
    probes = sum(peer.swim.detector.probes for peer in crowd.peers)
    suspected = len(told(crowd, Suspected))
    assert probes > 30_000
    assert suspected < 0.001 * probes
    assert suspected > 0.0002 * probes, "the network does lose probes"
    assert told(crowd, DeclaredDead) == told(crowd, HeardDead) == []
    assert all_know_all(crowd)


def test_a_restarted_peer_is_a_new_life_to_all_and_its_old_life_is_over() -> None:
    crowd = crowd_of(30)
    crowd.run(3.0)
    peer = crowd.restart(4, contact=9)
    crowd.run(12.0)
    assert all_know_all(crowd)
    for other in crowd.peers:
        if other is not peer:
            assert other.swim.table.entries[peer.id].member.life == 2
            assert ("4", "it was restarted", False) in other.departures
    assert told(crowd, DeclaredDead) == []


def test_both_sides_of_a_partition_go_on_and_merge_when_it_has_healed() -> None:
    crowd = crowd_of(24)
    crowd.run(3.0)
    crowd.network.cut = lambda sender, to: (number(sender) < 12) != (number(to) < 12)
    crowd.run(40.0)
    for peer in crowd.peers:
        assert members_of(peer) == {*(range(12) if peer.index < 12 else range(12, 24))} - {peer.index}
    crowd.network.cut = lambda sender, to: False
    crowd.run(70.0)
    assert all_know_all(crowd)


def test_an_isolated_peer_finds_the_others_again() -> None:
    crowd = crowd_of(10)
    crowd.run(3.0)
    crowd.network.cut = lambda sender, to: 0 in (number(sender), number(to))
    crowd.run(200.0)
    assert members_of(crowd.peers[0]) == set()
    crowd.network.cut = lambda sender, to: False
    crowd.run(230.0)
    assert all_know_all(crowd)


def test_two_peers_that_cannot_reach_each_other_stay_members_by_their_helpers() -> None:
    """Also where only one direction is cut."""
    crowd = crowd_of(20)
    cut = {(3, 4), (4, 3), (5, 6)}
    crowd.network.cut = lambda sender, to: (number(sender), number(to)) in cut
    crowd.run(200.0)
    assert all_know_all(crowd)
    assert told(crowd, DeclaredDead) == []


def test_a_deaf_peer_accuses_no_peer_and_is_declared_dead() -> None:
    crowd = crowd_of(20)
    crowd.run(3.0)
    crowd.network.cut = lambda sender, to: number(to) == 5
    crowd.run(40.0)
    assert {event.peer for _, _, event in crowd.events if isinstance(event, HeardDead)} == {crowd.peers[5].id}
    assert members_of(crowd.peers[0]) == {*range(1, 20)} - {5}
    crowd.network.cut = lambda sender, to: False
    crowd.run(80.0)
    assert all_know_all(crowd)


def test_a_paused_peer_does_not_suspect_the_others() -> None:
    crowd = crowd_of(20)
    crowd.run(5.0)
    crowd.pause(7, 2.6)
    crowd.run(20.0)
    assert not [who for _, who in told(crowd, Suspected) if who == 7]
    assert all_know_all(crowd)


def test_a_leaving_peer_is_gone_at_once_and_not_probed() -> None:
    crowd = crowd_of(20)
    crowd.run(3.0)
    crowd.leave(2)
    crowd.run(12.0)
    assert all_know_all(crowd)
    for peer in crowd.peers:
        if peer.here:
            assert peer.departures == [("2", "it has left", True)]
    crowd.network.sent.clear()
    crowd.run(40.0)
    assert crowd.network.sent["Probe"] == pytest.approx(28 * 19, abs=40), "nobody probes beside its turn"


def test_newcomers_come_in_through_any_member_and_all_hear_of_them() -> None:
    crowd = Crowd(40, timing=TEMPO, founders=40)
    crowd.begin(crowd.peers[0])
    for index in range(1, 40):
        crowd.network.at(0.1 * index, crowd.join, index, (index - 1) // 2)
    crowd.run(20.0)
    assert all(peer.swim.gathering.started for peer in crowd.peers)
    assert all_know_all(crowd)


def test_many_newcomers_at_once_all_begin_within_a_few_periods() -> None:
    crowd = Crowd(60, timing=TEMPO, founders=60)
    crowd.begin(crowd.peers[0])
    for index in range(1, 60):
        crowd.network.at(0.01, crowd.join, index, 0)
    crowd.run(4.0)
    assert all(peer.swim.gathering.started for peer in crowd.peers)


def test_memory_does_not_grow_with_peers_that_came_and_went() -> None:
    """Three hundred come and go, one after the other."""
    crowd = Crowd(320, timing=TEMPO, room=40)
    for index in range(320):
        if index < 20:
            crowd.network.at(0.0, *((crowd.join, index, 0) if index else (crowd.begin, crowd.peers[0])))
        else:
            crowd.network.at(0.5 * index, crowd.join, index, index % 20)
            crowd.network.at(0.5 * index + 4.0, crowd.end, index)
    crowd.run(180.0)
    known = [event for _, _, event in crowd.events if isinstance(event, Known)]
    assert max(one.members for one in known) <= 40
    assert max(one.graves for one in known) <= 64
    assert max(one.rumours for one in known) <= 128
    assert {members_of(peer) == {*range(20)} - {peer.index} for peer in crowd.peers[:20]} == {True}


def test_no_peer_sends_more_when_there_are_more_peers() -> None:
    sent = {}
    for count in (20, 80):
        crowd = crowd_of(count)
        crowd.network.measured = True
        crowd.run(20.0)
        sent[count] = crowd.network.sent_bytes / count / 20.0
    assert sent[80] == pytest.approx(sent[20], rel=0.02)


def test_equal_seeds_give_equal_runs() -> None:
    runs = []
    for _ in range(2):
        crowd = crowd_of(20, loss=0.2, seed=3)
        crowd.run(20.0)
        runs.append((crowd.events, Counter(crowd.network.sent)))
    assert runs[0] == runs[1]
