"""``samovar plan --protocol parameter-server`` against simulations, and what it says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from live import verb
from tiers import soaked

from samovar.aggregation.schedules.cost import Links
from samovar.peers.cli.plan_servers import ServerPlan, all_planned, enough, planned, planned_async
from samovar.peers.records.records import ExchangeRecord, Record
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.link_text import parse_link
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.scenarios.toy import toy_task
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

STEPS, FIRST = 7, 3


def links(count: int, link: str) -> Links:
    spec = parse_link(link)
    return Links.uniform(count, alpha_s=spec.latency_s, Bps=spec.bandwidth_Bps)


def simulated_s(workers: int, servers: int, size: int, link: str, consistency: str = "bsp", copies: int = 2) -> float:
    """Seconds of an exchange, once the links know their speed."""
    settings = Settings(
        protocol="parameter-server",
        peers=workers,
        servers=servers,
        copies=min(copies, servers),
        steps=STEPS,
        link=link,
        consistency=consistency,
        evaluate_every=1000,
        device="cpu",
    )
    records = list[Record]()
    run_virtual(World(toy_task(size // 4 - 1), Scenario.plain(settings), records.append).run(), seed=0)
    first = [one for one in records if isinstance(one, ExchangeRecord) and one.peer == "0"]
    begin, end = first[FIRST - 1], first[-2]
    return (end.time_s - begin.time_s) / (end.version - begin.version) - end.compute_s


@pytest.mark.parametrize(
    ("workers", "servers", "size", "link"),
    [
        (4, 1, 200_000, "10mbit,20ms"),
        (4, 2, 200_000, "10mbit,20ms"),
        (2, 4, 600_000, "100mbit,5ms"),
        soaked(4, 1, 1_000_000, "100mbit,5ms"),
        soaked(4, 2, 1_000_000, "100mbit,5ms"),
        soaked(4, 4, 1_000_000, "100mbit,5ms"),
        soaked(8, 2, 1_000_000, "100mbit,5ms"),
        soaked(4, 2, 1_000_000, "100mbit,40ms"),
    ],
)
def test_a_plan_of_servers_is_within_a_fifth_of_a_simulation(workers: int, servers: int, size: int, link: str) -> None:
    names = [[f"peer-{workers + number}" for number in range(servers)]]
    plan = planned(servers, 2, links(workers, link), links(servers, link), size, names)
    assert plan.seconds == pytest.approx(simulated_s(workers, servers, size, link), rel=0.21)


def above(percent: int, *case: Any) -> Any:
    """A case in which a plan is above the simulation, since acknowledgements ride along with messages."""
    return pytest.param(*case, marks=pytest.mark.xfail(reason=f"the plan is {percent} % too long"))


@pytest.mark.parametrize(
    ("workers", "servers", "size", "link", "copies"),
    [
        (4, 1, 200_000, "10mbit,20ms", 2),
        (4, 2, 200_000, "10mbit,20ms", 2),
        soaked(2, 1, 200_000, "10mbit,20ms", 2),
        (2, 4, 600_000, "100mbit,5ms", 2),
        (1, 4, 400_000, "20mbit,30ms", 2),
        soaked(2, 8, 400_000, "20mbit,10ms", 2),
        soaked(3, 3, 900_000, "100mbit,5ms", 2),
        above(24, 6, 4, 600_000, "50mbit,5ms", 2),
        above(11, 2, 4, 1_200_000, "50mbit,10ms", 2),
        soaked(2, 2, 1_200_000, "50mbit,10ms", 2),
        (2, 2, 600_000, "100mbit,5ms", 1),
        soaked(2, 4, 1_200_000, "50mbit,10ms", 1),
        soaked(3, 3, 900_000, "100mbit,5ms", 1),
        soaked(3, 2, 800_000, "50mbit,10ms", 1),
    ],
)
def test_a_plan_of_asynchronous_workers_is_within_a_tenth(
    workers: int, servers: int, size: int, link: str, copies: int
) -> None:
    """Of a pull only the first questions seemed to wait behind the push, and no answer behind those to others."""
    names = [[f"peer-{workers + number}" for number in range(servers)]]
    plan = planned_async(servers, copies, links(workers, link), links(servers, link), size, names)
    assert plan.seconds == pytest.approx(simulated_s(workers, servers, size, link, "async", copies), rel=0.1)


def test_asynchronous_pushes_cross_the_links_between_servers_each_by_itself() -> None:
    own = ("--peers", 8, "--size", "20MB", "--link", "100mbit,1ms")
    step, alone = (told(*own, "--consistency", name)["plans"][1] for name in ("bsp", "async"))
    assert alone["server_bytes"] > 1.5 * step["server_bytes"]
    one, two = (told(*own, "--consistency", "async", "--copies", copies)["plans"][2] for copies in (1, 2))
    assert one["seconds"] < two["seconds"]


def told(*arguments: object) -> dict[str, Any]:
    ended = verb("plan", "--protocol", "parameter-server", *arguments, "--json")
    assert (ended.exit_code, ended.stderr) == (0, ""), ended.output
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_servers_pay_until_the_workers_own_links_are_the_bound() -> None:
    found = told("--peers", 8, "--size", "20MB", "--link", "100mbit,1ms", "--copies", 1)
    rows = {row["servers"]: row for row in found["plans"]}
    assert [*rows] == [1, 2, 4, 8, 16, 32, 64]
    assert (rows[1]["bound"], rows[64]["bound"]) == ("servers", "workers")
    assert rows[1]["seconds"] == pytest.approx(8 * 1.6, rel=0.1)  # 8 times 20 MB over one link, both ways at once
    assert 4 <= found["enough"] <= 16
    assert rows[found["enough"]]["seconds"] < 1.25 * rows[32]["seconds"]


def test_more_copies_make_more_bytes_and_memory() -> None:
    one, two = (told("--size", "20MB", "--copies", copies)["plans"][2] for copies in (1, 2))
    assert two["server_bytes"] > one["server_bytes"]
    assert two["memory_bytes"] > 1.3 * one["memory_bytes"]
    assert (one["copies"], two["copies"]) == (1, 2)


def test_servers_on_faster_links_make_one_enough() -> None:
    slow, fast = (
        told("--peers", 8, "--size", "20MB", "--link", "100mbit,5ms", "--server-link", link)
        for link in ("100mbit,5ms", "10gbit,5ms")
    )
    assert fast["enough"] == 1 < slow["enough"]


def test_a_model_of_one_range_gains_nothing_by_a_second_server() -> None:
    found = told("--peers", 8, "--size", "64KiB", "--link", "100mbit,5ms", "--copies", 1)
    assert found["enough"] == 1
    assert {row["share"] for row in found["plans"]} == {1.0}


def test_the_count_that_is_enough_is_the_least_that_more_do_not_beat_by_a_twentieth() -> None:
    def plan(servers: int, seconds: float) -> ServerPlan:
        return ServerPlan(servers, 1, seconds, "servers", 1.0, 0, 0)

    assert enough([plan(1, 10.0), plan(2, 5.2), plan(4, 5.0), plan(8, 6.0)]).servers == 2
    assert len(all_planned(2, links(4, "10mbit,5ms"), links(5, "10mbit,5ms"), 4000)) == 3


def test_a_drawing_is_refused_in_one_line() -> None:
    ended = verb("plan", "--size", "1MB", "--protocol", "parameter-server", "--svg")
    assert ended.exit_code == 2
    assert "does not go with --protocol parameter-server" in ended.stderr
