"""A server is killed at 100 points of each of two runs, of which each value has two copies: no acknowledged push is
lost, none is applied twice, training goes on, and the others name the server.

The run has pushes, a takeover (of a server that stops for a while, and comes back), and a move of ranges to a server
that joins. Pushes are of whole numbers, so that the values that are left on the servers tell exactly what was applied.
"""

from dataclasses import replace
from functools import lru_cache
from itertools import cycle

import pytest
import torch
from tiers import soaked
from whole_numbers import ADDED, due, sums

from samovar.peers.run_settings.settings import Settings
from samovar.protocols.members.view import Decided
from samovar.protocols.parameter_server.events import Entered, Took
from samovar.protocols.parameter_server.serving import Serving
from samovar.sims.checkers.common import COMMON
from samovar.sims.checkers.parameter_server import PARAMETER_SERVER
from samovar.sims.scenarios.scenario import Fault, Kind, Scenario
from samovar.sims.world.event_log import Gone
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

WORKERS, STEPS, RANGES, POINTS = 3, 24, 6, 100
STOPS, CAME = 3, 6
"""The server that stops for a while, and the one that joins later."""
Point = tuple[int, int]
"""The delivery before which a server is killed, and the number of that server."""


def scenario(consistency: str, *faults: Fault) -> Scenario:
    settings = Settings(
        **ADDED,
        device="cpu",
        peers=WORKERS,
        servers=3,
        copies=2,
        ranges=RANGES,
        steps=STEPS,
        consistency=consistency,
        patience_s=0.5,
    )
    plain = Scenario.plain(settings)
    workers, servers = (replace(group, step_s=0.1) for group in plain.groups)
    stops = Fault(kind=Kind.PAUSE, who=(STOPS,), at_s=0.7, for_s=0.8)
    return replace(
        plain,
        groups=(workers, servers, replace(servers, peers=1)),
        arrivals=((CAME, 2.0),),
        faults=(stops, *faults),
    )


def simulated(wanted: Scenario) -> World:
    """The world after the scenario, whose promises are all kept."""
    world = World(sums(), wanted)
    run_virtual(world.run(within_s=300), seed=0)
    for promise in (*COMMON, *PARAMETER_SERVER):
        assert list(promise(wanted, world.log.entries)) == []
    return world


@lru_cache
def spans(consistency: str) -> dict[str, range]:
    """The deliveries of each part of an undisturbed run: "all" of it, from the first range that was taken to the last
    push that was applied; and by a server's number and what it does ("3 goes", "3 comes"), those from the decision on
    the view without or with that server to the last range that was taken in this view."""
    world, seen = World(sums(), scenario(consistency)), list[tuple[int, int]]()
    world.network.after.append(lambda peer: seen.append((world.network.delivered, len(world.log.entries))))
    run_virtual(world.run(within_s=300), seed=0)

    def delivery(place: int) -> int:
        return next(number for number, known in seen if known > place)

    decided, took, last = dict[int, tuple[int, frozenset[str]]](), dict[int, int](), 0
    for place, (_, _, event) in enumerate(world.log.entries):
        if isinstance(event, Decided):
            decided.setdefault(event.generation, (place, frozenset(event.members)))
        elif isinstance(event, Took):
            took[event.term] = place
        elif isinstance(event, Entered) and event.pushes:
            last = place
    found = {"all": range(delivery(min(took.values())), delivery(last))}
    for (_, before), (generation, (place, after)) in zip(decided.values(), [*decided.items()][1:], strict=False):
        for what, peers in (("goes", before - after), ("comes", after - before)):
            span = range(delivery(place), delivery(took[generation]) + 1)
            found |= {f"{peer.removeprefix('peer-')} {what}": span for peer in peers}
    return found


def points(consistency: str) -> list[Point]:
    """The points in runs of this consistency, about a quarter of them in each part."""
    victims = {"all": (3, 4, 5), f"{STOPS} goes": (4, 5), f"{STOPS} comes": (3, 4, 5), f"{CAME} comes": (3, 4, 5, CAME)}
    found, many = list[Point](), POINTS // len(victims) + 1
    for part, those in victims.items():
        span = spans(consistency)[part]
        found += zip((span[place * len(span) // many] for place in range(many)), cycle(those), strict=False)
    found = [*dict.fromkeys(found)]
    assert len(found) >= POINTS
    return found


@pytest.mark.parametrize(
    ("consistency", "first", "every"),
    [("async", 12, 42), *(soaked(one, first, 5) for one in ("async", "ssp:2") for first in range(5))],
)
def test_a_server_that_is_killed_at_any_point_costs_no_acknowledged_push_and_is_named(
    consistency: str, first: int, every: int
) -> None:
    for event, victim in points(consistency)[first::every]:
        crash = Fault(kind=Kind.CRASH, who=(victim,), at_event=event)
        world = simulated(scenario(consistency, crash))
        crashed = {entry.life for entry in world.log.entries if isinstance(entry.event, Gone) and entry.event.crashed}
        assert {life.index for life in world.lives if life.name in crashed} == {victim}, event
        left = [life for life in world.lives if life.index != victim]
        assert all(life.result is not None and life.result.finished for life in left), event
        named = {one.peer for life in left for one in life.peer.membership.removals if not one.left}
        assert f"peer-{victim}" in named, event
        assert_exact(world, {victim})


def assert_exact(world: World, killed: set[int]) -> None:
    """The values that the servers hold at the end are the sum of all pushes."""
    expected, found = due(WORKERS, STEPS), set[int]()
    for life in world.lives:
        if isinstance(life.peer.conversation, Serving) and life.index not in killed:
            store = life.peer.conversation._parts.store
            for number, copy in store.copies.items():
                part = store.keys.parts[number]
                assert torch.equal(copy.values, expected[part.start : part.stop]), (life.name, number)
                found.add(number)
    assert len(found) == RANGES
