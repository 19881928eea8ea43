"""SWIM in simulations: its promises hold under drawn faults, planted defects break them, and a liar stops no
training."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from test_simulated_runs import TASKS
from tiers import soaked

from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import load_task
from samovar.protocols.swim.beliefs import Begun, Belief, Believes
from samovar.protocols.swim.effects import DeclaredDead, Refuted
from samovar.protocols.swim.member_table import Entry, MemberTable
from samovar.protocols.swim.messages import Tell
from samovar.protocols.swim.suspicion import Suspicion
from samovar.protocols.swim.words import Kind, Word
from samovar.sims.checkers.swim import (
    a_peer_believes_only_what_the_table_of_beliefs_says,
    a_peer_that_answers_is_neither_suspected_nor_given_up_for_long,
    incarnations_only_grow,
    the_dead_are_known_to_all,
)
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.sweeps.draw import draw
from samovar.sims.sweeps.verdict import judge
from samovar.sims.world import event_log
from samovar.sims.world.event_log import Gone
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.simulated_peer import Life
from samovar.sims.world.world import World

PEACE = Scenario.plain(Settings(peers=3, protocol="gossip", membership="swim", device="cpu", patience_s=1.0))


def by_swim(first: int, count: int) -> list[int]:
    """The first seeds from `first` on that draw a membership by SWIM."""
    seeds = (seed for seed in range(first, first + 20 * count) if _swims(draw(seed, "gossip")))
    return [next(seeds) for _ in range(count)]


def _swims(scenario: Scenario) -> bool:
    return str(scenario.settings.own.membership.text).startswith("swim")


@pytest.mark.parametrize(("first", "count"), [(0, 2), soaked(100, 12)])
def test_swim_keeps_its_promises_under_drawn_faults(first: int, count: int) -> None:
    """`samovar simulate --sweep 300 --protocol gossip` judges more of them."""
    wrong = {seed: judge(draw(seed, "gossip")).broken for seed in by_swim(first, count)}
    assert {seed: how for seed, how in wrong.items() if how} == {}


def test_a_third_of_the_sweeps_gossip_is_by_swim_with_links_and_without() -> None:
    drawn = [draw(seed, "gossip").settings.own.membership.text for seed in range(60)]
    assert {"views", "swim", "swim:3", "swim:4"} == {*drawn}
    assert 10 <= sum(text != "views" for text in drawn) <= 30


# Planted defects, each found by a seed


def refutes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Suspicion, "refute", lambda self, incarnation: None)


def takes_older_incarnations(monkeypatch: pytest.MonkeyPatch) -> None:
    hear = Suspicion._hear_of_member

    def older(self: Suspicion, entry: Entry, word: Word, bringer: str) -> None:
        entry.incarnation = min(entry.incarnation, word.incarnation)
        hear(self, entry, word, bringer)

    monkeypatch.setattr(Suspicion, "_hear_of_member", older)


def forgets_the_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    drop = MemberTable.drop

    def without_a_grave(self: MemberTable, entry: Entry, by: str, *, left: bool = False, grave: bool = True) -> None:
        drop(self, entry, by, left=left, grave=False)

    monkeypatch.setattr(MemberTable, "drop", without_a_grave)


def declares_nobody_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Suspicion, "failed", lambda self, entry, *, alone: None)


@pytest.mark.parametrize(
    ("plant", "seed", "promise"),
    [
        (refutes_nothing, 83, "a peer that answers is neither suspected nor given up for long"),
        (takes_older_incarnations, 13, "incarnations only grow"),
        (forgets_the_dead, 5, "a peer believes only what the table of beliefs says"),
        soaked(declares_nobody_dead, 5, "the dead are known to all"),
    ],
)
def test_a_planted_defect_of_the_membership_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], seed: int, promise: str
) -> None:
    scenario = draw(seed, "gossip")
    plant(monkeypatch)
    assert judge(scenario).promise == promise


# The predicates themselves


def log(*events: tuple[float, str, object]) -> list[event_log.Entry]:
    """A log of these events, in which the processes 0.0 and 1.0 take part from the beginning."""
    begun = [event_log.Entry(0.0, f"{peer}.0", Begun(10 + peer)) for peer in (0, 1)]
    return begun + [event_log.Entry(*event) for event in events]


def of(belief: Belief, incarnation: int = 0, *, own: bool = False) -> Believes:
    return Believes("peer-1", 11, belief, incarnation, own)


def test_a_lost_peer_comes_back_by_its_own_word_or_a_higher_incarnation_alone() -> None:
    def told(back: Believes) -> list[str]:
        events = [(1.0, "0.0", of(Belief.ALIVE)), (2.0, "0.0", of(Belief.LOST, 1)), (3.0, "0.0", back)]
        return list(a_peer_believes_only_what_the_table_of_beliefs_says(PEACE, log(*events)))

    assert told(of(Belief.ALIVE, 2)) == [] == told(of(Belief.ALIVE, 1, own=True))
    assert told(of(Belief.ALIVE, 1)) == ["0.0 took peer-1 for alive again in incarnation 1 at 3.000 s"]
    assert told(of(Belief.SUSPECT, 2)) == ["0.0 took peer-1 for lost and then for suspect at 3.000 s"]


def test_an_incarnation_that_falls_is_found() -> None:
    events = [(1.0, "0.0", of(Belief.ALIVE, 2)), (2.0, "0.0", of(Belief.SUSPECT, 1)), (3.0, "0.0", Refuted(4))]
    found = list(incarnations_only_grow(PEACE, log(*events, (4.0, "0.0", Refuted(4)))))
    assert found == [
        "0.0 went from incarnation 2 to 1 of peer-1 at 2.000 s",
        "0.0 went from incarnation 4 to 4 at 4.000 s",
    ]


def test_a_live_peer_that_stays_lost_or_suspected_is_found() -> None:
    def told(belief: Belief, ends_s: float) -> int:
        events = [(1.0, "0.0", of(Belief.ALIVE)), (3.0, "0.0", of(belief)), (ends_s, "1.0", Gone(finished=True))]
        return len(list(a_peer_that_answers_is_neither_suspected_nor_given_up_for_long(PEACE, log(*events))))

    assert [told(Belief.SUSPECT, 8.0), told(Belief.SUSPECT, 10.0)] == [0, 1]
    assert [told(Belief.LOST, 18.0), told(Belief.LOST, 20.0), told(Belief.LEFT, 99.0)] == [0, 1, 0]


def test_a_dead_peer_that_stays_a_member_is_found() -> None:
    def told(until_s: float) -> int:
        events = [(1.0, "0.0", of(Belief.ALIVE)), (3.0, "1.0", Gone(crashed=True)), (until_s, "0.0", of(Belief.LOST))]
        return len(list(the_dead_are_known_to_all(PEACE, log(*events))))

    assert [told(12.0), told(14.0)] == [0, 1]


# A member that lies


def accuses_all(liar: Life, others: list[Life]) -> None:
    """The liar tells each other peer that all the others do not answer."""
    driver = liar.peer.membership._driver
    table = driver.swim.table
    words = [Word(Kind.SUSPECT, one.member.id, one.member.life, one.incarnation, liar.id) for one in table]
    for other in others:
        beat = replace(driver.swim.beat(other.id), words=tuple(words))
        liar.machine.context.run(driver.send, other.id, Tell(beat))


@pytest.mark.parametrize("membership", ["swim", soaked("swim:3")])
def test_a_member_that_floods_false_suspicions_is_named_and_training_goes_on(membership: str) -> None:
    settings = Settings(
        peers=6,
        steps=300,
        period="4",
        step_time="20ms",
        patience_s=1.0,
        protocol="gossip",
        membership=membership,
        device="cpu",
    )
    world = World(load_task(TASKS / "union.py"), Scenario.plain(settings))

    async def flood() -> None:
        while True:
            await asyncio.sleep(0.05)
            liar, *others = world.lives
            if liar.running and liar.begun:
                accuses_all(liar, others)

    async def main() -> None:
        flooding = asyncio.create_task(flood())
        try:
            await world.run(within_s=300)
        finally:
            flooding.cancel()

    run_virtual(main(), seed=0)
    assert [life.result is not None and life.result.finished for life in world.lives] == [True] * 6
    assert not any(isinstance(entry.event, DeclaredDead) for entry in world.log.entries)
    heard = [life for life in world.lives[1:] if "peer-0" in life.endpoint.refused]
    assert len(heard) == 5
    assert all("suspects others that answer" in life.endpoint.refused["peer-0"] for life in heard)
