"""Making the scene of a simulation, which the report draws, from the world and its event log at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..peers.records.consensus import Consensus
from ..peers.records.result import Lost
from ..peers.records.scene import BAD_ENDINGS, Cable, Ending, Place, Scene, Stay, Trouble
from ..peers.records.units import bytes_text
from ..peers.settings.link_text import link_text
from .scenarios.scenario import FOR_ALL
from .world.event_log import Began, Fell, Gone, OutOfMemory
from .world.world import World

_PEERS_MOST = 5000
"""The greatest number of peers in a scene. A chart of more would not be readable."""


def scene_of(
    world: World, consensus: Sequence[Consensus] = (), *, began_s: float, lasted_s: float, broken: str = ""
) -> Scene:
    """The scene of `world`. `consensus`: of the peers' models, in virtual time; `began_s`, `lasted_s`: virtual times at
    which the run began and the world ended; `broken`: the promise that did not hold, "": all held."""
    return Scene(
        lasted_s=lasted_s - began_s,
        places=tuple(_places(world)),
        cables=tuple(_cables(world)),
        stays=tuple(_stays(world, began_s, lasted_s)),
        troubles=tuple(_troubles(world, began_s)),
        consensus=tuple(replace(point, time_s=point.time_s - began_s) for point in consensus),
        broken=broken,
    )


def lost_in(scene: Scene) -> list[Lost]:
    """The peers whose last process crashed, gave up or ran out of memory, each with the reason and the time, in virtual
    seconds since the run began; 0 if it was before."""
    last = {stay.peer: stay for stay in scene.stays}
    return [
        Lost(peer=stay.peer, when=max(0.0, stay.until_s), why=stay.why)
        for stay in last.values()
        if stay.ending in BAD_ENDINGS
    ]


def _places(world: World) -> Iterator[Place]:
    carried = world.network.carried
    up, down = Counter[str](), Counter[str]()
    for (sender, to), size in carried.items():
        up[sender] += size
        down[to] += size
    for index, peer in enumerate(world.ids[:_PEERS_MOST]):
        group = world.scenario.group_of(index)
        yield Place(
            peer=str(index),
            site=group.site,
            link=link_text(group.link),
            up_Bps=group.link.bandwidth_Bps,
            down_Bps=group.link.receives_Bps,
            bytes_up=up[peer],
            bytes_down=down[peer],
        )


def _cables(world: World) -> Iterator[Cable]:
    site, between = world.network.site, Counter[tuple[str, str]]()
    for (sender, to), size in world.network.carried.items():
        between[site[sender], site[to]] += size
    trunks = {frozenset((one, other)): link for one, other, link in world.scenario.trunks}
    sites = list(dict.fromkeys(site.values()))
    for number, one in enumerate(sites):
        for other in sites[number + 1 :]:
            link = trunks.get(frozenset((one, other)))
            if link or between[one, other] or between[other, one]:
                yield Cable(
                    a=one,
                    b=other,
                    link=link_text(link) if link else "",
                    Bps=link.bandwidth_Bps if link else 0.0,
                    bytes_ab=between[one, other],
                    bytes_ba=between[other, one],
                )


def _stays(world: World, began_s: float, lasted_s: float) -> Iterator[Stay]:
    began: dict[str, float] = {}
    memory: dict[str, OutOfMemory] = {}
    for time_s, life, event in world.log.entries:
        if isinstance(event, Began):
            began[life] = time_s
        elif isinstance(event, OutOfMemory):
            memory[life] = event
        elif isinstance(event, Gone):
            ending, why = _ending(event, memory.get(life))
            yield _stay(life, began.pop(life), time_s, began_s, ending, why)
    for life, from_s in began.items():
        yield _stay(life, from_s, lasted_s, began_s, "still there", "")


def _stay(life: str, from_s: float, until_s: float, began_s: float, ending: Ending, why: str) -> Stay:
    return Stay(peer=life.split(".")[0], from_s=from_s - began_s, until_s=until_s - began_s, ending=ending, why=why)


def _ending(gone: Gone, memory: OutOfMemory | None) -> tuple[Ending, str]:
    if memory is not None:
        needed, there = bytes_text(memory.needed_bytes), bytes_text(memory.memory_bytes)
        return "out of memory", f"out of memory: it needed {needed} and has {there}"
    if gone.crashed:
        return "crashed", "crashed, as the scenario has it"
    return ("finished", "") if gone.finished else ("gave up", f"gave up: {gone.error}" if gone.error else "gave up")


def _troubles(world: World, began_s: float) -> Iterator[Trouble]:
    for time_s, _, event in world.log.entries:
        if isinstance(event, Fell):
            who = () if event.kind in FOR_ALL else tuple(dict.fromkeys(life.split(".")[0] for life in event.who))
            until_s = None if event.until_s is None else event.until_s - began_s
            yield Trouble(kind=str(event.kind), who=who, at_s=time_s - began_s, until_s=until_s)
