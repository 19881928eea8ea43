"""The promises of a sweep on changes of the view that come to no end for a member, in made-up logs."""

from test_checkers_of_views import ALL, INSIDE, found
from torch import zeros

from samovar.protocols.local_sgd.rounds import Committed, Fetches
from samovar.protocols.members.echoes import Echo
from samovar.protocols.members.messages import Adopted, Behind, Promise, Propose
from samovar.protocols.members.reminders import Reminds
from samovar.protocols.members.states import Moved, State
from samovar.protocols.members.view import Believed, Decided, Followed, Version
from samovar.sims.checkers.local_sgd_fetches import a_member_that_is_behind_takes_the_state_of_all
from samovar.sims.checkers.membership_over_lives import two_believed_decrees_have_an_honest_adopter
from samovar.sims.checkers.membership_reminders import (
    a_promise_is_passed_on,
    nobody_proposes_in_a_view_that_is_over,
    the_coordinator_proposes_again_at_once,
    who_may_be_ahead_is_asked,
)
from samovar.sims.world.event_log import Fell, Heard, Told

LEADS = (
    (0.0, Decided(5, ALL, (), True, "peer-0")),
    (0.0, Followed(5)),
    (0.0, Moved(State.MEMBER, State.LEADING)),
    (1.0, Told("peer-1", Propose(5, 7))),
)
LATER = (9.0, Believed(3, 3))
NONE = Version(0, 0)


def answer(ballot: int, promised: int) -> Promise:
    return Promise(5, ballot, promised, NONE, NONE, True, 0, None, False)


def test_a_promise_must_be_passed_on_and_again_a_patience_later() -> None:
    answers, reminds = (1.0, Told("peer-2", answer(7, 7))), Reminds("peer-2", ALL[1:])
    passed = (2.0, reminds), (2.0, Told("peer-1", Propose(5, 7)))
    assert found(a_promise_is_passed_on, *INSIDE, answers, *passed, (5.0, Followed(6)), LATER) == []
    assert len(found(a_promise_is_passed_on, *INSIDE, answers, LATER)) == 1
    assert len(found(a_promise_is_passed_on, *INSIDE, answers, passed[0], (5.0, Followed(6)))) == 1, "to nobody"
    assert len(found(a_promise_is_passed_on, *INSIDE, answers, *passed, LATER)) == 1, "once only"
    assert found(a_promise_is_passed_on, *INSIDE, answers, (1.5, Followed(6)), LATER) == []
    assert found(a_promise_is_passed_on, (0.5, Fell("pause", ("0.0",))), *INSIDE, answers, LATER) == []


def test_a_member_that_may_be_ahead_must_be_asked() -> None:
    told = (1.0, Heard("peer-1", Echo(5, 7, 1)))
    assert found(who_may_be_ahead_is_asked, *INSIDE, told, (5.0, Told("peer-1", Behind(5))), LATER) == []
    assert len(found(who_may_be_ahead_is_asked, *INSIDE, told, (5.0, Told("peer-2", Behind(5))), LATER)) == 1
    assert found(who_may_be_ahead_is_asked, *INSIDE, told, (4.0, Followed(6)), LATER) == []
    assert found(who_may_be_ahead_is_asked, *INSIDE, (1.0, Heard("peer-1", Echo(4, 7, 1))), LATER) == []


def test_a_member_must_not_propose_in_a_view_that_is_over() -> None:
    check, proposes = nobody_proposes_in_a_view_that_is_over, (2.0, Told("peer-1", Propose(5, 7)))
    assert found(check, (1.0, Followed(5)), proposes) == []
    assert len(found(check, (1.0, Followed(6)), proposes)) == 1


def test_the_coordinator_must_propose_again_at_once() -> None:
    check = the_coordinator_proposes_again_at_once
    for denied in (answer(7, 9), Adopted(5, 7, 9)):
        denial = (1.5, Heard("peer-1", denied))
        assert found(check, *LEADS, denial, (1.6, Told("peer-1", Propose(5, 12))), LATER) == []
        assert len(found(check, *LEADS, denial, LATER)) == 1
        assert found(check, *LEADS, denial, (2.0, Followed(6)), LATER) == []
    assert found(check, *LEADS, (1.5, Heard("peer-1", answer(7, 7))), LATER) == []
    second = (LEADS[0][0], Decided(5, ALL, (), True, "peer-1"))
    assert found(check, second, *LEADS[1:], (1.5, Heard("peer-1", answer(7, 9))), LATER) == []


def test_a_decree_that_is_believed_must_have_more_adopters_than_liars_can_split() -> None:
    check = two_believed_decrees_have_an_honest_adopter
    for reached, least in ((1, 1), (2, 2), (3, 2), (4, 3), (5, 4), (7, 5), (8, 6)):
        assert found(check, (1.0, Believed(reached, least))) == []
        assert len(found(check, (1.0, Believed(reached, least - 1)))) == 1


def test_a_member_that_is_behind_must_take_the_state_of_all() -> None:
    check, fetches = a_member_that_is_behind_takes_the_state_of_all, (1.0, Fetches(4, 9, 4, lags=True))
    assert found(check, fetches, (2.0, Committed(4, zeros(1), None, 1.0))) == []
    assert len(found(check, fetches, (2.0, Committed(5, zeros(1), None, 1.0)))) == 1
    learner = (1.0, Fetches(4, 9, 4, lags=False))
    assert found(check, learner, (2.0, Committed(5, zeros(1), None, 1.0))) == []
