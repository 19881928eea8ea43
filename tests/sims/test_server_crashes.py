"""A server or a worker dies before any one delivery of a takeover or of a move of ranges: no acknowledged push is lost,
and none is applied twice. `test_parameter_server` has the same of pushes.

Here a part of the deliveries is tried, and in `make soak` each of them; the victims take turns.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import pytest
from tiers import soaked
from two_servers import TWO_SERVERS

from samovar.peers.run_settings.settings import Settings
from samovar.protocols.members.states import Moved
from samovar.protocols.parameter_server.events import Entered, Took
from samovar.sims.checkers.common import COMMON
from samovar.sims.checkers.parameter_server import PARAMETER_SERVER
from samovar.sims.scenarios.scenario import Fault, Kind, Scenario
from samovar.sims.scenarios.toy import toy_task
from samovar.sims.world.event_log import Entry, Gone
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

STEPS = 20
OWN = {**TWO_SERVERS, "servers": 3, "steps": STEPS, "patience_s": 0.5, "consistency": "async"}
FIRST, CAME = 4, 6
"""The server whose ranges are taken over, and the one that comes while the others train."""


def takeover() -> Scenario:
    """All servers have each range, so that two of them may die."""
    plain = Scenario.plain(Settings(**{**OWN, "copies": 3}))
    return replace(plain, faults=(Fault(kind=Kind.CRASH, who=(FIRST,), at_event=400),))


def move() -> Scenario:
    plain = Scenario.plain(Settings(**{**OWN, "copies": 2}))
    servers = replace(plain.groups[-1], peers=1)
    return replace(plain, groups=(*plain.groups, servers), arrivals=((CAME, 0.05),))


def begins_the_takeover(entry: Entry) -> bool:
    return isinstance(entry.event, Gone) and entry.life == f"{FIRST}.0"


def begins_the_move(entry: Entry) -> bool:
    return isinstance(entry.event, Moved) and entry.life == f"{CAME}.0"


def ends_both(entry: Entry) -> bool:
    return isinstance(entry.event, Took)


def world_of(scenario: Scenario) -> World:
    """The world after the scenario, whose promises are all kept."""
    world = World(toy_task(), scenario)
    run_virtual(world.run(within_s=300), seed=0)
    for promise in (*COMMON, *PARAMETER_SERVER):
        assert list(promise(scenario, world.log.entries)) == []
    return world


def test_workers_whose_servers_are_gone_are_told_to_join_the_run_anew_once_it_is_resumed() -> None:
    """A worker that joined cannot resume the run: the command that holds the servers does."""
    crash = Fault(kind=Kind.CRASH, who=(3,), at_s=0.1)
    scenario = replace(Scenario.plain(Settings(**{**OWN, "servers": 1, "steps": 200})), faults=(crash,))
    world = World(toy_task(), scenario)
    run_virtual(world.run(within_s=300), seed=0)
    errors = {one.life: one.event.error for one in world.log.entries if isinstance(one.event, Gone)}
    assert {*errors} == {"0.0", "1.0", "2.0", "3.0"}
    told = "resume the run where its servers were, by --resume, and join it anew"
    assert all(f"none has come back: {told}" in errors[worker] for worker in ("0.0", "1.0", "2.0"))


def span(scenario: Scenario, begins: Callable[[Entry], bool]) -> range:
    """The deliveries from the one after which something `begins` to the one after which the last range was taken."""
    world, seen = World(toy_task(), scenario), list[tuple[int, int]]()
    world.network.after.append(lambda peer: seen.append((world.network.delivered, len(world.log.entries))))
    run_virtual(world.run(within_s=300), seed=0)
    entries = world.log.entries
    first = next(place for place, entry in enumerate(entries) if begins(entry))
    last = max(place for place, entry in enumerate(entries) if ends_both(entry))
    assert first < last
    return range(*(1 + next(number for number, known in seen if known > place) for place in (first, last)))


def pushes_of(world: World) -> dict[int, set[tuple[str, int]]]:
    """By range, the pushes (worker, number) that its heads have applied."""
    found: dict[int, set[tuple[str, int]]] = defaultdict(set)
    for entry in world.log.entries:
        if isinstance(entry.event, Entered):
            found[entry.event.range].update(entry.event.pushes)
    return found


@pytest.mark.parametrize(("first", "every"), [(0, 100), *(soaked(first, 14) for first in range(14))])
@pytest.mark.parametrize(
    ("scenario", "begins", "victims"),
    [(takeover, begins_the_takeover, (3, 5, 0)), (move, begins_the_move, (CAME, 3, 0))],
)
def test_a_crash_at_any_delivery_of_a_takeover_or_a_move_loses_no_acknowledged_push(
    scenario: Callable[[], Scenario], begins: Callable[[Entry], bool], victims: tuple[int, ...], first: int, every: int
) -> None:
    plain, tried = scenario(), [*enumerate(span(scenario(), begins))][first::every]
    assert {place % len(victims) for place, _ in tried} == {0, 1, 2}
    for place, event in tried:
        victim = victims[place % len(victims)]
        crash = Fault(kind=Kind.CRASH, who=(victim,), at_event=event)
        world = world_of(replace(plain, faults=(*plain.faults, crash)))
        crashed = {entry.life for entry in world.log.entries if isinstance(entry.event, Gone) and entry.event.crashed}
        assert f"{victim}.0" in crashed, event
        # Where its contact dies, the newcomer may come too late, and is told so.
        left = [life for life in world.lives if life.name not in crashed and life.index != CAME]
        assert all(life.result is not None and life.result.finished for life in left), event
        due = {(f"peer-{life.index}", seq) for life in left if life.index < 3 for seq in range(1, STEPS + 1)}
        pushes = pushes_of(world)
        assert pushes, event
        assert all(due <= found for found in pushes.values()), event
