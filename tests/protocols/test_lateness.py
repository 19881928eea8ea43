"""Lateness: a connection that becomes too slow for its contribution to a round costs the others a deadline, not every
round; who only computes slowly, or is as slow as all others, is never given up."""

from __future__ import annotations

import asyncio

import pytest
from company import Company
from simulated import PATIENCE_S, no_complaints, simulate  # noqa: F401
from tiers import soaked

from samovar.peers.records.records import EventRecord, Record
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.link_text import parse_link
from samovar.protocols.local_sgd.stragglers import Lateness
from samovar.protocols.members.removals import Removal
from samovar.sims.scenarios.scenario import Fault, Group, Kind, Scenario
from samovar.sims.scenarios.toy import toy_task
from samovar.sims.sweeps.verdict import judge
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

FAST, SLOW = "10mbit,5ms", "0.2mbit,5ms"


def company_of(n: int = 4, *, size: int = 26_000, schedule: str = "ring", train_s: float = 2.0) -> Company:
    return Company(n, rounds=10**6, size=size, link=FAST, schedule=schedule, train_s=lambda index: train_s)


async def slowed(company: Company, *who: int, to: str = SLOW) -> None:
    """Start, and slow their connections down after some rounds."""
    company.start()
    await company.until(lambda: all(walker.sgd.state.round >= 4 for walker in company.walkers))
    for index in who:
        company.network.links[f"p{index}"] = parse_link(to)


async def over(company: Company) -> None:
    for walker in company.walkers:
        walker.crash()
    await company.ended()


def late(company: Company, seen_by: int) -> list[Removal]:
    return [removal for removal in company[seen_by].membership.removals if "is late" in removal.why]


def committed_alike(company: Company) -> None:
    """Nobody has applied half a round: who is in the same round has the same model."""
    by_round: dict[int, set[bytes]] = {}
    for walker in company.walkers:
        for outcome in walker.outcomes:
            by_round.setdefault(outcome.state.round, set()).add(outcome.state.vector.numpy().tobytes())
    assert all(len(models) == 1 for models in by_round.values())


CASES = [
    soaked("ring", 0, 26_000),
    ("ring", 2, 26_000),
    ("sharded", 0, 26_000),
    soaked("sharded", 2, 26_000),
    soaked("halving_doubling", 0, 20_000),
    ("halving_doubling", 2, 20_000),
    ("double_tree", 0, 44_000),
    soaked("double_tree", 2, 26_000),
    soaked("naive", 0, 20_000),
]


@pytest.mark.parametrize(("schedule", "who", "size"), CASES)
def test_the_others_go_on_without_a_member_whose_connection_became_50_times_slower(
    schedule: str, who: int, size: int
) -> None:
    """Whether it coordinates or not; the removal says what was late, and how slow it is."""

    async def main() -> None:
        company = company_of(size=size, schedule=schedule)
        await slowed(company, who)
        other = 1 if who == 0 else 0
        await company.until(lambda: late(company, other) != [])
        (removal,) = late(company, other)
        assert removal.name == f"p{who}"
        assert "s were foreseen" in removal.why
        assert "its connection carries 23.2 kB/s, the others' 1,0" in removal.why
        others = [walker for walker in company.walkers if walker.index != who]
        done = max(walker.sgd.state.round for walker in others)
        await asyncio.sleep(20.0)
        assert min(walker.sgd.state.round for walker in others) >= done + 7, "rounds of a bit more than 2 s"
        committed_alike(company)
        await over(company)

    simulate(main(), within_s=1000.0)


def test_a_member_with_heartbeats_stuck_behind_its_data_is_lost_as_silent() -> None:
    async def main() -> None:
        company = company_of(size=32_000, schedule="naive")
        await slowed(company, 2)
        await company.until(lambda: company[0].membership.removals != [])
        assert company[0].membership.removals[0].name == "p2"
        assert company[0].membership.removals[0].why.startswith("not heard of for")
        done = company[0].sgd.state.round
        await company.until(lambda: company[0].sgd.state.round >= done + 20)
        committed_alike(company)
        await over(company)

    simulate(main(), within_s=200.0)


def test_without_the_rule_all_wait_for_the_slow_peer_round_after_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lateness, "_judge", lambda self: None)

    async def main() -> None:
        company = company_of()
        await slowed(company, 2)
        await asyncio.sleep(100.0)
        assert company[0].membership.removals == []
        assert company[0].sgd.state.round < 16
        await over(company)

    simulate(main())


def test_a_slow_member_is_told_why_it_waits_and_comes_back_when_its_link_is_well() -> None:
    async def main() -> None:
        company = company_of()
        told: list[str] = []
        company[2].membership.on_waiting.append(told.append)
        await slowed(company, 2)
        await company.until(lambda: late(company, 0) != [])
        company.network.links.pop("p2")
        await company.until(lambda: told != [])
        await asyncio.sleep(4 * PATIENCE_S)
        assert company[0].membership.view.ids == ("p0", "p1", "p3"), "it is held off"
        await company.until(lambda: len(company[0].membership.view.ids) == 4)
        done = len(company[2].outcomes)
        await company.until(lambda: len(company[2].outcomes) >= done + 5)
        assert company[2].error is None
        assert not company[2].outcomes[-1].caught_up
        assert len(company[0].membership.removals) == 1
        (why,) = told
        assert why.startswith("the others let it in again in ")
        assert "its contribution to round" in why
        await over(company)

    simulate(main(), within_s=1000.0)


def test_a_permanently_slow_member_takes_less_than_a_tenth_of_the_others_time() -> None:
    async def rounds(company: Company, *who: int) -> int:
        await slowed(company, *who)
        before = company[0].sgd.state.round
        await asyncio.sleep(450.0)
        made = company[0].sgd.state.round - before
        await over(company)
        return made

    without = simulate(rounds(company_of(3)), within_s=500.0)
    company = company_of()
    beside = simulate(rounds(company, 2), within_s=500.0)
    assert late(company, 0) != []
    assert beside >= 0.9 * without


def test_a_device_20_times_slower_is_never_given_up() -> None:
    async def main() -> None:
        company = company_of()
        company[2].train_s = 40.0
        company.start()
        await company.until(lambda: company[0].sgd.state.round >= 4)
        assert company[0].membership.removals == []
        assert company[0].outcomes[-1].wait_s > 8 * PATIENCE_S
        await over(company)

    simulate(main())


def test_no_peer_is_given_up_where_all_connections_become_slow() -> None:
    async def main() -> None:
        company = company_of(size=10_000)
        await slowed(company, 0, 1, 2, 3)
        done = company[0].sgd.state.round
        await company.until(lambda: company[0].sgd.state.round >= done + 6)
        outcome = company[0].outcomes[-1]
        assert outcome.wait_s + outcome.transfer_s > PATIENCE_S / 2, "it did become slow"
        assert company[0].membership.removals == []
        await over(company)

    simulate(main())


def test_neither_of_two_peers_is_given_up() -> None:
    async def main() -> None:
        company = company_of(2)
        await slowed(company, 1)
        await asyncio.sleep(200.0)
        assert late(company, 0) == []
        assert company[0].sgd.state.round > 10
        await over(company)

    simulate(main())


def a_late_part(seed: int) -> Scenario:
    """One connection of four becomes 50 times slower for a minute."""
    settings = Settings(peers=4, schedule="ring", period="1", steps=40, patience_s=4.0, seed=seed, device="cpu")
    slow = Fault(kind=Kind.LINK, who=(2,), at_s=6.0 + seed, for_s=60.0, link=parse_link(SLOW))
    group = Group(peers=4, link=parse_link(FAST), step_s=1.0)
    return Scenario(settings=settings, groups=(group,), faults=(slow,), faults_until_s=120.0, toy_size=26_000)


@pytest.mark.parametrize("seed", [0, soaked(1)])
def test_every_promise_holds_when_a_part_is_late(seed: int) -> None:
    verdict = judge(a_late_part(seed))
    assert verdict.broken is None
    assert verdict.reached["a late part"]


def test_the_record_names_the_late_part() -> None:
    scenario, records = a_late_part(2), list[Record]()
    run_virtual(World(toy_task(scenario.toy_size), scenario, records.append).run(), seed=2)
    late = {record.subject for record in records if isinstance(record, EventRecord) and "is late" in record.why}
    assert late == {"2"}
