"""Stalls: who lives but does not come to the end of its own work is named, and with a patience left behind."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from company import Company, Walker
from live import HANGS
from live import samovar as samovar_verb
from loops import HERE, batch_loss, begin, network, nothing_runs_on  # noqa: F401
from simulated import PATIENCE_S, no_complaints, simulate  # noqa: F401
from tiers import one_in, soaked

import samovar
from samovar.peers.launch import launcher
from samovar.peers.records.records import EventRecord, Record
from samovar.peers.records.run import read_run
from samovar.peers.run_settings.settings import Settings
from samovar.protocols.channel import Channel
from samovar.protocols.meter import Meter
from samovar.protocols.stalls import works
from samovar.protocols.stalls.messages import Stall
from samovar.protocols.stalls.stalls import Stalls
from samovar.sims.scenarios.scenario import Fault, Kind, Scenario
from samovar.sims.scenarios.toy import toy_task
from samovar.sims.sweeps.promises import broken
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

Told = list[tuple[float, str, Stall]]
"""When, who tells, and what."""


def company_of(n: int = 4, *, train_s: float = 1.0, **wished: Any) -> tuple[Company, Told]:
    company, told = Company(n, rounds=10**6, train_s=lambda index: train_s, **wished), Told()
    for walker in company.walkers:
        listen(walker, told)
    return company, told


def listen(walker: Walker, told: Told) -> None:
    walker.sgd.stalls.on_stall.append(lambda stall: told.append((asyncio.get_running_loop().time(), walker.id, stall)))


async def over(company: Company) -> None:
    for walker in company.walkers:
        walker.crash()
        walker.sgd.stalls.close()
    await company.ended()


def test_a_peer_hung_in_a_local_step_is_named_by_all_now_and_again_until_it_goes_on() -> None:
    async def main() -> None:
        company, told = company_of()
        await company.gathered(3)
        company[3].train_s = 100.0
        began = asyncio.get_running_loop().time()
        await company.until(lambda: told != [])
        company[3].train_s = 1.0
        await company.until(lambda: company[0].sgd.state.round >= 6)
        assert {teller for _, teller, _ in told} == {"p0", "p1", "p2", "p3"}, "itself too"
        assert {stall.peer for _, _, stall in told} == {"p3"}
        mine = [(when - began, stall) for when, teller, stall in told if teller == "p0"]
        assert [round(when / 10) for when, _ in mine] == [1, 4, 7, 10, 10]
        assert mine[0][1].why == "10 s of local steps, usually 1 s; now in a test"
        assert mine[-1][1] == Stall("p3", "after 100 s of local steps", over=True)
        assert [stall.over for _, stall in mine] == [False] * 4 + [True]
        assert company[0].membership.removals == [], "without a patience it is waited for"
        await over(company)

    simulate(main())


def test_a_peer_no_slower_than_usual_is_not_named() -> None:
    async def main() -> None:
        company, told = company_of()
        company[2].train_s = 40.0
        company.start()
        await company.until(lambda: company[0].sgd.state.round >= 4)
        company[2].train_s = 360.0
        await company.until(lambda: company[0].sgd.state.round >= 6)
        assert told == []
        await over(company)

    simulate(main(), within_s=2000.0)


def test_a_peer_hung_before_its_first_round_is_named_after_a_minute() -> None:
    async def main() -> None:
        company, told = company_of()
        company[1].train_s = 1e6
        company.start()
        await company.until(lambda: told != [])
        assert told[0][0] == pytest.approx(works.FIRST_S, abs=2.0)
        assert told[0][2].why == "60 s of local steps, the first; now in a test"
        await over(company)

    simulate(main())


@pytest.mark.parametrize(
    "hung", [soaked((2,)), soaked((0,)), (0, 1)], ids=["a member", "the coordinator", "the two most senior"]
)
def test_with_a_patience_the_others_go_on_and_hung_peers_come_back_and_catch_up(hung: tuple[int, ...]) -> None:
    async def main() -> None:
        company, _ = company_of(5, compute_patience_s=20.0)
        await company.gathered(3)
        await asyncio.sleep(0.5)  # all take a local step, so all that hang do so in the next round
        for index in hung:
            company[index].train_s = 60.0
        others = [walker for walker in company.walkers if walker.index not in hung]
        began = asyncio.get_running_loop().time()
        await company.until(lambda: len(others[0].membership.view.ids) == 5 - len(hung))
        assert asyncio.get_running_loop().time() - began < 20.0 + 2 * PATIENCE_S
        for index in hung:
            company[index].train_s = 1.0
        done = others[0].sgd.state.round
        await company.until(lambda: min(walker.sgd.state.round for walker in others) >= done + 20)
        removals = {removal.name: removal.why for removal in others[0].membership.removals}
        assert set(removals) == {f"p{index}" for index in hung}
        assert "20 s of local steps for round 5, with --compute-patience-s 20" in removals[f"p{hung[-1]}"]
        await company.until(lambda: len(others[0].membership.view.ids) == 5)
        done = others[0].sgd.state.round
        await company.until(lambda: others[0].sgd.state.round >= done + 5)
        assert [walker.error for walker in company.walkers] == [None] * 5
        back = company[hung[0]].outcomes
        assert any(outcome.caught_up for outcome in back)
        assert not back[-1].caught_up
        await over(company)

    simulate(main(), within_s=2000.0)


def test_nobody_is_given_up_when_too_few_would_be_left() -> None:
    async def main() -> None:
        company, told = company_of(2, compute_patience_s=20.0)
        await company.gathered(3)
        company[1].train_s, generation = 300.0, company[0].membership.view.generation
        await asyncio.sleep(200.0)
        assert {stall.peer for _, _, stall in told} == {"p1"}
        company[1].train_s = 1.0
        done = company[0].sgd.state.round
        await company.until(lambda: company[0].sgd.state.round >= done + 5)
        assert company[0].membership.removals == []
        assert company[0].membership.view.generation == generation
        assert [walker.error for walker in company.walkers] == [None] * 2
        await over(company)

    simulate(main())


def test_an_evaluation_or_a_checkpoint_is_named_but_never_given_up() -> None:
    async def main() -> None:
        company, told = company_of(compute_patience_s=20.0)
        await company.gathered(3)
        plain = company[2].step

        async def evaluates_first() -> None:
            company[2].step = plain  # type: ignore[method-assign]
            with company[2].sgd.stalls.at_work("evaluation"):
                await asyncio.sleep(200.0)
            await plain()

        company[2].step = evaluates_first  # type: ignore[method-assign]
        done = company[0].sgd.state.round
        await company.until(lambda: company[0].sgd.state.round >= done + 5)
        assert company[0].membership.removals == []
        named = [stall.why for _, teller, stall in told if teller == "p0"]
        assert named[0] == "60 s of evaluation, the first"
        assert named[-1] == "after 200 s of evaluation"
        await over(company)

    simulate(main())


def test_a_peer_that_withholds_its_part_silently_is_named_by_the_waiting_peers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Stalls, "_say", lambda self, work, over: None)

    async def main() -> None:
        company, told = company_of()
        await company.gathered(3)
        company[3].train_s = 200.0
        await company.until(lambda: told != [])
        company[3].train_s = 1.0
        await company.until(lambda: company[0].sgd.state.round >= 6)
        assert {stall.peer for _, _, stall in told} == {"p3"}
        first, *_, last = [stall for _, _, stall in told]
        assert first.why == "it is there, but nothing of its contribution for 60 s, without a reason"
        assert last == Stall("p3", "its contribution has come", over=True)
        await over(company)

    simulate(main())


def test_a_peer_that_has_sent_something_meanwhile_is_silent_only_since_then() -> None:
    async def main() -> None:
        company = Company(1)
        walker, told, came_s = company[0], list[tuple[float, Stall]](), {"p1": 0.0}
        stalls = Stalls(Channel(walker.endpoint, "other stalls"), walker.membership, Meter(), lambda: 0)
        now = asyncio.get_running_loop().time
        stalls.on_stall.append(lambda stall: told.append((now(), stall)))
        with stalls.waiting(lambda: ["p1", "p2"], came_s=came_s):
            for _ in range(8):
                await asyncio.sleep(15.0)
                came_s["p1"] = now()
            assert {stall.peer for _, stall in told} == {"p2"}
            await asyncio.sleep(works.FIRST_S + works.AGAIN_S)
        (first, *_) = [stall.why for _, stall in told if stall.peer == "p1"]
        assert first == "it is there, but nothing of its contribution for 60 s, without a reason"
        stalls.close()
        walker.membership.close()

    simulate(main())


def test_a_mate_that_keeps_a_site_waiting_and_does_not_say_why_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stalls, "_say", lambda self, work, over: None)

    class Mate(Walker):
        async def step(self) -> None:
            await asyncio.sleep(self.train_s)
            before = self.sgd.state
            await self.sgd.average_at_site(self.brings(), 1)
            if self.sgd.state is before:
                await self.sgd.average(self.brings())

    async def main() -> None:
        company, told = company_of(4, sites=("east", "west"))
        for walker in company.walkers:
            walker.__class__ = Mate
        await company.gathered(3)
        company[2].train_s = 100.0
        await company.until(lambda: told != [])
        (first,) = told
        assert first[1:] == (
            "p0",
            Stall("p2", "it is there, but nothing of its contribution for 60 s, without a reason"),
        )
        await over(company)

    simulate(main())


# ---- whole peers


WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "overlap": {"overlap": True, "period": "4"},
    "own pace": {"pace": "own", "period": "4"},
    "sites": {"site": "east;west", "site_period": 2, "period": "4"},
}


@pytest.mark.parametrize("way", one_in(2, reversed(WAYS)))
def test_a_hung_step_is_left_behind_whichever_way_peers_train(way: str) -> None:
    wished = {"peers": 4, "period": "2", "steps": 80, "patience_s": 4.0, "compute_patience_s": 20.0, "device": "cpu"}
    settings = Settings(**{**wished, "step_time": "500ms", **WAYS[way]})
    hung = Fault(kind=Kind.SLOW, who=(2,), at_s=12.0, for_s=5.0, factor=200.0)
    scenario = dataclasses.replace(Scenario.plain(settings), faults=(hung,), faults_until_s=30.0)
    records = list[Record]()
    world = World(toy_task(), scenario, records.append)
    run_virtual(world.run(), seed=1)
    assert broken(scenario, world.log.entries) is None
    events = [record for record in records if isinstance(record, EventRecord)]
    named = {(event.peer, event.subject) for event in events if event.event == "stalled"}
    assert {("0", "2"), ("2", "2")} <= named
    (why,) = {event.why for event in events if event.event == "lost" and event.peer == "0"}
    assert "s of local steps for round" in why


SCRIPTS: dict[str, dict[str, Any]] = {
    "models": {"period": 2},
    "overlap": {"period": 2, "overlap": True},
    "gradients": {"average": "gradients"},
    "sites": {"period": 4, "site": "here", "site_period": 2},
}


@pytest.mark.parametrize("way", SCRIPTS)
def test_a_script_that_hangs_between_steps_is_named(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "LEAST_S", 0.2)
    named = threading.Event()

    def loop(run: samovar.Run) -> None:
        model = network()
        optimizer = run.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
        assert run._peer is not None
        if run.part == 0:
            run._peer.stalls.on_stall.append(lambda stall: named.set())
        for step in range(12):
            if (run.part, step) == (1, 9):
                assert named.wait(60)
            optimizer.zero_grad()
            batch_loss(model, step).backward()
            optimizer.step()
        run.leave()

    founder = begin(tmp_path / "0", peers=2, **SCRIPTS[way])
    assert founder.invitation is not None
    own = {"run": tmp_path / "1", "listen": HERE, "name": "1", "site": SCRIPTS[way].get("site")}
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: loop(samovar.join(**founder.invitation, **own)))
        loop(founder)
        other.result()
    told = [event for event in read_run(tmp_path / "0").events if event.event in ("stalled", "goes_on")]
    assert {event.subject for event in told} == {"1"}
    assert told[0].why.endswith("; now in the script's own loop")
    assert (told[0].event, told[-1].event) == ("stalled", "goes_on")


# ---- real processes


def test_all_peers_are_told_of_a_hung_data_loader_and_with_a_patience_the_others_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "GRACE_S", 1.0)  # in which a peer that hangs may end by itself
    patience = ("--patience-s", 1, "--compute-patience-s", 2)
    options = ("--peers", 4, "--period", 8, "--steps", 96, "--run", "run", "--json", "--no-report")
    ended = samovar_verb(tmp_path, "train", HANGS, *options, *patience)
    assert ended.code == 0, ended.err
    assert [lost["peer"] for lost in ended.result["lost"]] == ["1"]
    told = r"waiting for 1 .*peer 1 stalled: 2 s of local steps, usually \S+ s; now in data\(\), step 41"
    assert re.search(told, ended.err)
    events, rounds = read_run(tmp_path / "run").events, read_run(tmp_path / "run").exchanges
    assert {"0", "1"} <= {event.peer for event in events if (event.event, event.subject) == ("stalled", "1")}
    why = {event.why for event in events if (event.event, event.subject) == ("lost", "1")}
    assert any("2 s of local steps for round 6, with --compute-patience-s 2" in each for each in why)
    assert {record.peer for record in rounds if record.step == 96} == set("023")
    assert ended.left == []
