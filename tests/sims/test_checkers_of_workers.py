"""The promises of the parameter server to workers that wait for each other, in made-up logs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from test_checkers_parameter_server import found

from samovar.protocols.members.view import Decided
from samovar.protocols.parameter_server.events import Entered, Read
from samovar.protocols.stalls.messages import Stall, Stalled
from samovar.protocols.stalls.works import FIRST_S, LOCAL_STEPS
from samovar.sims.checkers import parameter_server_workers as promises
from samovar.sims.scenarios.scenario import Kind
from samovar.sims.world.event_log import Entry, Fell, Gone

ONE = torch.ones(1)
DONE = Gone(finished=True)


def at(time_s: float, life: str, event: object) -> Entry:
    return Entry(time_s, life, event)


def entered(*pushes: tuple[str, int], **counted: int) -> Entered:
    return Entered(0, 1, 1, pushes, ONE, {name.replace("_", "-"): clock for name, clock in counted.items()})


def test_a_worker_that_ends_before_the_last_push_of_another_is_found() -> None:
    promise = promises.a_worker_ends_with_the_pushes_of_all
    early = at(0.0, "0.0", Read(0, "peer-2", 4, {"peer-2": 4, "peer-3": 3}))
    whole = at(0.0, "0.0", Read(0, "peer-2", 4, {"peer-2": 4}))
    push, end = at(1.0, "1.0", entered(("peer-3", 4))), at(2.0, "2.0", DONE)
    assert found(promise, [early, push, end]) == ["2.0 ends with range 0 before push 4 of peer-3"]
    assert found(promise, [early, push, whole, end]) == [], "it has read again"
    assert found(promise, [whole, push, end]) == [], "the other one has come later"
    assert found(promise, [early, push]) == [], "it has not ended"


def test_a_worker_that_is_reported_although_its_pushes_come_is_found() -> None:
    promise, report = promises.a_worker_whose_pushes_come_is_not_reported, Stall("peer-2", "nothing of it")
    push = at(10.0, "0.0", entered(peer_2=3))
    assert len(found(promise, [push, at(9.0 + FIRST_S, "0.0", report)])) == 1
    assert found(promise, [push, at(11.0 + FIRST_S, "0.0", report)]) == []
    assert found(promise, [push, at(9.0 + FIRST_S, "1.0", report)]) == [], "another server got it"
    assert found(promise, [push, at(11.0, "0.0", Stall("peer-2", "it hangs", work=LOCAL_STEPS))]) == []
    again = [push, at(40.0, "0.0", entered(peer_2=3)), at(11.0 + FIRST_S, "0.0", report)]
    assert found(promise, again) == [], "that was a push of another"


MEMBERS = ("peer-0", "peer-1", "peer-2", "peer-3")
HANGS = at(10.0, "3.0", Stalled(1, 4, LOCAL_STEPS, "", 4.0, 0.1, False))
LATE = at(200.0, "0.0", DONE)


def hanging(*log: Entry, **own: object) -> Sequence[str]:
    settings = {"consistency": "ssp:2", "patience_s": 2.0, "compute_patience_s": 4.0, **own}
    known = at(0.0, "0.0", Decided(1, MEMBERS))
    return found(promises.a_worker_that_hangs_is_not_waited_for, [known, *log, LATE], **settings)


def test_a_worker_that_hangs_and_stays_a_member_is_found() -> None:
    assert len(hanging(HANGS)) == 1
    assert hanging(HANGS, at(12.0, "0.0", Decided(2, MEMBERS[:3]))) == []
    assert hanging(HANGS, at(12.0, "3.0", Stalled(1, 4, LOCAL_STEPS, "", 6.0, 0.1, True))) == [], "it goes on"
    assert hanging(HANGS, at(12.0, "3.0", DONE)) == []
    assert hanging(at(10.0, "3.0", Stalled(1, 4, LOCAL_STEPS, "", 3.0, 0.1, False))) == [], "it has time left"
    assert hanging(HANGS, compute_patience_s=None) == []
    assert hanging(HANGS, consistency="async") == [], "nobody waits for it"


def test_a_worker_that_hangs_while_others_do_not_reach_each_other_is_not_judged() -> None:
    assert hanging(at(9.0, "nemesis", Fell(Kind.CUT_OFF, ("0.0",), 11.0)), HANGS) == []
    assert len(hanging(at(5.0, "nemesis", Fell(Kind.CUT_OFF, ("0.0",), 6.0)), HANGS)) == 1, "that was over"
    assert len(hanging(at(9.0, "nemesis", Fell(Kind.HANG, ("3.0",), 90.0)), HANGS)) == 1


def test_a_synchronous_step_that_leaves_a_worker_behind_is_found() -> None:
    promise = promises.a_synchronous_step_leaves_no_worker_behind
    step = entered(("peer-2", 3), peer_2=3, peer_3=2)
    own = {"algorithm": "sync", "consistency": "bsp"}
    assert found(promise, [at(0.0, "0.0", step)], **own) == ["0.0 makes version 1 of range 0 without peer-3"]
    assert found(promise, [at(0.0, "0.0", entered(("peer-2", 3), peer_2=3, peer_3=3))], **own) == []
    assert found(promise, [at(0.0, "0.0", step)], algorithm="backup:1", consistency="bsp") == []
    assert found(promise, [at(0.0, "0.0", step)], algorithm="sync", consistency="async") == []
