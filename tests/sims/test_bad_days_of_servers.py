"""Ordinary bad days of the parameter server: a worker that hangs while the others need its clock, a server whose disk
is full, and one that sits behind a slow link."""

import re
from dataclasses import replace

import pytest
from tiers import soaked
from two_servers import TWO_SERVERS
from whole_numbers import ADDED, due, sums

from samovar.peers.records.records import EventRecord, Record
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.link_text import parse_link
from samovar.protocols.parameter_server.serving import Serving
from samovar.protocols.parameter_server.worker import Worker
from samovar.sims.checkers.common import COMMON
from samovar.sims.checkers.parameter_server import PARAMETER_SERVER
from samovar.sims.scenarios.scenario import Fault, Group, Kind, Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.simulated_peer import Life
from samovar.sims.world.world import World

STEPS = 30
OWN = {**TWO_SERVERS, **ADDED, "ranges": 6, "steps": STEPS, "patience_s": 1.0}


def scenario(*faults: Fault, **settings: object) -> Scenario:
    plain = Scenario.plain(Settings(**{**OWN, **settings}))
    groups = tuple(replace(group, step_s=0.1) for group in plain.groups)
    return replace(plain, groups=groups, faults=faults)


def simulated(wanted: Scenario) -> tuple[World, list[EventRecord]]:
    """The world after the scenario, whose promises are all kept, and the events that its peers told."""
    records = list[Record]()
    world = World(sums(), wanted, records.append)
    run_virtual(world.run(within_s=300), seed=0)
    for promise in (*COMMON, *PARAMETER_SERVER):
        assert list(promise(wanted, world.log.entries)) == []
    return world, [record for record in records if isinstance(record, EventRecord)]


def assert_nothing_is_lost(world: World) -> None:
    assert all(life.result is not None and life.result.finished for life in world.lives)
    models = [life.peer.conversation.state.model for life in world.lives if isinstance(life.peer.conversation, Worker)]
    assert any(model.equal(due(3, STEPS)) for model in models), "that of the worker which ended last"


@pytest.mark.parametrize("who", [0, soaked(2)])
@pytest.mark.parametrize("consistency", ["ssp:2", soaked("bsp"), soaked("bounded:2")])
def test_a_worker_that_hangs_while_others_need_its_clock_stops_nobody_for_ever(consistency: str, who: int) -> None:
    """Also where that is the coordinator of the view, and where those that wait count other clocks than it does."""
    hangs = Fault(kind=Kind.HANG, who=(who,), at_s=1.0, for_s=60.0)
    world, events = simulated(scenario(hangs, consistency=consistency, compute_patience_s=3.0))
    lost = [one for one in events if one.event == "lost"]
    assert {one.peer for one in lost if one.subject == str(who)} == {*"01234"} - {str(who)}
    assert re.match("3 s of local steps for round [0-9]+, with --compute-patience-s 3", lost[0].why)
    others = [life for life in world.lives if life.index != who]
    assert all(life.result is not None and life.result.finished for life in others)


def test_a_slow_worker_that_nobody_waits_for_is_not_given_up() -> None:
    hangs = Fault(kind=Kind.HANG, who=(0,), at_s=1.0, for_s=6.0)
    world, events = simulated(scenario(hangs, consistency="async", compute_patience_s=3.0))
    assert not [one for one in events if one.event == "lost"]
    assert_nothing_is_lost(world)


@pytest.mark.parametrize("for_s", [0.0, soaked(1.0)])
def test_a_server_on_a_full_disk_serves_on_and_says_so(for_s: float) -> None:
    full = Fault(kind=Kind.FULL_DISK, who=(4,), at_s=0.5, for_s=for_s)
    world, events = simulated(scenario(full, checkpoint_every_s=0.2))
    failed = [one for one in events if one.event == "checkpoint_failed"]
    assert {one.peer for one in failed} == {"4"}
    assert "no space left on device" in failed[0].why
    assert not [one for one in events if one.event == "lost"]
    unsaved = {life.index for life in world.lives if life.result is not None and life.result.unsaved}
    assert unsaved == (set() if for_s else {4})
    assert_nothing_is_lost(world)


@pytest.mark.parametrize("link", ["200kbit,300ms", soaked("1mbit,50ms")])
def test_a_server_behind_a_slow_link_is_not_lost_and_loses_nothing(link: str) -> None:
    wanted = scenario()
    workers, servers = wanted.groups
    slow = Group(peers=1, link=parse_link(link), role="server")
    wanted = replace(wanted, groups=(workers, replace(servers, peers=1), slow))
    world, events = simulated(wanted)
    assert not [one for one in events if one.event == "lost"]
    assert_nothing_is_lost(world)


@pytest.mark.parametrize("copies", [None, 1])
def test_a_second_server_has_all_that_the_first_has_unless_the_user_wants_one_copy(copies: int | None) -> None:
    wanted = scenario(servers=1, copies=copies)
    servers = replace(wanted.groups[-1], peers=1)
    wanted = replace(wanted, groups=(*wanted.groups, servers), arrivals=((4, 0.5),))
    world, _ = simulated(wanted)
    assert_nothing_is_lost(world)
    held = [{*life.peer.conversation._parts.store.copies} for life in world.lives if is_server(life)]
    assert len(held) == 2
    assert held[0] | held[1] == {*range(6)}
    assert held[0] & held[1] == ({*range(6)} if copies is None else set())


def test_a_run_that_one_server_began_loses_nothing_with_it_once_a_second_one_has_come() -> None:
    wanted = scenario(Fault(kind=Kind.CRASH, who=(3,), at_s=2.0), servers=1)
    servers = replace(wanted.groups[-1], peers=1)
    world, events = simulated(replace(wanted, groups=(*wanted.groups, servers), arrivals=((4, 0.5),)))
    assert {one.subject for one in events if one.event == "lost"} == {"3"}
    left = [life for life in world.lives if life.index != 3]
    assert all(life.result is not None and life.result.finished for life in left)
    models = [life.peer.conversation.state.model for life in left if not is_server(life)]
    assert any(model.equal(due(3, STEPS)) for model in models)


def is_server(life: Life) -> bool:
    return isinstance(life.peer.conversation, Serving)
