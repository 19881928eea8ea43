"""The promises of a sweep on members that repeat a lie, in made-up logs."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from samovar.peers.run_settings.settings import Settings
from samovar.protocols.link.refusals import NotOpen
from samovar.protocols.local_sgd.rounds import Committed, Installed
from samovar.protocols.members.messages import Promise, Propose
from samovar.protocols.members.states import Moved, State
from samovar.protocols.members.view import Decided, Followed, Version
from samovar.protocols.wire.frames import Lane, Unopened
from samovar.sims.checkers.common import Check
from samovar.sims.checkers.local_sgd_lies import (
    a_lie_changes_the_view_only_so_often,
    a_lie_leaves_no_honest_member_out,
    a_lie_makes_no_honest_member_give_up,
    a_lie_stops_no_rounds_of_the_others,
    a_peer_that_asks_in_vain_is_told_so,
    an_honest_coordinator_proposes_again_at_once,
)
from samovar.sims.scenarios.lies import Lie
from samovar.sims.scenarios.scenario import Fault, Kind, Scenario
from samovar.sims.world.event_log import Entry, Fell, Gone, Heard, Told

LIES = Fault(kind=Kind.HOSTILE, who=(3,), at_s=20.0, for_s=20.0, lie=Lie.REST_ANEW)
SCENARIO = replace(Scenario.plain(Settings(peers=4, device="cpu", patience_s=2.0)), faults=(LIES,))
ALL = ("peer-0", "peer-1", "peer-2", "peer-3")
FELL = Entry(20.0, "nemesis", Fell(Kind.HOSTILE, ("3.0",), 40.0))
BEGUN = [Entry(1.0, f"{index}.0", Installed(2, ALL, 0, ())) for index in range(4)]
WHY = Version(0, 0)


def found(check: Check, *entries: Entry, scenario: Scenario = SCENARIO) -> list[str]:
    return list(check(scenario, sorted([*BEGUN, FELL, *entries], key=lambda entry: entry.time_s)))


def rounds(*times_s: float, life: str = "0.0") -> Sequence[Entry]:
    return [
        Entry(time_s, life, Committed(number, torch.zeros(1), (2, 1), 1.0)) for number, time_s in enumerate(times_s)
    ]


def every(step_s: float, since_s: float, until_s: float) -> list[float]:
    return [since_s + step_s * number for number in range(round((until_s - since_s) / step_s))]


def test_rounds_must_go_on_while_a_member_lies() -> None:
    check, before = a_lie_stops_no_rounds_of_the_others, every(1.0, 2.0, 20.0)
    assert found(check, *rounds(*before, *every(1.0, 20.0, 50.0))) == []
    (stopped,) = found(check, *rounds(*before, *every(1.0, 20.0, 30.0), *every(1.0, 37.0, 50.0)))
    assert stopped.startswith("no round is committed for 8.000 s")
    (few,) = found(check, *rounds(*before, *every(4.0, 20.0, 50.0)))
    assert few.startswith("5 of 20 rounds are made")
    of_liar = [*rounds(*before), *rounds(*every(1.0, 1.0, 50.0), life="3.0")]
    assert found(check, *of_liar), "the rounds of the liar do not count"


def test_what_is_a_known_weakness_is_not_judged() -> None:
    check, stopped = a_lie_stops_no_rounds_of_the_others, rounds(*every(1.0, 2.0, 20.0))
    assert found(check, *stopped)
    crash = Fault(kind=Kind.CRASH, who=(1,), at_s=3.0)
    for other in (
        replace(SCENARIO, faults=(LIES, crash)),
        replace(SCENARIO, faults=(replace(LIES, lie=None),)),
        replace(SCENARIO, buggify=True),
        replace(SCENARIO, arrivals=((2, 3.0),)),
        replace(Scenario.plain(Settings(peers=3, device="cpu")), faults=(LIES,)),
    ):
        assert found(check, *stopped, scenario=other) == []


def test_no_honest_member_may_be_left_out_by_a_lie() -> None:
    check = a_lie_leaves_no_honest_member_out
    assert found(check, Entry(25.0, "0.0", Installed(3, ALL[:3], 5, ()))) == [], "the liar may be"
    without = Installed(3, (*ALL[:2], ALL[3]), 5, ())
    assert len(found(check, Entry(25.0, "0.0", without))) == 1
    assert found(check, Entry(5.0, "0.0", without)) == [], "nobody lies yet"
    assert found(check, Entry(25.0, "3.0", without)) == []


def test_a_lie_may_change_the_view_only_so_often() -> None:
    def views(count: int, life: str = "0.0") -> list[str]:
        at = (Entry(20.0 + 0.1 * number, life, Followed(3 + number)) for number in range(count))
        return found(a_lie_changes_the_view_only_so_often, *at)

    assert views(36) == []
    assert len(views(37)) == 1
    assert views(37, "3.0") == []


def test_no_honest_member_may_give_up_beside_a_liar() -> None:
    check = a_lie_makes_no_honest_member_give_up
    assert found(check, Entry(60.0, "0.0", Gone(finished=True)), Entry(60.0, "3.0", Gone(error="it lied"))) == []
    assert found(check, Entry(30.0, "0.0", Gone(error="too few"))) == ["0.0 gave up: too few"]


def test_the_coordinator_must_propose_again_at_once_beside_a_liar() -> None:
    denial = Promise(5, 7, 9, WHY, WHY, True, 0, None, False)
    leads = [
        Entry(21.0, "0.0", Decided(5, ALL, (), True, "peer-0")),
        Entry(21.0, "0.0", Followed(5)),
        Entry(21.0, "0.0", Moved(State.MEMBER, State.LEADING)),
        Entry(22.0, "0.0", Told("peer-1", Propose(5, 7))),
        Entry(22.1, "0.0", Heard("peer-1", denial)),
    ]
    check, later = an_honest_coordinator_proposes_again_at_once, Entry(30.0, "0.0", Followed(6))
    assert found(check, *leads, Entry(22.1, "0.0", Told("peer-1", Propose(5, 12))), later) == []
    assert len(found(check, *leads, later)) == 1


def test_a_question_of_an_unknown_conversation_must_be_answered() -> None:
    check, heard = a_peer_that_asks_in_vain_is_told_so, Entry(22.0, "0.0", Heard("peer-3", Unopened(Lane.CONTROL)))
    later = Entry(23.0, "0.0", Followed(3))
    assert found(check, heard, Entry(22.0, "0.0", Told("peer-3", NotOpen("x"))), later) == []
    assert len(found(check, heard, later)) == 1
    assert len(found(check, heard, Entry(22.0, "0.0", Told("peer-1", NotOpen("x"))), later)) == 1
    assert found(check, Entry(22.0, "0.0", Heard("peer-3", Unopened(Lane.LOOSE))), later) == []
