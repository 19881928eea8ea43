"""The sweep and what it rests on: checkers that can fail, faults that do happen, runs that are functions of a seed."""

import asyncio
import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import planted
import pytest
import torch
from simulated import printed_under_hash_seed

import samovar
from samovar.peers.settings.settings import Settings
from samovar.protocols.link.table import INBOUND_BYTES_MAX
from samovar.protocols.link_spec import LinkSpec
from samovar.protocols.local_sgd.rounds import (
    Committed,
    Computed,
    Contributed,
    Installed,
    SiteCommitted,
    SiteContributed,
)
from samovar.protocols.members.states import Moved, State
from samovar.protocols.transfer.snapshot_transfer import Fetched
from samovar.protocols.transport import Arrivals
from samovar.sims.scenarios.draw import draw
from samovar.sims.scenarios.scenario import Fault, Kind, Scenario
from samovar.sims.sweeps.checkers import PROMISES, broken
from samovar.sims.sweeps.minimise import minimise
from samovar.sims.sweeps.sweep import PLACES, REQUIRED, SITES, TOO_RARE, judge_seed, sweep, unmet
from samovar.sims.sweeps.verdict import judge
from samovar.sims.world.event_log import Began, Complained, Entry, Gone, Held, Log, Misdelivered, Observer, Refused
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.machine import Machine
from samovar.sims.world.network import Network

# ---- seeds

FOUND_BUGS = {
    1103: "who had lost one coordinator never gave up the next one",
    1286: "who led a change went on with it though another's view had come while its own word was written",
    374: "who had lost the coordinator joined anew, as others had vouched for it before it ended",
    753: "a hostile member turned a newcomer away without a word, and that gave no line",
    959: "a newcomer that one contact had sent elsewhere was turned away by another member, and began anew",
    1075: "parts that had come were dropped for those of a donor that was behind",
    2024: "a peer that came back took an earlier state, of a donor that had begun anew",
    2823: "the time that it took to gather kept out a newcomer for minutes",
    77021: "a peer that is joining may be told that it is let in no more",
    2187: "two led against each other for ever, as each promise came too late for its ballot",
    3250: "a former acceptor that did not answer was waited for without end",
    3566: "before the start two halves of a view decided, one with its senior member, one by the other's death",
    3613: "who summed with a mate that it did not reach any more took a mean that counted another twice",
    4419: "members of two generations each waited for one of the other to lead",
}
"""Seeds that find these again when what mended them is taken out, as `planted.TAKEN_BACK` does."""


@pytest.mark.parametrize("first", range(1, 61, 10))
def test_every_promise_holds_whatever_a_seed_draws(first: int) -> None:
    """`samovar simulate --sweep 300 --seed 1` judges more of them."""
    wrong = {seed: verdict.broken for seed in range(first, first + 10) if (verdict := judge_seed(seed)).broken}
    assert not wrong


@pytest.mark.parametrize("seed", FOUND_BUGS)
def test_a_seed_that_found_a_bug_finds_it_no_more(seed: int) -> None:
    assert judge_seed(seed).broken is None


@pytest.mark.parametrize("name", planted.ALL)
def test_each_fault_that_mutants_plant_is_planted_in_the_code_of_today(name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        planted.ALL[name](patch)


def test_what_a_sweep_never_met_is_named() -> None:
    assert unmet(300, Counter(REQUIRED)) == []
    assert unmet(300, Counter(REQUIRED[1:])) == [REQUIRED[0]]
    assert unmet(299, Counter()) == [], "a short one shows only that its seeds held"


def test_a_sweep_knows_every_rare_place_of_the_protocols() -> None:
    """So that a place that is written later is required too, or is said to be too rare."""
    files = (Path(samovar.__file__).parent / "protocols").rglob("*.py")
    source = "".join(path.read_text(encoding="utf-8") for path in files)
    assert set(re.findall(r'sometimes\("(.*?)"\)', source)) == {*PLACES, *TOO_RARE}
    assert set(re.findall(r'buggify\("(.*?)"\)', source)) == set(SITES)


def test_processes_judge_a_sweep_as_one_does() -> None:
    alone, together = ([(v.digest, v.broken) for v in sweep(range(8, 11), workers=n)] for n in (1, 2))
    assert alone == together


# ---- planted bugs


FINDERS = {
    planted.commits_without_a_quorum: ("what is committed more than half have", [1, 2, 4]),
    planted.counts_an_update_twice_after_a_retry: ("every contribution counts once", [5, 6, 1]),
    planted.accepts_a_stale_generation: ("nothing of an old generation is applied", [725, 323, 360]),
}
"""The promise that each bug breaks, and seeds of which one shows it at least."""


@pytest.mark.parametrize("plant", planted.PLANTED)
def test_a_planted_bug_is_found_and_made_small(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python tests/planted.py` looks for them in 300 seeds, and makes them as small as it can."""
    promise, seeds = FINDERS[plant]
    plant(monkeypatch)
    found = next(verdict for seed in seeds if (verdict := judge(draw(seed))).broken)
    assert found.promise == promise
    small = minimise(found, runs_max=40)
    assert small.promise == promise
    assert small.scenario.peers <= 8
    assert len(small.scenario.faults) <= 3


# ---- checkers

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
        *((life, Installed(1, ALL, 0, ())) for life in lives),
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
    "nothing of an old generation is applied": [
        (without(Installed, "2", generation=2, round=1, donors=ALL[:2]), "2.0 committed round 1 of generation 1 in 2"),
        (without(Installed, "2", generation=2, round=0, donors=ALL), "2.0 committed round 1 of generation 1 in 2"),
        (good_log() + log(("0.0", Committed(1, TWO, (1, 1), 6.0))), "0.0 committed round 1 after round 1"),
        (
            log(("0.0", Installed(5, ALL, 0, ())), ("0.0", Installed(5, ALL, 0, ()))),
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
    "who was given up contributes no more": [
        (
            log(("1.0", Moved(State.MEMBER, State.EXPELLED)), ("1.0", Contributed((1, 4), ONE, 2.0, ALL))),
            "1.0 begins an attempt at round 4, though it is expelled",
        ),
    ],
    "a part that has come is not fetched again": [
        (good_log() + log(*[("1.0", Fetched(4, 7))] * 3), "1.0 got part 7 of version 4 3 times"),
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
    "who lives finishes": [
        (without(Gone), "nobody finished"),
        (without(Gone, "0", finished=False, error="too few are left"), "0.0 gave up: too few are left"),
    ],
}


def test_a_log_of_a_good_run_breaks_no_promise() -> None:
    assert broken(QUIET, good_log() + log(*SITE)) is None


@pytest.mark.parametrize("promise", PROMISES)
def test_each_promise_can_be_broken_and_says_how(promise: str) -> None:
    for entries, how in BAD_LOGS[promise]:
        assert list(PROMISES[promise](QUIET, entries))[:1] == [how]


def test_a_run_that_is_founded_anew_has_its_generations_anew() -> None:
    first = log(("0.0", Installed(1, ALL[:1], 0, ())), ("0.0", Installed(2, ALL[:2], 0, ())))
    anew = log(("2.0", Installed(1, ALL[2:], 0, ())), ("2.0", Installed(2, ALL, 0, ())))
    check = PROMISES["one generation has one view"]
    assert list(check(QUIET, first + anew)) == []
    assert list(check(QUIET, first + anew[1:])) == [
        "generation 2: 0,1 from round 0 for 0.0, 0,1,2 from round 0 for 2.0"
    ]


def test_who_is_let_in_again_may_apply_what_the_new_view_hands_on() -> None:
    """The other side of the checkers above: they do not cry wolf."""
    entries = without(Installed, "2", generation=2, round=1, donors=ALL)
    assert list(PROMISES["nothing of an old generation is applied"](QUIET, entries)) == []


def test_who_has_learned_or_alone_has_the_result_is_a_member() -> None:
    learned = log(("3.0", Committed(1, TWO, None, 0.0)), ("3.0", LATE), ("3.0", Moved(State.LEARNER, State.MEMBER)))
    restored = log(("3.0", Began(round=1)), ("3.0", LATE), ("3.0", Moved(State.LEARNER, State.MEMBER)))
    alone = log(("3.0", replace(LATE, donors=("peer-3",))), ("3.0", Moved(State.JOINING, State.MEMBER)))
    check = PROMISES["nobody is a member before it has a result"]
    for entries in (learned, restored, alone):
        assert list(check(QUIET, good_log() + entries)) == []


def test_a_peer_that_more_than_half_have_left_behind_may_give_up() -> None:
    late = log(("0.0", Gone(finished=True)), ("1.0", Gone(finished=True)), ("2.0", Gone(error="nobody is there")))
    late = [entry._replace(time_s=entry.time_s + 100) for entry in late]
    entries = [entry for entry in good_log() if not isinstance(entry.event, Gone)] + late
    assert broken(QUIET, entries) is None


def test_newcomers_whom_nobody_is_left_to_tell_that_they_are_let_in_may_give_up() -> None:
    begun = [(f"{index}.0", Began()) for index in range(5)]
    view = Installed(2, tuple(f"peer-{index}" for index in range(5)), 0, ())
    crashed = [(f"{index}.0", Gone(crashed=True)) for index in (0, 1)]
    gave_up = [(f"{index}.0", Gone(error="nobody is there")) for index in (2, 3, 4)]
    scenario = Scenario.plain(Settings(peers=5, device="cpu"))
    assert broken(scenario, log(*begun, ("0.0", view), *crashed, *gave_up)) is None
    assert broken(scenario, log(*begun, ("0.0", view), ("1.0", view), crashed[0], *gave_up)) is not None


def test_who_goes_without_a_word_or_gives_up_while_too_few_have_finished_is_noticed() -> None:
    silent = [entry for entry in good_log() if not isinstance(entry.event, Gone)] + log(("1.0", Gone()))
    assert "1.0 gave up: without a word" in broken(QUIET, silent)
    one = log(("0.0", Gone(finished=True)), ("1.0", Gone(error="why")), ("2.0", Gone(error="why")))
    few = [entry for entry in good_log() if not isinstance(entry.event, Gone)]
    assert "1.0 gave up: why" in broken(QUIET, few + [entry._replace(time_s=entry.time_s + 100) for entry in one])


def test_after_the_heal_who_is_there_must_finish() -> None:
    """What makes a scenario unfit to be judged before the heal does not matter then."""
    cut = Fault(kind=Kind.CUT_OFF, who=(2,), at_s=1.0, for_s=100.0)
    healed = replace(QUIET, faults=(cut,), faults_until_s=30.0)
    assert not healed.brief
    gone = log(("2.0", Gone(error="why")), ("1.0", Gone(finished=True)), ("0.0", Gone(finished=True)))
    rest = [entry for entry in good_log() if not isinstance(entry.event, Gone)]
    late_s = 30.0 + 10 * healed.settings.patience_s
    early, after = ([entry._replace(time_s=entry.time_s + at_s) for entry in gone] for at_s in (31.0, late_s))
    assert broken(healed, rest + early) is None
    assert "2.0 gave up: why" in (broken(healed, rest + after) or "")


# ---- chance


def drawn_order(seed: int, *, disturbed: bool = False) -> list[int]:
    """In which order 20 timers of one machine go off that are due at the same time."""

    async def main() -> list[int]:
        seen: list[int] = []
        loop = asyncio.get_running_loop()
        machine, other = (Machine(name, lambda handle: None, seed) for name in ("0.0", "1.0"))
        for number in range(20):
            loop.call_at(1.0, seen.append, number, context=machine.context)
            if disturbed:
                loop.call_at(1.0, lambda: None, context=other.context)
        await asyncio.sleep(2)
        return seen

    return run_virtual(main(), seed=seed)


def test_what_is_due_at_the_same_time_goes_in_an_order_that_the_seed_draws() -> None:
    assert drawn_order(1) == drawn_order(1)
    orders = {tuple(drawn_order(seed)) for seed in range(5)}
    assert len(orders) == 5
    assert tuple(range(20)) not in orders


DIGESTS = (
    "from samovar.sims.scenarios.draw import draw;"
    "from samovar.sims.sweeps.verdict import judge;"
    "print(*(judge(draw(seed)).digest for seed in (2, 5, 9, 10)))"
)


def test_a_seed_gives_the_same_digest_under_any_hash_seed_and_no_other_seed_gives_it() -> None:
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    told = printed_under_hash_seed(hash_seed, DIGESTS).split()
    assert told == [judge(draw(seed)).digest for seed in (2, 5, 9, 10)], "this process has another hash seed"
    assert len(set(told)) == 4


def test_one_more_draw_in_one_place_does_not_reshuffle_the_rest() -> None:
    """Neither the jitter of another way, nor which of two timers of another machine goes off first."""

    def heard(*sent: str) -> list[tuple[str, float]]:
        """Who is heard, and when."""

        async def main() -> list[tuple[str, float]]:
            network, times = Network(LinkSpec(bandwidth_Bps=1e15, latency_s=0.1, jitter_s=1.0), seed=1), []
            clock = asyncio.get_running_loop().time
            for name in "abc":
                told = Arrivals(lambda sender, *_: times.append((sender, clock())), lambda _: None, lambda *_: None)
                network.open(name, told)
                for other in "abc":
                    network.admit(name, other)
            for sender, to in sent:
                network.carry(sender, to, b"", b"")
            await asyncio.sleep(5)
            return times

        return run_virtual(main())

    (alone,) = heard("ab")
    assert alone in [(who, pytest.approx(when)) for who, when in heard("cb", "bc", "ab")]
    assert drawn_order(1, disturbed=True) == drawn_order(1)


def observer(seed: int, site: str = "a site", until_s: float = 9.0) -> list[bool]:
    async def main() -> list[bool]:
        eye, fired = Observer(Log(), "0.0", seed, buggify_until_s=until_s), []
        for _ in range(1000):
            fired.append(eye.buggify(site))
            await asyncio.sleep(0.01)
        return fired

    return run_virtual(main())


def test_our_own_code_is_disturbed_now_and_then_at_some_sites_until_all_is_healed() -> None:
    runs = [observer(seed) for seed in range(40)]
    active = [run for run in runs if any(run)]
    assert 4 <= len(active) <= 16, "a quarter of all runs"
    assert all(20 <= sum(run) <= 80 for run in active), "one visit in twenty"
    assert not any(any(run[900:]) for run in runs)
    assert observer(3, until_s=0.0) == [False] * 1000
    assert {site for site in SITES for seed in range(30) if any(observer(seed, site))} == set(SITES)


def test_the_time_of_day_may_jump_an_hour_and_nothing_comes_of_it() -> None:
    scenario = replace(draw(12), faults=())
    jumps = tuple(Fault(kind=Kind.CLOCK, at_s=at_s, factor=factor) for at_s, factor in ((0.5, 3600.0), (2.0, -7200.0)))
    seen = [judge(replace(scenario, faults=faults)) for faults in ((), jumps)]
    assert [verdict.reached["fault: clock"] for verdict in seen] == [0, 2]
    assert seen[0].digest == seen[1].digest
