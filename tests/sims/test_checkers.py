"""Checkers can fail, and say how; and they do not cry wolf."""

from dataclasses import replace

import pytest
import torch

from samovar.peers.run_settings.settings import Settings
from samovar.protocols.link.flow import INBOUND_BYTES_MAX
from samovar.protocols.local_sgd.commit import Heeded
from samovar.protocols.local_sgd.rounds import (
    Committed,
    Computed,
    Contributed,
    Installed,
    SiteCommitted,
    SiteContributed,
)
from samovar.protocols.members.states import Moved, State
from samovar.protocols.members.view import Followed, Promised
from samovar.protocols.transfer.snapshot_transfer import Fetched
from samovar.sims.checkers.local_sgd_lies import WHILE_A_MEMBER_LIES
from samovar.sims.scenarios.scenario import Fault, Kind, Scenario
from samovar.sims.sweeps.promises import broken, promises
from samovar.sims.world.event_log import (
    Began,
    Complained,
    Entry,
    Fell,
    Gone,
    Held,
    Misdelivered,
    Refused,
    Resumed,
    Unpaid,
)

QUIET = Scenario.plain(Settings(peers=3, device="cpu"))
ONE, TWO = torch.ones(3), torch.full((3,), 2.0)
ALL = ("peer-0", "peer-1", "peer-2")


def log(*events: tuple[str, object]) -> list[Entry]:
    return [Entry(float(second), life, event) for second, (life, event) in enumerate(events)]


SITE = [
    *((f"{index}.0", SiteContributed((1, 1, 1), ONE * (1 + 2 * index), 2.0, ALL[:2])) for index in range(2)),
    *((f"{index}.0", SiteCommitted((1, 1, 1), TWO)) for index in range(2)),
]
"""What two peers of a site do in the first turn of a round."""


def good_log() -> list[Entry]:
    """A run of one round."""
    lives = [f"{index}.0" for index in range(3)]
    return log(
        *((life, Began()) for life in lives),
        *((life, Installed(1, ALL, 0, ALL[:1])) for life in lives),
        *((life, Contributed((1, 1), ONE * (index + 1), 2.0, ALL)) for index, life in enumerate(lives)),
        *((life, Computed((1, 1), 7)) for life in lives),
        *((life, Committed(1, TWO, (1, 1), 6.0)) for life in lives),
        *((life, Gone(finished=True)) for life in lives),
    )


def without(kind: type, life: str = "", **changed: object) -> list[Entry]:
    """The good log without events of a `kind`, or with others in their place; of one `life` or of all."""
    entries = []
    for entry in good_log():
        there = isinstance(entry.event, kind) and entry.life.startswith(life)
        if there and changed:
            entries.append(entry._replace(event=replace(entry.event, **changed)))  # type: ignore[type-var]
        elif not there:
            entries.append(entry)
    return entries


LATE = Installed(2, (*ALL, "peer-3"), 1, ALL)
"""A view that comes after the first round."""
STRUCK = log(("nemesis", Fell("cut_off", ("2.0",), 1.0)))
LONG_AFTER = [Entry(100.0, "3.0", Gone(finished=True))]

PROMISES = promises(QUIET)
BAD_LOGS = {
    "all who commit a round commit the same bits": [
        (without(Committed, "1", vector=TWO + 2**-22), "round 1 ends differently for 0.0 and 1.0"),
    ],
    "every contribution counts once": [
        (without(Committed, weight=8.0), "round 1 at 0.0 has weight 8, its members brought 6"),
        (without(Committed, weight=4.0), "round 1 at 0.0 has weight 4, its members brought 6"),
        (without(Committed, vector=TWO + 0.01), "round 1 at 0.0 is not the mean of what was brought"),
        (without(Contributed, "2"), "round 1 at 0.0 has weight 6, its members brought 4"),
    ],
    "a site takes the mean of what each brought once": [
        (
            log(*SITE[:3], ("1.0", SiteCommitted((1, 1, 1), ONE))),
            "turn 1 of round 1 at 1.0 is not the mean of what was brought",
        ),
        (log(SITE[0], *SITE[2:]), "turn 1 of round 1 at 0.0 has 2 members, of whom 1 brought anything"),
        (
            log(*SITE[:3], ("1.0", SiteCommitted((1, 1, 1), TWO + 2**-22))),
            "turn 1 of round 1 ends differently for 0.0 and 1.0",
        ),
        (
            log(
                *SITE,
                ("0.0", SiteContributed((2, 1, 1), ONE, 2.0, ALL[:1])),
                ("0.0", SiteCommitted((2, 1, 1), ONE)),
            ),
            "turn 1 of round 1 counts 0.0 twice, for 0.0 and 0.0",
        ),
    ],
    "no vote counts after a promise": [
        (
            log(("0.0", Promised(4)), ("0.0", Followed(5)), ("0.0", Promised(5)), ("0.0", Heeded(5))),
            "0.0 lets a vote count at 3.000 s, after its promise in generation 5",
        ),
    ],
    "a site sums again with all who may have the first mean": [
        (
            log(
                ("0.0", Installed(2, ALL, 0, ALL[:1])),
                *SITE,
                ("0.0", SiteContributed((2, 1, 1), ONE, 2.0, (ALL[0], ALL[2]))),
            ),
            "0.0 sums again at turn 1 of round 1 without peer-1",
        ),
    ],
    "nothing of an old generation is applied": [
        (without(Installed, "2", generation=2, round=1, donors=ALL[:2]), "2.0 committed round 1 of generation 1 in 2"),
        (without(Installed, "2", generation=2, round=0, donors=ALL), "2.0 committed round 1 of generation 1 in 2"),
        (good_log() + log(("0.0", Committed(1, TWO, (1, 1), 6.0))), "0.0 committed round 1 after round 1"),
        (
            log(("0.0", Installed(5, ALL, 0, ALL[:1])), ("0.0", Installed(5, ALL, 0, ALL[:1]))),
            "0.0 went from generation 5 to 5",
        ),
    ],
    "one generation has one view": [
        (
            without(Installed, "2", members=ALL[:2]),
            "generation 1: 0,1,2 from round 0 for 0.0, 0,1 from round 0 for 2.0",
        ),
        (without(Installed, "1", round=1), "generation 1: 0,1,2 from round 0 for 0.0, 0,1,2 from round 1 for 1.0"),
    ],
    "each message is handed on once and in order": [
        (
            good_log() + log(("1.0", Misdelivered("peer-2", "Chunk", 4, 5))),
            "1.0 got Chunk 4 of peer-2 where 5 was due",
        ),
    ],
    "a peer becomes only what the table of states says": [
        (
            good_log() + log(("1.0", Moved(State.FAILED, State.MEMBER))),
            "1.0 was failed and became member at 0.000 s",
        ),
    ],
    "nobody is a member before it has a result": [
        (
            good_log() + log(("3.0", LATE), ("3.0", Moved(State.JOINING, State.MEMBER))),
            "3.0 was joining, is a member of generation 2 and has no result",
        ),
        (
            good_log() + log(("3.0", LATE), ("3.0", Moved(State.LEARNER, State.MEMBER))),
            "3.0 was learner, is a member of generation 2 and has no result",
        ),
    ],
    "an outer step goes on from the one before": [
        (
            [
                entry
                for number in range(4)
                for entry in log(
                    ("0.0", Contributed((1, number), ONE, 2.0, ALL[:1])),
                    ("0.0", Committed(number, ONE, (1, number), 2.0)),
                )
            ]
            + log(("0.0", Contributed((1, 4), TWO, 2.0, ALL[:1])), ("0.0", Committed(4, TWO, (1, 4), 2.0))),
            "round 4 at 0.0 is not where the outer step leads",
        ),
    ],
    "a peer that has promised commits nothing more": [
        (
            log(
                ("1.0", Installed(1, ALL, 0, ALL[:1])),
                ("1.0", Moved(State.MEMBER, State.CHANGING)),
                ("1.0", Committed(1, TWO, (1, 1), 6.0)),
            ),
            "1.0 committed round 1 at 2.000 s, after its promise in 1",
        ),
    ],
    "a given up peer contributes no more": [
        (
            log(("1.0", Moved(State.MEMBER, State.EXPELLED)), ("1.0", Contributed((1, 4), ONE, 2.0, ALL))),
            "1.0 begins an attempt at round 4, though it is expelled",
        ),
    ],
    "a part that has come is not fetched again": [
        (good_log() + log(*[("1.0", Fetched(4, 7, b"", b""))] * 3), "1.0 got part 7 of version 4 3 times"),
    ],
    "what is consumed makes room for as much": [
        (log(("1.0", Unpaid("peer-0", 90, 0))), "1.0 gave peer-0 0 of 90 bytes of credit back"),
    ],
    "what is committed more than half have": [
        (
            [entry for entry in good_log() if not (isinstance(entry.event, Computed) and entry.life != "0.0")],
            "0.0 committed round 1 when 1 of 3 had it",
        ),
    ],
    "no honest peer is taken for another": [
        (
            good_log() + log(("1.0", Refused("peer-2", "its bytes are wrong"))),
            "1.0 refused peer-2: its bytes are wrong",
        ),
    ],
    "what waits to be used is bounded": [
        (good_log() + log(("1.0", Held(INBOUND_BYTES_MAX + 1))), f"1.0 held {INBOUND_BYTES_MAX + 1} bytes at 0.000 s"),
    ],
    "no error is a surprise": [
        (good_log() + log(("1.1", Gone(error="KeyError: 3", foreseen=False))), "1.1 failed: KeyError: 3"),
        (good_log() + log(("world", Complained("a task was destroyed"))), "a task was destroyed"),
    ],
    "peers of a run without faults finish": [
        (without(Gone, "2", finished=False, error="nobody is there"), "2.0 gave up: nobody is there"),
        (without(Gone, "2", finished=False, crashed=True), "2.0 gave up: without a word"),
    ],
    "peers end together": [
        (good_log() + LONG_AFTER, "3.0 ended 85.0 s after the first"),
    ],
    "living peers finish": [
        (without(Gone), "nobody finished"),
        (without(Gone, "0", finished=False, error="too few are left"), "0.0 gave up: too few are left"),
    ],
}


def test_a_log_of_a_good_run_breaks_no_promise() -> None:
    assert broken(QUIET, good_log() + log(*SITE)) is None


ELSEWHERE = {
    "a view goes on from what one of its members holds",
    "a contact hears by which view a newcomer was removed",
    "a donor gives the parts that it has announced",
    "a given up peer fetches nothing",
    "a new view ends no fetch of the same state",
    "no earlier state is taken than is wanted",
    "nobody joins anew for a coordinator that has ended",
    "the time of gathering keeps nobody out",
    "whoever is behind is told",
    "a coded mean is of what was sent",
    "a part that is kept is the one that was announced",
    "a peer that breaks rules is hardly read",
    "a former acceptor goes with its life",
    "a lost coordinator is accused again",
    "a peer that was left behind goes on from the others model",
    "all who compute an attempt compute the same",
    "an acceptor keeps its word",
    "an answer shows that its sender is there",
    "an adaptive period falls",
    "every contribution tells a speed",
    "silence is counted only by a peer that listens",
    "what a codec leaves out is sent later",
    "a member that is behind takes the state of all",
    "a promise is passed on",
    "nobody proposes in a view that is over",
    "the coordinator proposes again at once",
    "two believed decrees have an honest adopter",
    "who may be ahead is asked",
}
"""Promises that `test_checkers_of_values`, `test_checkers_of_views` and `test_checkers_of_reminders` break."""


def test_each_promise_is_broken_by_a_test() -> None:
    assert BAD_LOGS.keys() | ELSEWHERE == PROMISES.keys()


@pytest.mark.parametrize("promise", BAD_LOGS)
def test_each_promise_can_be_broken_and_says_how(promise: str) -> None:
    scenario = Scenario.plain(Settings(peers=3, device="cpu", outer="nesterov")) if "outer" in promise else QUIET
    for entries, how in BAD_LOGS[promise]:
        assert list(PROMISES[promise](scenario, entries))[:1] == [how]


def test_a_run_that_is_founded_anew_has_its_generations_anew() -> None:
    first = log(("0.0", Installed(1, ALL[:1], 0, ALL[:1])), ("0.0", Installed(2, ALL[:2], 0, ALL[:1])))
    anew = log(("2.0", Installed(1, ALL[2:], 0, ALL[2:])), ("2.0", Installed(2, ALL, 0, ALL[:1])))
    check = PROMISES["one generation has one view"]
    assert list(check(QUIET, first + anew)) == []
    assert list(check(QUIET, first + anew[1:])) == [
        "generation 2: 0,1 from round 0 for 0.0, 0,1,2 from round 0 for 2.0"
    ]


def test_a_peer_that_heard_of_its_view_after_the_run_was_founded_anew_may_leave_it_for_the_new_run() -> None:
    founded = [("0.0", Installed(1, ALL[:1], 0, ALL[:1])), ("2.0", Installed(1, ALL[2:], 0, ALL[2:]))]
    old, new = ("1.0", Installed(4, ALL[:2], 0, ALL[:1])), ("1.0", Installed(4, ALL[1:], 0, ALL[1:2]))
    left = ("1.0", Moved(State.MEMBER, State.OUTSIDE))
    check = PROMISES["nothing of an old generation is applied"]
    assert list(check(QUIET, log(*founded, old, left, new))) == []
    assert list(check(QUIET, log(*founded, old, new))) == ["1.0 went from generation 4 to 4"]
    assert list(check(QUIET, log(founded[0], old, left, new))) == ["1.0 went from generation 4 to 4"]


def test_a_member_let_in_again_may_apply_the_result_of_the_new_view() -> None:
    """The other side of the checkers above: they do not cry wolf."""
    entries = without(Installed, "2", generation=2, round=1, donors=ALL)
    assert list(PROMISES["nothing of an old generation is applied"](QUIET, entries)) == []


def test_a_newcomer_that_learned_or_alone_has_the_result_is_a_member() -> None:
    learned = log(("3.0", Committed(1, TWO, None, 0.0)), ("3.0", LATE), ("3.0", Moved(State.LEARNER, State.MEMBER)))
    restored = log(("3.0", Began(version=1)), ("3.0", LATE), ("3.0", Moved(State.LEARNER, State.MEMBER)))
    alone = log(("3.0", replace(LATE, donors=("peer-3",))), ("3.0", Moved(State.JOINING, State.MEMBER)))
    check = PROMISES["nobody is a member before it has a result"]
    for entries in (learned, restored, alone):
        assert list(check(QUIET, good_log() + entries)) == []


def test_a_member_that_more_than_half_left_behind_may_give_up() -> None:
    late = log(("0.0", Gone(finished=True)), ("1.0", Gone(finished=True)), ("2.0", Gone(error="nobody is there")))
    late = [entry._replace(time_s=entry.time_s + 100) for entry in late]
    entries = [entry for entry in good_log() if not isinstance(entry.event, Gone)] + late
    assert broken(QUIET, STRUCK + entries) is None


def test_newcomers_without_a_live_member_to_let_them_in_may_give_up() -> None:
    begun = [(f"{index}.0", Began()) for index in range(5)]
    view = Installed(2, tuple(f"peer-{index}" for index in range(5)), 0, ALL[:1])
    crashed = [(f"{index}.0", Gone(crashed=True)) for index in (0, 1)]
    gave_up = [(f"{index}.0", Gone(error="nobody is there")) for index in (2, 3, 4)]
    scenario = Scenario.plain(Settings(peers=5, device="cpu"))
    assert broken(scenario, STRUCK + log(*begun, ("0.0", view), *crashed, *gave_up)) is None
    assert broken(scenario, STRUCK + log(*begun, ("0.0", view), ("1.0", view), crashed[0], *gave_up)) is not None


@pytest.mark.parametrize("relay", ["dies", "lives"])
def test_members_that_nobody_can_dial_may_give_up_when_no_relay_between_them_lives(relay: str) -> None:
    """Though they are more than half of all: each of them is alone."""
    view = Installed(2, tuple(f"peer-{index}" for index in range(5)), 0, ALL[:1])
    scenario = Scenario.plain(Settings(peers=5, device="cpu"))
    (group,) = scenario.groups
    behind_nat = replace(scenario, groups=(replace(group, peers=2), replace(group, peers=3, dialable=False)))
    lives = [f"{index}.0" for index in range(5)]
    entries = log(
        *((life, Began()) for life in lives),
        *((life, view) for life in lives),
        *((life, Gone(crashed=True)) for life in (lives[:2] if relay == "dies" else lives[:1])),
        ("4.0", Gone(error="1 of 5 peers is left")),
    )
    gave_up = "living peers finish: 4.0 gave up: 1 of 5 peers is left"
    assert broken(behind_nat, STRUCK + entries) == (None if relay == "dies" else gave_up)
    assert broken(scenario, STRUCK + entries) == gave_up


def test_a_peer_that_ends_silently_or_gives_up_too_early_is_noticed() -> None:
    silent = [entry for entry in good_log() if not isinstance(entry.event, Gone)] + log(("1.0", Gone()))
    assert "1.0 gave up: without a word" in broken(QUIET, silent)
    one = log(("0.0", Gone(finished=True)), ("1.0", Gone(error="why")), ("2.0", Gone(error="why")))
    few = [entry for entry in good_log() if not isinstance(entry.event, Gone)]
    assert "1.0 gave up: why" in broken(QUIET, few + [entry._replace(time_s=entry.time_s + 100) for entry in one])


def test_a_peer_may_give_up_when_most_have_the_last_round_though_one_crashed_with_it() -> None:
    check = PROMISES["living peers finish"]
    rest = [entry for entry in good_log() if not isinstance(entry.event, Gone)]
    ends = [("1.0", Gone(crashed=True)), ("0.0", Gone(finished=True)), ("2.0", Gone(error="why"))]
    gone = [entry._replace(time_s=entry.time_s + 100) for entry in log(*ends)]
    last = max(index for index, (_, life, event) in enumerate(rest) if life == "1.0" and isinstance(event, Committed))
    assert list(check(QUIET, rest + gone)) == []
    assert list(check(QUIET, rest[:last] + rest[last + 1 :] + gone)) == ["2.0 gave up: why"]


def test_after_the_heal_every_live_peer_must_finish() -> None:
    """A fault that makes a scenario unfit to be judged does not matter then if it came before the heal."""
    cut = Fault(kind=Kind.CUT_OFF, who=(2,), at_s=1.0, for_s=100.0)
    healed = replace(QUIET, faults=(cut,), faults_until_s=30.0)
    assert not healed.brief
    gone = log(("2.0", Gone(error="why")), ("1.0", Gone(finished=True)), ("0.0", Gone(finished=True)))
    rest = [entry for entry in good_log() if not isinstance(entry.event, Gone)]
    late_s = 30.0 + 10 * healed.settings.patience_s
    early, after = ([entry._replace(time_s=entry.time_s + at_s) for entry in gone] for at_s in (31.0, late_s))
    assert broken(healed, STRUCK + rest + early) is None
    assert "2.0 gave up: why" in (broken(healed, STRUCK + rest + after) or "")


@pytest.mark.parametrize("promise", ["peers of a run without faults finish", "peers end together"])
def test_a_promise_of_quiet_runs_is_not_asked_for_after_a_fault(promise: str) -> None:
    assert all(list(PROMISES[promise](QUIET, STRUCK + entries)) == [] for entries, _ in BAD_LOGS[promise])


def test_a_latecomer_that_no_member_has_answered_may_end_late_and_any_other_peer_may_not() -> None:
    check = PROMISES["peers end together"]
    late = replace(QUIET, groups=(replace(QUIET.groups[0], peers=4),), arrivals=((3, 5.0),))
    too_late = [Entry(100.0, "3.0", Gone(error="peer-0 is lost"))]
    answered = log(("3.0", Moved(State.OUTSIDE, State.JOINING)))
    complaint = ["3.0 ended 85.0 s after the first"]
    assert list(check(late, good_log() + too_late)) == []
    assert list(check(late, answered + good_log() + too_late)) == complaint
    assert list(check(QUIET, good_log() + too_late)) == complaint, "it was there from the start"


def test_a_resumed_run_waits_for_as_many_as_have_founded_it_and_any_other_peer_comes_late() -> None:
    check = PROMISES["peers of a run without faults finish"]
    resumed = [Entry(0.0, "world", Resumed()), *without(Gone, "2"), Entry(20.0, "2.0", Gone(error="the run is over"))]
    of_four = replace(QUIET, groups=(replace(QUIET.groups[0], peers=4),), arrivals=((3, 5.0),))
    assert list(check(of_four, resumed)) == []
    assert list(check(QUIET, resumed)) == ["2.0 gave up: the run is over"]


def test_with_a_hostile_member_only_promises_that_no_lie_can_break_are_checked() -> None:
    hostile = replace(QUIET, faults=(Fault(kind=Kind.HOSTILE, who=(1,)),))
    assert set(promises(hostile)) - set(PROMISES) == {
        "a liar moves no honest member apart",
        "an honest member asks who may be ahead",
        "an honest member passes a proposal on",
        *(check.__name__.replace("_", " ") for check in WHILE_A_MEMBER_LIES),
    }
    assert len(promises(hostile)) < len(PROMISES) / 2
    assert broken(hostile, without(Committed, "1", vector=ONE)) is None
    surprise = log(("1.1", Gone(error="KeyError: 3", foreseen=False)))
    assert broken(hostile, surprise) == "no error is a surprise: 1.1 failed: KeyError: 3"
