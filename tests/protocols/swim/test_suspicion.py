"""What one peer believes of another, word by word."""

import random
from types import SimpleNamespace

from samovar.protocols.members.view import Attributes, Member
from samovar.protocols.swim.detector import Detector
from samovar.protocols.swim.dissemination import Dissemination
from samovar.protocols.swim.member_table import MemberTable, Status
from samovar.protocols.swim.suspicion import Suspicion
from samovar.protocols.swim.timing import Timing
from samovar.protocols.swim.words import Kind, Word, alive

ME, OTHER = (Member(name, name, "", Attributes(data_shard=at), 1, life=at + 1) for at, name in enumerate(("me", "it")))


def peer() -> tuple[MemberTable, Suspicion]:
    """A peer that knows one other, in its incarnation 5."""
    table, timing = MemberTable(ME, room=8), Timing(period_s=1.0)
    effects = SimpleNamespace(reach=print, joined=print, departed=lambda *_, left: None)
    detector, dissemination = Detector(timing, random.Random(1)), Dissemination(lambda: 3, lambda: None)
    suspicion = Suspicion(table, timing, detector, dissemination, effects, whole=True)
    suspicion.enter(OTHER, 5, OTHER.id)
    return table, suspicion


def accusation(incarnation: int, of: Member = OTHER) -> Word:
    return Word(Kind.SUSPECT, of.id, of.life, incarnation, "third")


def test_a_suspicion_counts_only_if_it_is_of_the_present_incarnation() -> None:
    table, suspicion = peer()
    suspicion.hear(accusation(4), "third")
    assert table.entries[OTHER.id].status == Status.ALIVE
    suspicion.hear(accusation(5), "third")
    assert table.entries[OTHER.id].status == Status.SUSPECT


def test_a_suspect_that_refutes_is_a_suspect_no_more() -> None:
    table, suspicion = peer()
    suspicion.hear(accusation(5), "third")
    suspicion.hear(alive(OTHER, 6), "third")
    assert (table.entries[OTHER.id].status, table.entries[OTHER.id].incarnation) == (Status.ALIVE, 6)


def test_a_suspected_peer_raises_its_incarnation() -> None:
    table, suspicion = peer()
    suspicion.hear(accusation(0, ME), "third")
    assert table.incarnation == 1


def test_a_lost_member_is_back_only_in_a_higher_incarnation() -> None:
    table, suspicion = peer()
    suspicion.bury(table.entries[OTHER.id], "it is silent", told=True)
    suspicion.hear(alive(OTHER, 5), "third")
    assert OTHER.id not in table.entries
    suspicion.hear(alive(OTHER, 6), "third")
    assert OTHER.id in table.entries
