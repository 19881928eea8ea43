"""A member of SWIM that lies: no live peer is lost by words, the liar is named, and nothing grows without bound."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from crowds import TEMPO, all_know_all, crowd_of, members_of, told

from samovar.protocols.members.view import Attributes, Member
from samovar.protocols.swim.effects import DeclaredDead, Known
from samovar.protocols.swim.messages import MARKS_MAX, SWIM, TABLE_MAX, WORDS_MAX, AskProbe, Beat, Probe, Table, Tell
from samovar.protocols.swim.words import AHEAD_MAX, INCARNATION_MAX, Kind, Word
from samovar.protocols.wire.frames import PeerMisbehaved
from samovar.sims.world.crowd import Crowd

LIAR = 0


def said_by(crowd: Crowd, speaker: int, words: list[Word], to: int) -> None:
    """The speaker tells these words, with a beat as honest as usual."""
    peer = crowd.peers[speaker]
    beat = replace(peer.swim.beat(crowd.peers[to].id), words=tuple(words))
    peer.send(crowd.peers[to].id, Tell(beat))


def accusation(crowd: Crowd, accused: int, by: int, *, kind: int = Kind.SUSPECT, ahead: int = 0) -> Word:
    table = crowd.peers[accused].swim.table
    return Word(kind, table.me.id, table.me.life, table.incarnation + ahead, crowd.peers[by].id)


def flood(crowd: Crowd, words: Callable[[int], list[Word]], *, every_s: float = 0.1, until_s: float) -> None:
    """The liar tells each other peer such words again and again. `words`: by the number of the turn."""
    turn = 0

    def go_on() -> None:
        nonlocal turn
        for to in range(1, len(crowd.peers)):
            said_by(crowd, LIAR, words(turn), to)
        turn += 1
        if crowd.network.now_s < until_s:
            crowd.network.at(crowd.network.now_s + every_s, go_on)

    go_on()


@pytest.mark.parametrize("kind", [Kind.SUSPECT, Kind.DEAD])
def test_a_flood_of_accusations_is_refuted_and_its_author_is_named_and_believed_no_more(kind: int) -> None:
    crowd = crowd_of(20)
    crowd.run(3.0)
    flood(crowd, lambda turn: [accusation(crowd, one, LIAR, kind=kind) for one in range(1, 17)], until_s=40.0)
    crowd.run(40.0)
    assert told(crowd, DeclaredDead) == []
    assert all_know_all(crowd)
    for peer in crowd.peers[1:]:
        assert set(peer.distrusted) == {crowd.peers[LIAR].id}
    incarnations = [peer.swim.table.incarnation for peer in crowd.peers]
    crowd.run(60.0)
    flood(crowd, lambda turn: [accusation(crowd, one, LIAR, kind=kind) for one in range(1, 17)], until_s=75.0)
    crowd.run(80.0)
    later = [peer.swim.table.incarnation for peer in crowd.peers]
    assert max(one - other for one, other in zip(later, incarnations, strict=True)) <= 8
    assert all_know_all(crowd)


def test_accusations_in_anothers_name_cost_that_member_nothing_and_kill_no_peer() -> None:
    crowd = crowd_of(20)
    crowd.run(3.0)
    flood(crowd, lambda turn: [accusation(crowd, one, 5, kind=Kind.DEAD) for one in range(6, 20)], until_s=40.0)
    crowd.run(50.0)
    assert told(crowd, DeclaredDead) == []
    assert not any(peer.distrusted for peer in crowd.peers)
    assert max(peer.swim.table.incarnation for peer in crowd.peers) <= 50, "at most one refutation a period"
    assert all_know_all(crowd)


def test_incarnations_at_the_end_of_the_range_change_nothing() -> None:
    crowd = crowd_of(20)
    crowd.run(3.0)
    ends = (INCARNATION_MAX, AHEAD_MAX + 1)
    flood(crowd, lambda turn: [accusation(crowd, 7, LIAR, ahead=end) for end in ends], until_s=20.0)
    crowd.run(25.0)
    assert crowd.peers[7].swim.table.incarnation == 0
    assert all_know_all(crowd)


def test_a_peer_at_the_end_of_the_range_stays_as_long_as_it_answers() -> None:
    crowd = crowd_of(12)
    for peer in crowd.peers:
        if peer.index != 7:
            peer.swim.table.entries[crowd.peers[7].id].incarnation = INCARNATION_MAX
    crowd.peers[7].swim.table.incarnation = INCARNATION_MAX
    flood(crowd, lambda turn: [accusation(crowd, 7, 3, kind=Kind.DEAD)], until_s=20.0)
    crowd.run(30.0)
    assert all_know_all(crowd)


def test_a_peer_refutes_a_forged_address_of_its_own() -> None:
    crowd = crowd_of(20)
    crowd.run(3.0)
    moved = replace(crowd.peers[7].swim.table.me, address="sim://nowhere")
    forged = Word(Kind.ALIVE, moved.id, moved.life, AHEAD_MAX, "", moved)
    flood(crowd, lambda turn: [forged], every_s=100.0, until_s=4.0)
    crowd.run(15.0)
    assert crowd.peers[7].swim.table.incarnation == AHEAD_MAX + 1
    for peer in crowd.peers:
        if peer.index != 7:
            assert peer.swim.table.entries[moved.id].member.address == "sim://7"


def test_replayed_messages_change_nothing() -> None:
    crowd = crowd_of(20)
    kept: list[tuple[str, str, object]] = []
    carry = crowd.network.carry

    def overheard(sender: str, to: str, message: object, channel: str) -> None:
        kept.append((sender, to, message))
        carry(sender, to, message, channel)

    crowd.network.carry = overheard  # type: ignore[method-assign]
    crowd.run(5.0)
    crowd.restart(4, contact=9)
    crowd.end(5)
    crowd.run(20.0)
    assert all_know_all(crowd)
    crowd.network.carry = carry  # type: ignore[method-assign]
    for sender, to, message in kept:
        carry(sender, to, message, SWIM)
    crowd.run(21.0)
    incarnations = [peer.swim.table.incarnation for peer in crowd.peers]
    crowd.run(35.0)
    assert max(incarnations) <= 2
    assert all_know_all(crowd)


def made_up(number: int) -> Word:
    member = Member(f"made-up-{number}", "nobody", "sim://nobody", Attributes(), 0, "", 1)
    return Word(Kind.ALIVE, member.id, 1, 0, "", member)


def test_members_that_do_not_exist_take_a_bounded_room_and_are_gone_soon() -> None:
    crowd = Crowd(20, timing=TEMPO, room=64)
    crowd.acquaint()
    crowd.run(3.0)
    flood(crowd, lambda turn: [made_up(16 * turn + one) for one in range(16)], until_s=20.0)
    crowd.run(20.0)
    assert max(event.members for _, _, event in crowd.events if isinstance(event, Known)) <= 64
    for index in range(1, 20):
        assert members_of_those_there(crowd, index) >= {*range(20)} - {index}
    crowd.run(140.0)
    assert all_know_all(crowd)


def members_of_those_there(crowd: Crowd, index: int) -> set[int]:
    peer = crowd.peers[index]
    return {crowd.by_id[one].index for one in peer.swim.table.entries if one in crowd.by_id}


SOUND = made_up(1)
WELL = Beat(1, 0, 0, True, True, 0, ())


@pytest.mark.parametrize(
    "message",
    [
        Tell(replace(WELL, incarnation=INCARNATION_MAX + 1)),
        Tell(replace(WELL, accuses=INCARNATION_MAX + 2)),
        AskProbe(1, "peer", INCARNATION_MAX + 2),
        Tell(replace(WELL, life=0)),
        Tell(replace(WELL, words=(SOUND,) * (WORDS_MAX + 1))),
        Tell(replace(WELL, marks=(1,) * (MARKS_MAX + 1))),
        Probe(1, replace(WELL, words=(replace(SOUND, kind=3),))),
        Probe(1, replace(WELL, words=(replace(SOUND, incarnation=2**63 - 1),))),
        Probe(1, replace(WELL, words=(replace(SOUND, life=0),))),
        Probe(1, replace(WELL, words=(replace(SOUND, id="x" * 65),))),
        Probe(1, replace(WELL, words=(replace(SOUND, id=""),))),
        Probe(1, replace(WELL, words=(replace(SOUND, by="x"),))),
        Probe(1, replace(WELL, words=(replace(SOUND, member=None),))),
        Probe(1, replace(WELL, words=(Word(Kind.DEAD, "x", 1, 1),))),
        Probe(1, replace(WELL, words=(Word(Kind.DEAD, "x", 1, 1, "x" * 65),))),
        Probe(1, replace(WELL, words=(replace(SOUND, life=2),))),
        Probe(1, replace(WELL, words=(replace(SOUND, member=replace(SOUND.member, name="x" * 65)),))),
        Probe(1, replace(WELL, words=(replace(SOUND, member=replace(SOUND.member, address="x" * 301)),))),
        Probe(1, replace(WELL, words=(replace(SOUND, member=replace(SOUND.member, machine="x" * 129)),))),
        Table((SOUND,) * (TABLE_MAX + 1), True),
    ],
)
def test_a_message_that_no_honest_peer_sends_is_a_fault_of_its_sender(message: object) -> None:
    crowd = crowd_of(3)
    crowd.run(2.0)
    before = crowd.peers[0].swim.table.words()
    with pytest.raises(PeerMisbehaved):
        crowd.inside(crowd.peers[0], lambda: crowd.peers[0].swim.heard(crowd.peers[1].id, message))
    assert crowd.peers[0].swim.table.words() == before


def test_a_message_of_a_stranger_is_not_heard() -> None:
    crowd = crowd_of(3)
    crowd.run(2.0)
    before = crowd.peers[0].swim.table.words()
    for message in (
        Probe(1, replace(WELL, words=(SOUND,))),
        Tell(replace(WELL, words=(SOUND,))),
        Table((SOUND,), True),
    ):
        crowd.inside(crowd.peers[0], lambda message=message: crowd.peers[0].swim.heard("stranger", message))
    assert crowd.peers[0].swim.table.words() == before
    assert members_of(crowd.peers[0]) == {1, 2}
