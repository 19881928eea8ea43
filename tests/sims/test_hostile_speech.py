"""Keys that say anything well-formed, of every kind and of any value: nobody dies of it, and nothing grows."""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest
import torch
from tiers import one_in, soaked

from samovar.protocols.members.messages import Install, Join
from samovar.protocols.transfer.chunks import Chunk
from samovar.protocols.wire.frames import encode, kind_of, kinds, message, type_of
from samovar.sims.scenarios.scenario import Fault, Kind
from samovar.sims.scenarios.toy import toy_task
from samovar.sims.sweeps.draw import draw
from samovar.sims.sweeps.verdict import bound_s, judge, run_and_judge
from samovar.sims.world import hostile
from samovar.sims.world.hostile import Speech
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.simulated_peer import Life
from samovar.sims.world.world import World

_ELSEWHERE = ("samovar.sims", "samovar.peers.task.task", "samovar.peers.training.trainer")


def entries_of(thing: object, seen: set[int]) -> int:
    """How much is kept in all containers that a peer's own objects hold."""
    if id(thing) in seen or isinstance(thing, (str, bytes, int, float, torch.Tensor, asyncio.Future)):
        return 0
    seen.add(id(thing))
    if isinstance(thing, dict):
        return len(thing) + sum(entries_of(one, seen) for pair in thing.items() for one in pair)
    if isinstance(thing, (list, tuple, set, frozenset, deque)):
        return len(thing) + sum(entries_of(one, seen) for one in thing)
    module = type(thing).__module__
    if not module.startswith("samovar") or module.startswith(_ELSEWHERE):
        return 0
    slots: Iterable[str] = (name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ()))
    held = [*getattr(thing, "__dict__", {}).values(), *(getattr(thing, name, None) for name in slots)]
    return sum(entries_of(one, seen) for one in held)


def kept(life: Life) -> int:
    return entries_of(life.peer, set()) + entries_of(life.endpoint.reception, set())


def hostile_world(seed: int, who: tuple[int, ...], for_s: float) -> World:
    scenario = replace(draw(seed, "allreduce"), toy_size=1000)  # the log keeps each vector that is brought
    settings = replace(scenario.settings, steps=1500, patience_s=5.0)
    speaks = Fault(kind=Kind.HOSTILE, who=who, at_s=1.0, for_s=for_s)
    groups = tuple(replace(group, step_s=0.1) for group in scenario.groups)  # what honest peers say costs time here
    quiet = replace(
        scenario, settings=settings, groups=groups, faults=(speaks,), arrivals=(), priorities=None, buggify=False
    )
    return World(toy_task(quiet.toy_size), quiet)


@pytest.mark.parametrize(("for_s", "grown_max", "whole"), [(5.0, 200, False), soaked(30.0, 600, True)])
@pytest.mark.parametrize("who", [pytest.param((), id="keys"), soaked((0,), id="a member")])
def test_nothing_grows_with_the_messages_of_hostile_keys(
    who: tuple[int, ...], for_s: float, grown_max: int, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hostile, "EVERY_S", 0.01)
    monkeypatch.setattr(hostile, "FLOODS", 0.0)
    monkeypatch.setattr(hostile, "LIES", 0.0)
    begins_s = 16.0  # what is kept of keys is bounded, and full by then
    world, sizes = hostile_world(4, who, begins_s + for_s + 3.0), list[int]()

    def measure() -> None:
        lives = [life for life in world.lives if life.running]
        assert lives, "the run is to go on for so long"
        sizes.append(max(map(kept, lives)))

    async def main() -> None:
        run = asyncio.create_task(world.run(within_s=bound_s(world.scenario)))
        await asyncio.sleep(begins_s)
        measure()
        await asyncio.sleep(for_s)
        measure()
        if whole:
            await run

    run_virtual(main(), seed=world.scenario.settings.seed)
    assert len(sizes) == 2
    assert sizes[1] < sizes[0] + grown_max, "100 messages a second came to each peer meanwhile"


def test_every_kind_is_said_and_can_be_sent() -> None:
    speech, said = Speech(random.Random(1), ["peer-0", "peer-1"]), Counter[str]()
    channels = set[str]()
    for heard in (Install, Join, Chunk):
        speech.hear(encode(speech._of(heard), 0, incarnation=1, towards=2, seq=3, channel="members"), 0)
    for _ in range(3000):
        channel, message, payload = speech.next()
        said[kind_of(message)] += 1
        channels.add(channel)
        try:
            encode(message, len(payload), incarnation=1, towards=2, seq=3, channel=channel)
        except ValueError:
            said["too large"] += 1
    ours = {kind for kind in kinds() if type_of(kind).__module__.startswith("samovar.")}
    assert ours - {*said} == {"reach.AskReach", "foreign.Foreign"}
    assert channels == {"", "members"}
    assert said["too large"] < 300


def test_a_message_kind_that_the_run_lacks_is_not_sent_until_it_is_heard() -> None:
    """Else a run would depend on what its process has imported besides."""

    @message("imported")
    @dataclass(frozen=True, slots=True)
    class Imported:
        pass

    speech = Speech(random.Random(1), ["peer-0"])

    def said() -> set[str]:
        return {kind_of(speech.next()[1]) for _ in range(1000)}

    assert "imported.Imported" not in said()
    speech.hear(encode(Imported(), 0, incarnation=1, towards=2, seq=3, channel="members"), 0)
    assert "imported.Imported" in said()


@pytest.mark.parametrize("seed", one_in(3, range(900, 906)))
def test_beside_hostile_keys_every_promise_holds(seed: int) -> None:
    scenario = draw(seed)
    faults = tuple(fault for fault in scenario.faults if fault.kind is not Kind.HOSTILE)
    speaks = Fault(kind=Kind.HOSTILE, at_s=0.5, for_s=20.0)
    assert judge(replace(scenario, faults=(*faults, speaks))).broken is None


@pytest.mark.parametrize("seed", [910, *one_in(3, range(911, 914))])
def test_no_message_of_a_hostile_member_kills_a_peer(seed: int) -> None:
    world = hostile_world(seed, (1,), 20.0)
    world = World(world._task, replace(world.scenario, settings=replace(world.scenario.settings, steps=200)))
    assert run_and_judge(world, within_s=bound_s(world.scenario))[1] is None


def test_a_guest_that_asks_for_a_members_key_has_no_member_turned_away() -> None:
    """Found by seed 201: a guest asked for the key of a member, which was refused when it was started anew."""
    assert judge(draw(201)).broken is None
