"""A peer dies or stands still before any one delivery of a round, or two peers die: the round is decided all the same.

Here a part of the deliveries is tried; `PYTHONPATH=tests/support python tests/sims/test_crashes.py` tries them all,
with every peer as the victim, and 2,000 pairs, and then all again with every schedule, where the victims take turns; it
prints how many there were and how the runs ended.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise, starmap

import pytest
from tiers import one_in, soaked

from samovar.aggregation.schedules.registry import SCHEDULES
from samovar.peers.run_settings.settings import Settings
from samovar.protocols.local_sgd.rounds import Committed
from samovar.protocols.members.errors import NoQuorum
from samovar.sims.scenarios.scenario import Fault, Kind, Scenario
from samovar.sims.scenarios.toy import toy_task
from samovar.sims.sweeps.promises import broken
from samovar.sims.world.event_log import Gone
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

ROUNDS = 3
USUAL = {peers: ("ring", "halving_doubling")[peers % 2] for peers in range(2, 9)}
"""The schedule for so many peers, where no other is named."""

Crash = tuple[int, int]
"""The peer that dies, and before which delivery."""


def peaceful(peers: int, schedule: str) -> Scenario:
    schedule = schedule or USUAL[peers]
    settings = Settings(
        peers=peers, period="4", steps=4 * ROUNDS, schedule=schedule, patience_s=1.0, seed=peers, device="cpu"
    )
    return Scenario.plain(settings)


def played(peers: int, crashes: Iterable[Crash], schedule: str = "") -> World:
    """The world at its end. Raises Hung."""
    return world_with(peers, schedule, *(Fault(kind=Kind.CRASH, who=(who,), at_event=event) for who, event in crashes))


def world_with(peers: int, schedule: str, *faults: Fault) -> World:
    world = World(toy_task(), replace(peaceful(peers, schedule), faults=faults))
    run_virtual(world.run(within_s=120), seed=peers)
    return world


def the_second_round(peers: int, schedule: str = "") -> range:
    """The deliveries of it, from the one after which all had committed the first to the one after which all had it."""
    world, seen = World(toy_task(), peaceful(peers, schedule)), list[tuple[int, int]]()
    world.network.after.append(lambda peer: seen.append((world.network.delivered, len(world.log.entries))))
    run_virtual(world.run(), seed=peers)
    rounds = [entry.event.round if isinstance(entry.event, Committed) else 0 for entry in world.log.entries]
    ends = [next(number for number, known in seen if rounds[:known].count(round_) == peers) for round_ in (1, 2)]
    return range(ends[0] + 1, ends[1] + 1)


def end_of(world: World) -> str:
    """How it ended, in a word, when all that is promised holds."""
    assert broken(world.scenario, world.log.entries) is None
    crashed = [entry.life for entry in world.log.entries if isinstance(entry.event, Gone) and entry.event.crashed]
    assert len(crashed) == len(world.scenario.faults)
    survivors = [life for life in world.lives if life.name not in crashed]
    assert (
        len(
            {
                (life.peer.conversation.state.round, life.peer.conversation.state.vector.numpy().tobytes())
                for life in survivors
            }
        )
        == 1
    )
    if 2 * len(survivors) > world.scenario.peers:
        assert all(life.result is not None and life.result.finished for life in survivors)
        assert survivors[0].peer.conversation.state.round == ROUNDS
        return "went on"
    assert all(isinstance(life.error, NoQuorum) for life in survivors)
    return f"too few were left after round {survivors[0].peer.conversation.state.round}"


def single_crashes(peers: int) -> list[Crash]:
    return [(victim, event) for event in the_second_round(peers) for victim in range(peers)]


def pairs_of_crashes(count: int) -> list[tuple[Crash, Crash]]:
    """Of 5 peers; the second dies in the same round, or while the others still see to the first."""
    chance, events = random.Random("pairs"), the_second_round(5)
    pairs = []
    for _ in range(count):
        one, other = chance.sample(range(5), 2)
        first = chance.choice(events)
        pairs.append(((one, first), (other, chance.randrange(first, events.stop + len(events)))))
    return pairs


def crashes_in_turn(peers: int, schedule: str) -> list[Crash]:
    """One before each delivery; the victims take turns."""
    return [(event % peers, event) for event in the_second_round(peers, schedule)]


def ends(peers: int, tries: Iterable[tuple[Crash, ...]], schedule: str = "") -> Counter[str]:
    return Counter(end_of(played(peers, crashes, schedule)) for crashes in tries)


@pytest.mark.parametrize(
    ("peers", "every"),
    [(2, 1), (3, 4), (5, 31), *starmap(soaked, [(3, 2), (4, 7), (5, 13), (6, 37), (7, 31), (8, 121)])],
)
def test_a_crash_before_any_delivery_of_a_round_decides_it(peers: int, every: int) -> None:
    """`every` has no divisor in common with the number of peers, so everybody is the victim in turn."""
    tried = single_crashes(peers)[::every]
    assert {victim for victim, _ in tried} == set(range(peers))
    met = ends(peers, [(crash,) for crash in tried])
    if peers > 2:
        assert met == {"went on": len(tried)}
    else:
        assert met.keys() == {f"too few were left after round {round_}" for round_ in (1, 2)}


@pytest.mark.parametrize("count", [8, soaked(60)])
def test_of_five_any_two_may_crash_in_one_round(count: int) -> None:
    tried = pairs_of_crashes(count)
    assert ends(5, tried) == {"went on": len(tried)}


@pytest.mark.parametrize("every", [21, soaked(9)])
@pytest.mark.parametrize("schedule", one_in(2, SCHEDULES))
def test_a_crash_in_any_schedule_decides_the_round(schedule: str, every: int) -> None:
    tried = crashes_in_turn(5, schedule)[::every]
    assert ends(5, [(crash,) for crash in tried], schedule) == {"went on": len(tried)}


def longest_wait_s(world: World, without: int) -> float:
    """From one commit of a peer to its next, whoever of the others it is."""
    times: dict[str, list[float]] = {life.name: [] for life in world.lives if life.index != without}
    for time_s, life, event in world.log.entries:
        if isinstance(event, Committed) and life in times:
            times[life].append(time_s)
    return max(later - sooner for each in times.values() for sooner, later in pairwise(each))


@pytest.mark.parametrize(
    ("for_s", "members", "schedule", "every"),
    [
        (0.7, 5, "ring", 17),
        (3.0, 4, "sharded", 17),
        *(soaked(*pause, schedule, 6) for pause in ((0.7, 5), (3.0, 4)) for schedule in ("ring", "sharded")),
    ],
)
def test_a_peer_suspended_before_any_delivery_holds_up_the_others_for_its_pause_or_their_patience(
    for_s: float, members: int, schedule: str, every: int
) -> None:
    patience_s = peaceful(5, schedule).settings.patience_s
    usual_s, left = longest_wait_s(world_with(5, schedule), without=0), Counter[int]()
    for victim, event in crashes_in_turn(5, schedule)[::every]:
        world = world_with(5, schedule, Fault(kind=Kind.PAUSE, who=(victim,), at_event=event, for_s=for_s))
        assert broken(world.scenario, world.log.entries) is None
        others = [life for life in world.lives if life.index != victim]
        assert all(life.result is not None and life.result.finished for life in others)
        left.update({len(life.peer.membership.view.members) for life in others})
        assert longest_wait_s(world, without=victim) <= min(for_s, 1.25 * patience_s) + 2 * usual_s
    assert set(left) <= {members, 5}
    assert left[members] > left.total() / 2, "but for those who had sent all they had to, in the last round, before"


def everything() -> Iterator[tuple[str, int, Counter[str]]]:
    for peers in USUAL:
        tried = single_crashes(peers)
        yield f"{peers} peers, one crash", len(tried), ends(peers, [(crash,) for crash in tried])
    yield "5 peers, two crashes", 2000, ends(5, pairs_of_crashes(2000))
    yield from every_schedule()


def every_schedule() -> Iterator[tuple[str, int, Counter[str]]]:
    for schedule in SCHEDULES:
        for peers in USUAL:
            tried = crashes_in_turn(peers, schedule)
            met = ends(peers, [(crash,) for crash in tried], schedule)
            yield f"{peers} peers, {schedule}, one crash", len(tried), met


if __name__ == "__main__":
    began = time.monotonic()
    for what, count, met in every_schedule() if sys.argv[1:] == ["schedules"] else everything():
        print(f"{what}: {count} runs, {dict(met)}; {time.monotonic() - began:.0f} s", flush=True)
